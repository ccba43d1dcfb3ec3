// SPDX-License-Identifier: Apache-2.0
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.ArrayList;
import java.util.Set;

/** Prints sets in the order of a HashSet: one JSON array of [inserted, iterated] pairs. */
public class HashOrder {
    private static final List<String> PAIRS = new ArrayList<>();

    public static void main(String[] args) {
        for (int size : new int[] {0, 1, 2, 12, 13, 24, 25, 48, 49, 97, 300}) {
            List<String> addresses = new ArrayList<>();
            List<String> names = new ArrayList<>();
            List<Long> ids = new ArrayList<>();
            for (int at = 0; at < size; at++) {
                addresses.add("10.1." + at % 7 + "." + at + ":10911");
                names.add("bröker-" + (char) ('a' + at % 26) + "\uD83D\uDE00" + at * at);
                ids.add(at * 7L % 61 + (at % 3 == 0 ? 0 : 1L << 33) + at);
            }
            pair(addresses);
            pair(names);
            pair(ids);
        }
        // "Aa" and "BB" have the same hash: the order of insertion decides.
        pair(List.of("AaAa", "BBBB", "AaBB", "BBAa"));
        pair(List.of("BBAa", "AaBB", "BBBB", "AaAa"));
        System.out.println("[" + String.join(",\n", PAIRS) + "]");
    }

    private static <T> void pair(List<T> keys) {
        Set<T> set = new HashSet<>();
        set.addAll(keys);
        Set<T> one = new HashMap<T, T>() {{ keys.forEach(key -> put(key, key)); }}.keySet();
        if (!json(set).equals(json(one))) {
            throw new IllegalStateException("addAll sizes the table at once");
        }
        PAIRS.add("[" + json(keys) + "," + json(one) + "]");
    }

    private static String json(Iterable<?> keys) {
        List<String> texts = new ArrayList<>();
        keys.forEach(key -> texts.add(key instanceof Long ? key.toString() : "\"" + key + "\""));
        return "[" + String.join(",", texts) + "]";
    }
}
