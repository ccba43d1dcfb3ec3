# SPDX-License-Identifier: Apache-2.0
"""`routelake import-kv`: the file of a stock NameServer comes over whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from cli import main as cli
from cli.kv_import import read_kv_config
from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.support.java import jvm
from dev.support.local import LocalLake
from dev.support.rocketmq import StockNameServer
from schemas.errors import SetupError
from schemas.limits import MAX_KV_BYTES, MAX_KV_VALUE_BYTES

ORDER = "ORDER_TOPIC_CONFIG"


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr(sys, "argv", ["routelake", "import-kv", *args])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def test_the_file_of_rocketmqs_own_test(tmp_path: Path) -> None:
    """KVConfigSerializeWrapperTest.testEncodeAndDecode."""
    table = {"broker-name": "default-broker", "topic-name": "default-topic", "cid": "default-consumer-name"}
    file = tmp_path / "kvConfig.json"
    file.write_text(json.dumps({"configTable": {ORDER: table}}))
    assert read_kv_config(file) == {ORDER: table}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"configTable":[]}', '{"configTable":{"a":1}}', "\xff"])
def test_what_is_no_such_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(SetupError, match=r"is not a kvConfig\.json"):
        read_kv_config(file)


def test_a_missing_file_is_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, str(tmp_path / "none")) == 2
    assert run(monkeypatch, str(tmp_path / "none"), "-n", "nowhere") == 2


def test_an_unreachable_gateway_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_text('{"configTable":{"n":{"k":"v"}}}')
    assert run(monkeypatch, str(file), "-n", "127.0.0.1:1") == 1


@pytest.mark.jvm
def test_what_a_stock_nameserver_wrote_is_answered_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {(ORDER, "orders"): "broker-a:8;broker-b:8", (ORDER, "ä 主"): "1", ("other", "k"): ""}
    with StockNameServer() as server:
        with RemotingClient(server.host, server.port) as client:
            for (namespace, key), value in entries.items():
                put = {"namespace": namespace, "key": key, "value": value}
                assert client.call(Request(codes.PUT_KV_CONFIG, put)).code == codes.SUCCESS
        (file,) = server.home.rglob("kvConfig.json")
        kept = tmp_path / "kvConfig.json"
        kept.write_bytes(file.read_bytes())
    with LocalLake(tmp_path) as lake, lake.gateway() as gateway:
        assert run(monkeypatch, str(kept), "-n", gateway.address) == 0
        with gateway.connect() as client:
            for (namespace, key), value in entries.items():
                answer = client.call(Request(codes.GET_KV_CONFIG, {"namespace": namespace, "key": key}))
                assert answer.ext == {"value": value}


@pytest.mark.parametrize(
    ("tables", "limit"),
    [
        ({"n": {"k": "\N{SNOWMAN}" * 100_000}}, MAX_KV_VALUE_BYTES),
        ({"n": {f"k{number}": "v" * 250_000 for number in range(68)}}, MAX_KV_BYTES),
    ],
)
def test_what_would_not_go_in_whole_is_refused_before_anything_is_put(
    tmp_path: Path, tables: dict[str, dict[str, str]], limit: int
) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_text(json.dumps({"configTable": tables}))
    with pytest.raises(SetupError, match=f"{limit}. Nothing was put"):
        read_kv_config(file)


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ('\ufeff{"configTable":{"n":{"k":"v"}}}', {"n": {"k": "v"}}),
        ('{"configTable":{"n":{"k":null,"l":"x"},"m":null}}', {"n": {"l": "x"}}),
        (
            '{"configTable":{"n":{"a":1,"b":-1.50,"c":1e3,"d":true}}}',
            {"n": {"a": "1", "b": "-1.50", "c": "1000.0", "d": "true"}},
        ),
        ('{"configTable":{"n":{"k":{"a":[1,"x"],"b":null}}}}', {"n": {"k": '{"a":[1,"x"]}'}}),
        ('{"configTable":{"n":{"k":"1","k":"2"},"n":{"l":"3"}}}', {"n": {"l": "3"}}),
        ("/* c */{'configTable':{'n':{'k':'it\\'s \"x\" //,}',},},// c\n}", {"n": {"k": 'it\'s "x" //,}'}}),
        ('{"configTable":{"n":{}},"other":[1]}', {"n": {}}),
        ('{"configTable":{}}', {}),
    ],
)
def test_what_rocketmq_loads_although_it_is_hardly_json(tmp_path: Path, text: str, tables: object) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_text(text, encoding="utf-8")
    assert read_kv_config(file) == tables


_WORDS = st.sampled_from(
    ["a", "broker-a:8;broker-b:8", "", "\u00e4 \u4e3b", 'q"q', "it's", "back\\slash", "a,}b", "//no", "/*no*/"]
)
_NUMBERS = st.sampled_from(
    [
        "1",
        "-5",
        "+5",
        "-0",
        "1.50",
        "0.1",
        "1e3",
        "1E-5",
        "2.5e10",
        "0e0",
        "12345678901234567890123",
        "0.0000001",
        "1e400",
    ]
)
_SINGLE = st.sampled_from(["'a'", "'b\\'c'", "'d\"e'", "'//x'", "',}'"])
_SCALARS = (
    _WORDS.map(json.dumps)
    | _WORDS.map(lambda text: json.dumps(text, ensure_ascii=False))
    | _SINGLE
    | _NUMBERS
    | st.sampled_from(["null", "true", "false"])
)
_SPACE = st.sampled_from(["", "", "", " ", "\n", "\t", "/* c */", "// c\n"])


def objects(keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Text of objects, spaced, and with a comma after the last member or not."""
    members = st.tuples(_SPACE, keys, values, _SPACE).map(lambda of: f"{of[0]}{of[1]}:{of[2]}{of[3]}")
    return st.tuples(st.lists(members, max_size=3), st.booleans()).map(
        lambda of: "{" + ",".join(of[0]) + ("," if of[0] and of[1] else "") + "}"
    )


_KEYS = st.sampled_from(['"k"', '"l"', '"m"', "'k'"])
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: objects(_KEYS, inner) | st.lists(inner, max_size=2).map(lambda of: f"[{','.join(of)}]"),
    max_leaves=4,
)
_TABLES = objects(st.sampled_from(['"N"', '"M"']), objects(_KEYS, _VALUES) | st.just("null"))
_FILES = st.tuples(
    st.sampled_from(["", "\ufeff"]), _SPACE, _TABLES, st.sampled_from(["}", ",}", "", "} x", ',"other":1}'])
)


@pytest.mark.jvm
def test_rocketmq_itself_loads_generated_files_so(tmp_path: Path) -> None:
    """KVConfigManager.load; what it cannot load ends here in a message, or is loaded: nothing is lost by it."""
    file = tmp_path / "kvConfig.json"
    loaded = 0
    with jvm("rocketmq") as java:
        rocketmq = java.org.apache.rocketmq
        wrapper = java.java.lang.Class.forName("org.apache.rocketmq.namesrv.kvconfig.KVConfigSerializeWrapper")

        def stock() -> dict[str, dict[str, str]] | None:
            try:
                text = rocketmq.common.MixAll.file2String(str(file))
                found = rocketmq.remoting.protocol.RemotingSerializable.fromJson(text, wrapper).getConfigTable()
            except Py4JJavaError:
                return None
            tables = {} if found is None else {each.getKey(): each.getValue() for each in found.entrySet()}
            return (
                None
                if found is None
                else {
                    namespace: {
                        each.getKey(): each.getValue() for each in table.entrySet() if each.getValue() is not None
                    }
                    for namespace, table in tables.items()
                    if table is not None
                }
            )

        @settings(deadline=None, max_examples=max(200, settings().max_examples))
        @given(_FILES)
        def judged(parts: tuple[str, str, str, str]) -> None:
            nonlocal loaded
            mark, space, tables, end = parts
            file.write_text(f'{mark}{{{space}"configTable":{tables}{end}', encoding="utf-8")
            judgement = stock()
            try:
                found = read_kv_config(file)
            except SetupError:
                assert judgement is None
                return
            if judgement is not None:
                loaded += 1
                assert found == judgement

        judged()
    assert loaded > 20
