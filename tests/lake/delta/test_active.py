# SPDX-License-Identifier: Apache-2.0
"""The files of a table, told from its log, are those that deltalake tells."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from lake.commits import epochs_in
from lake.delta import log as module
from lake.delta.log import active, files_of

ODD = ("a", "o'dd %2F/=ü", "b c")


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve versions: appends, an update, a compaction, a deletion; checkpoints at 4 and 9."""
    path = tmp_path_factory.mktemp("active") / "t"
    schema = pa.schema([("p", pa.string()), ("epoch", pa.int64())])
    DeltaTable.create(str(path), schema, partition_by=["p"])
    for version in range(1, 13):
        if version in (3, 11):
            DeltaTable(str(path)).update(updates={"epoch": "epoch + 100"}, predicate=f"epoch = {version - 1}")
        elif version == 6:
            DeltaTable(str(path)).optimize.compact()
        elif version == 8:
            DeltaTable(str(path)).delete("p = 'b c'")
        else:
            rows = {"p": [ODD[version % 3]] * 2, "epoch": [version, version + 1]}
            write_deltalake(str(path), pa.table(rows, schema=schema), mode="append")
        if version in (4, 9):
            DeltaTable(str(path)).create_checkpoint()
    assert DeltaTable(str(path)).version() == 12
    return path


def told(found: module.Active) -> tuple[int, list[Any]]:
    return found.version, sorted((file.path, file.partition_values, epochs_in(file)) for file in found.files)


def by_deltalake(path: Path, version: int | None = None) -> tuple[int, list[Any]]:
    table = DeltaTable(str(path), version=version)
    return told(module.Active(table.version(), files_of(table)))


@pytest.fixture
def without_deltalake(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("deltalake was asked")

    monkeypatch.setattr(module, "DeltaTable", refuse)


@pytest.mark.usefixtures("without_deltalake")
@pytest.mark.parametrize("version", [None, 9, 10, 11, 12])
def test_a_log_is_read_from_its_last_checkpoint_without_deltalake(grown: Path, version: int | None) -> None:
    assert told(active(str(grown), version)) == by_deltalake(grown, version)


@pytest.mark.usefixtures("without_deltalake")
@pytest.mark.parametrize("version", [None, *range(13)])
def test_a_log_without_a_checkpoint_is_read_without_deltalake(grown: Path, tmp_path: Path, version: int | None) -> None:
    path = shutil.copytree(grown, tmp_path / "t")
    for file in [*(path / "_delta_log").glob("*.parquet"), path / "_delta_log" / "_last_checkpoint"]:
        file.unlink()
    assert told(active(str(path), version)) == by_deltalake(path, version)


@pytest.mark.parametrize("version", range(9))
def test_an_older_version(grown: Path, version: int) -> None:
    assert told(active(str(grown), version)) == by_deltalake(grown, version)


@pytest.mark.parametrize(
    "pointer",
    [b"", b"{", b"[]", b"{}", b'{"version":3,"size":5}', b'{"version":9,"size":5,"parts":2}'],
)
def test_a_pointer_that_leads_nowhere(grown: Path, tmp_path: Path, pointer: bytes) -> None:
    path = shutil.copytree(grown, tmp_path / "t")
    expected = by_deltalake(path)
    (path / "_delta_log" / "_last_checkpoint").write_bytes(pointer)
    assert told(active(str(path))) == expected


def test_a_commit_that_is_not_there(grown: Path) -> None:
    with pytest.raises(Exception, match=r"99|version"):
        active(str(grown), 99)


def test_no_table(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(TableNotFoundError):
            active(str(path))
