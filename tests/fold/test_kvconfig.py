"""KV configuration: reference 2.1."""

from __future__ import annotations

import pytest

from tests.fold.events import Fold, delete, put


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
