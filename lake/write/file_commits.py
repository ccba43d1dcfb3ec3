# SPDX-License-Identifier: Apache-2.0
"""Commits of data files that others have written (`lake.delta.data_file`).

Files that are only added are committed by delta-rs. A partition whose rows are replaced also takes a file of its change
data feed, of which delta-rs's API knows nothing, so that entry of the log is written here: with the actions that
delta-rs's own MERGE writes (docs/adr/0021). Either is a commit in the staging folder like any other, and exists for
readers when `StagedTable.publish` has linked it into the table.

Source: the Delta transaction protocol, "Actions": Commit Provenance Information, Transaction Identifiers, Add File and
Remove File, Add CDC File.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, PostCommitHookProperties, Transaction
from deltalake.transaction import AddAction

from lake.delta.data_file import CHANGE_TYPE, INSERTED, NO_TWO_ALIKE, DataFile, Partition, write_data_file
from lake.delta.log import commit_info, encode_entry
from lake.write.staging import StagedTable
from schemas.tables import Table

NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints and clean-up are maintenance's, between batches."""

FEED_FOLDER: Final = "_change_data"


def append_files(
    staged: StagedTable, files: Iterable[tuple[dict[str, str], DataFile]], transaction: Transaction
) -> None:
    """Commit files that are only added.

    Args:
        staged: their table.
        files: each with the values of its partition; none where the table has no partitions.
        transaction: the application's.

    Raises:
        DeltaError, OSError: storage failed.
    """
    actions: list[Any] = []
    partition_by: list[str] = []
    for values, file in files:
        partition_by = list(values)
        name = staged.take(file.path, file.place(values))  # delta-rs encodes it
        actions.append(AddAction(name, file.size_bytes, values, file.modified_ms, True, file.stats))
    staged.delta.create_write_transaction(
        actions,
        "append",
        staged.delta.schema(),
        partition_by,
        commit_properties=CommitProperties(app_transactions=[transaction]),
        post_commithook_properties=NO_HOOKS,
    )
    staged.delta.update_incremental()
    staged.publish()


def change_partitions(
    staged: StagedTable, table: Table, partitions: Sequence[Partition], transaction: Transaction
) -> None:
    """Commit what becomes of some partitions, each of which is named once.

    Raises:
        ValueError: one is named twice, or without a change; nothing was committed.
        DeltaError, OSError: storage failed.
    """
    named = [tuple(partition.values.values()) for partition in partitions]
    if len(set(named)) < len(named):
        raise ValueError(f"a batch names a partition of {table.name} twice: its rows would be, too")
    for partition in partitions:
        if partition.added is None and partition.feed is None:
            raise ValueError(f"a batch names the partition {partition.values} of {table.name}, and no change of it")
    if all(partition.feed is None for partition in partitions):
        append_files(staged, [(one.values, one.added) for one in partitions if one.added is not None], transaction)
        return
    actions = list(_removed(staged, table, partitions))
    for partition in partitions:
        if partition.added is not None:
            actions.append(_add(staged, partition.values, partition.added))
        actions.append(_feed(staged, table, partition))
    info = commit_info("MERGE", {})
    # The transaction comes last, as in delta-rs's entries: one that has lost its end shows it
    # (`lake.delta.log`).
    end = {
        "txn": {"appId": transaction.app_id, "version": transaction.version, "lastUpdated": time.time_ns() // 1_000_000}
    }
    staged.commit(encode_entry([info, *actions, end]))
    staged.publish()


def _removed(staged: StagedTable, table: Table, partitions: Sequence[Partition]) -> Iterator[dict[str, Any]]:
    """The files of the partitions that are replaced."""
    (column,) = table.partition_by
    names = pa.array([partition.values[column] for partition in partitions if partition.feed is not None])
    active = pa.table(staged.delta.get_add_actions())
    of = pc.struct_field(active["partition"], column)
    found = active.select(["path", "size_bytes", "partition"]).filter(pc.is_in(of, names))
    now_ms = time.time_ns() // 1_000_000
    for file in found.to_pylist():
        yield {
            "remove": {
                "path": file["path"],
                "deletionTimestamp": now_ms,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": file["partition"],
                "size": file["size_bytes"],
            }
        }


def _add(staged: StagedTable, values: dict[str, str], file: DataFile) -> dict[str, Any]:
    return {
        "add": {
            "path": _path(staged.take(file.path, file.place(values))),
            "partitionValues": values,
            "size": file.size_bytes,
            "modificationTime": file.modified_ms,
            "dataChange": True,
            "stats": file.stats,
        }
    }


def _feed(staged: StagedTable, table: Table, partition: Partition) -> dict[str, Any]:
    """A commit with a change data feed has all of its changes there, also rows that were only added."""
    file = partition.feed
    if file is None:
        assert partition.added is not None
        with pq.ParquetFile(staged.staging / partition.added.place(partition.values)) as added:
            rows = added.read(use_threads=False)
        rows = rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(INSERTED), len(rows)))
        folder = (staged.staging / FEED_FOLDER / partition.added.place(partition.values)).parent
        folder.mkdir(parents=True, exist_ok=True)
        file = write_data_file(folder, rows, [NO_TWO_ALIKE[table.name]])
    path = _path(staged.take(file.path, f"{FEED_FOLDER}/{file.place(partition.values)}"))
    return {"cdc": {"path": path, "size": file.size_bytes, "partitionValues": partition.values, "dataChange": False}}


def _path(name: str) -> str:
    """As the log has it."""
    return quote(name, safe="/=")


__all__ = ["NO_HOOKS", "append_files", "change_partitions"]
