# SPDX-License-Identifier: Apache-2.0
"""Objects of a lake in an object store, over HTTP; and which stores are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.support.s3 import FakeS3, fake_s3
from lake.store import Store, StoreError, TakenError, open_store, probe
from schemas.errors import SetupError, UnavailableError


@pytest.fixture(scope="module")
def s3() -> Iterator[FakeS3]:
    with pytest.MonkeyPatch.context() as patch, fake_s3(patch) as server:
        yield server


@pytest.fixture
def store(s3: FakeS3, request: pytest.FixtureRequest) -> Store:
    return open_store(f"s3://lake/{request.node.name}/deep/")


def test_objects_of_any_name_come_back(store: Store, tmp_path: Path) -> None:
    for path in ("plain", "brokerName=a%20b/part ü.parquet", "x=%2F#?&+/y"):
        store.put(path, path.encode())
        assert store.get(path) == path.encode()
        store.fetch(path, tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == path.encode()
    (tmp_path / "large").write_bytes(b"x" * 3_000_000)
    store.put("large", tmp_path / "large")
    assert len(store.get("large")) == 3_000_000
    assert store.find("nothing") is None
    with pytest.raises(FileNotFoundError):
        store.get("nothing")
    with pytest.raises(FileNotFoundError):
        store.fetch("nothing", tmp_path / "nothing")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "large"]


def test_lists_are_in_order_and_begin_where_they_are_told(store: Store) -> None:
    store.side_by_side(lambda number: store.put(f"log/{number:04d}", b"x" * (number % 7)), range(120))
    store.put("other/1", b"")
    found = list(store.listed("log"))
    assert [one.path for one in found] == [f"log/{number:04d}" for number in range(120)]
    assert found[6].size_bytes == 6
    assert [one.path for one in store.listed("log", "log/0117")] == ["log/0118", "log/0119"]
    store.delete([one.path for one in found])
    assert [one.path for one in store.listed("")] == ["other/1"]


def test_a_new_object_is_put_once(store: Store) -> None:
    store.put_new("one", b"1")
    store.put_new("one", b"1")  # again, after an answer that was lost
    with pytest.raises(TakenError, match="one"):
        store.put_new("one", b"2")
    assert store.get("one") == b"1"


def test_only_what_was_read_is_replaced(store: Store) -> None:
    first = store.put_new("one", b"1")
    second = store.replace("one", b"2", first)
    assert store.replace("one", b"2", first) == second  # the answer was lost
    with pytest.raises(TakenError):
        store.replace("one", b"3", first)
    with pytest.raises(TakenError):
        store.replace("none", b"3", first)
    assert store.find("one") == (b"2", second)


def test_work_side_by_side_ends_before_an_error_is_raised(store: Store) -> None:
    done: list[int] = []

    def work(number: int) -> int:
        if number == 0:
            raise StoreError("no")
        done.append(number)
        return number * 2

    with pytest.raises(StoreError, match="no"):
        store.side_by_side(work, range(40))
    assert sorted(done) == list(range(1, 40))
    assert store.side_by_side(work, range(1, 4)) == [2, 4, 6]


def test_a_good_store_passes_and_nothing_is_left_there(store: Store) -> None:
    probe(store)
    assert list(store.listed("")) == []


def test_a_store_that_looks_at_no_condition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_s3(monkeypatch, conditional=False), pytest.raises(SetupError, match="conditional PUT"):
        probe(open_store("s3://bad/prefix"))


def test_a_store_that_is_not_there_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("lake.store._TRIES", 0)
    with pytest.raises(UnavailableError, match="s3://lake/x cannot be written") as refused:
        probe(open_store("s3://lake/x"))
    assert "\n" not in str(refused.value)


def test_plain_http_has_to_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    with pytest.raises(SetupError, match="AWS_ALLOW_HTTP=true"):
        open_store("s3://lake/x")


@pytest.mark.parametrize("url", ["s3://", "ftp://host/x", "s3:///", "http://bucket"])
def test_what_is_no_url_of_a_store_is_refused(url: str) -> None:
    with pytest.raises(SetupError, match=r"s3://, gs://, az://"):
        open_store(url)


def test_google_and_azure_by_the_same_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="Account must be specified"):
        open_store("az://container/prefix")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert open_store("az://container/prefix").url == "az://container/prefix"
    assert open_store("gs://bucket/prefix/").url == "gs://bucket/prefix"
