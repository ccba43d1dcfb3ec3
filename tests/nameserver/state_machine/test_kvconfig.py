# SPDX-License-Identifier: Apache-2.0
"""KV configuration: reference 2.1."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dev.support.events import Fold, delete, put
from nameserver.state_machine.commands import kv_bytes
from schemas.kv import NAMESRV_CONFIG, table_bytes
from schemas.limits import KV_ENTRY_BYTES, MAX_KV_BYTES
from schemas.outcomes import KV_TABLE_FULL


@pytest.fixture
def fold() -> Fold:
    return Fold()


def read(fold: Fold, namespace: str) -> dict[str, str] | None:
    """What GET_KVLIST_BY_NAMESPACE answers: nulls are omitted, an unknown namespace is None."""
    entries = fold.state.kv.get(namespace)
    return None if entries is None else {key: value for key, value in entries.items() if value is not None}


def test_a_namespace_comes_into_being_with_its_first_key(fold: Fold) -> None:
    assert read(fold, "n") is None
    assert fold(put("n", "k", "1")).verdict == "applied"
    assert read(fold, "n") == {"k": "1"}


def test_the_same_value_again_is_unchanged(fold: Fold) -> None:
    fold(put("n", "k", "1"))
    assert fold(put("n", "k", "1")).verdict == "unchanged"
    assert fold.rows == []


def test_a_value_is_replaced(fold: Fold) -> None:
    fold(put("n", "k", "1"))
    fold(put("n", "k", "2"))
    assert read(fold, "n") == {"k": "2"}


def test_a_namespace_outlives_its_last_key(fold: Fold) -> None:
    fold(put("n", "k", "1"))
    assert fold(delete("n", "k")).verdict == "applied"
    assert read(fold, "n") == {}
    assert fold(delete("n", "k")).verdict == "unchanged"


def test_a_null_value_reads_as_not_found_but_its_namespace_exists(fold: Fold) -> None:
    assert fold(put("n", "k", None)).verdict == "applied"
    assert read(fold, "n") == {}


def test_a_null_value_over_a_value(fold: Fold) -> None:
    fold(put("n", "k", "1"))
    fold(put("n", "k2", "2"))
    fold(put("n", "k", None))
    assert read(fold, "n") == {"k2": "2"}
    fold(delete("n", "k2"))
    assert read(fold, "n") == {}


def test_a_key_after_the_last_was_deleted(fold: Fold) -> None:
    fold(put("n", "k", "1"))
    fold(delete("n", "k"))
    fold(put("n", "k2", "2"))
    assert read(fold, "n") == {"k2": "2"}


@pytest.mark.parametrize(("namespace", "key"), [("nowhere", "k"), ("n", "nothing")])
def test_deleting_nothing_is_unchanged(fold: Fold, namespace: str, key: str) -> None:
    fold(put("n", "k", "1"))
    assert fold(delete(namespace, key)).verdict == "unchanged"
    assert read(fold, "n") == {"k": "1"}
    assert read(fold, "nowhere") is None


def test_an_empty_text_is_a_value(fold: Fold) -> None:
    fold(put("n", "k", ""))
    assert read(fold, "n") == {"k": ""}


def test_the_table_does_not_grow_past_its_bound(fold: Fold) -> None:
    value = "v" * (1024 * 1024 - KV_ENTRY_BYTES - len("n") - len("00"))
    for number in range(MAX_KV_BYTES // (1024 * 1024)):
        assert fold(put("n", f"{number:02}", value)).verdict == "applied"
    assert table_bytes(fold.state.kv) == MAX_KV_BYTES
    before = fold.state.kv
    for event in (put("n", "k", ""), put("m", "00", "v"), put("n", "00", value + "v")):
        outcome = fold(event)
        assert (outcome.verdict, outcome.reason) == ("rejected", KV_TABLE_FULL)
        assert fold.state.kv == before
        assert fold.rows == []
    assert fold(put("n", "00", value[1:] + "w")).verdict == "applied", "as large as before"
    assert fold(put(NAMESRV_CONFIG, "k", "v")).verdict == "applied", "settings are no entries"
    assert fold(delete("n", "01")).verdict == "applied"
    assert fold(put("m", "k", "v" * 1000)).verdict == "applied"


@given(
    commands=st.lists(
        st.tuples(st.sampled_from("nm"), st.sampled_from("ab\N{SNOWMAN}"), st.sampled_from(["", "1", "22", None, "d"]))
    )
)
def test_what_the_table_counts_is_what_it_holds(commands: list[tuple[str, str, str | None]]) -> None:
    fold = Fold()
    for namespace, key, value in commands:
        fold(delete(namespace, key) if value == "d" else put(namespace, key, value))
        assert kv_bytes(fold.state.kv) == table_bytes(fold.state.kv)


def test_a_table_from_before_there_was_a_bound_may_shrink(fold: Fold) -> None:
    fold.state = replace(fold.state, kv={"n": {"a": "v" * MAX_KV_BYTES, "b": "v"}})
    assert fold(put("n", "c", "v")).reason == KV_TABLE_FULL
    assert fold(put("n", "a", "v" * (MAX_KV_BYTES - 1))).verdict == "applied"
    assert fold(delete("n", "a")).verdict == "applied"
    assert fold(put("n", "c", "v")).verdict == "applied"


def test_many_keys_cost_little_each(fold: Fold) -> None:
    """A put used to compare every entry with every entry."""
    fold.state = replace(fold.state, kv={"n": {f"{number}": "v" for number in range(50_000)}})
    began = time.process_time()
    for number in range(100):
        fold(put("n", f"{number}", "w"))
    assert time.process_time() - began < 5
