# SPDX-License-Identifier: Apache-2.0
"""Checks whether the fold can continue with a checkpoint of its query, and removal of the checkpoint. Without Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from deltalake import DeltaTable

from lake.delta.ddl import write_whole
from schemas.errors import one_line
from schemas.route_commit import RouteCommit

CHECKPOINT_FORMAT: Final = 6
"""Format of the state and of the offsets. A checkpoint of an older format is deleted, and the fold reads its state from
the tables."""
EPOCH_FILE: Final = "epoch"
"""File in the checkpoint's folder with the last written epoch and the last batch."""
MARKER_FILE: Final = "routelake.json"
_VERSION_LINE: Final = b"v1"


class Verdict(NamedTuple):
    """Decision whether the fold continues with a checkpoint.

    Attributes:
        goes_on: True if the checkpoint is intact, has a finished batch and belongs to the epochs in the lake.
        why: reason if it does not, as text.
    """

    goes_on: bool
    why: str = ""


class Marker(msgspec.Struct, frozen=True):
    """Contents of `MARKER_FILE`.

    Attributes:
        format: `CHECKPOINT_FORMAT` of the writer.
        shards: number of shards of the state.
        cluster: True if executors ran on other machines. State files have other names then
            (`pipelines.cluster.master`).
    """

    format: int
    shards: int
    cluster: bool = False


class _Metadata(msgspec.Struct):
    id: str


def read_marker(checkpoint_dir: Path) -> Marker:
    """Read the marker of a checkpoint. Raises OSError, ValueError."""
    return msgspec.json.decode((checkpoint_dir / MARKER_FILE).read_bytes(), type=Marker)


def write_seen(checkpoint_dir: Path, epoch: int, batch_id: int) -> None:
    """Note the last epoch and its batch, before Spark notes that the batch is done."""
    write_whole(checkpoint_dir / EPOCH_FILE, f"{epoch} {batch_id}")


def check_compatible(checkpoint_dir: Path, last: RouteCommit | None, tables: Iterable[DeltaTable]) -> Verdict:
    """Compare a checkpoint with the tables, and check that all but its state can be read.

    No file of a checkpoint is synced. So after a power loss, any file may be truncated, or an older one missing. Its
    disk may also have been restored from a snapshot. The state is large and is not read here, as Spark checks the state
    when it loads it.

    Args:
        checkpoint_dir: Folder of the checkpoint.
        last: Last epoch of the lake.
        tables: The tables. If they have a batch that the checkpoint has not begun, Spark would plan that batch again
            with other events, and the writer would skip it.
    """
    try:
        query_id = msgspec.json.decode((checkpoint_dir / "metadata").read_bytes(), type=_Metadata).id
        read_marker(checkpoint_dir)
        finished = _read_batches(checkpoint_dir / "commits")
        begun = _read_batches(checkpoint_dir / "offsets")
        if not (checkpoint_dir / "state").is_dir():
            raise FileNotFoundError(f"{checkpoint_dir / 'state'} is missing")
        if finished is None or begun is None:
            return Verdict(False, "it has no finished batch")
        if finished > begun:
            raise ValueError(f"batch {finished} is done, and {begun} is the last that was begun")
        epoch, batch_id = map(int, (checkpoint_dir / EPOCH_FILE).read_text(encoding="ascii").split())
    except (OSError, ValueError) as error:
        return Verdict(False, f"it is not whole: {one_line(error)}")
    written = max((table.transaction_version(query_id) or 0 for table in tables), default=0)
    if max(written, batch_id) > begun:
        return Verdict(
            False, f"it has begun no batch after {begun}, and the tables have batch {max(written, batch_id)}"
        )
    if batch_id < finished:
        return Verdict(False, f"it has finished batch {finished}, and noted none after {batch_id}")
    if last is not None and last.epoch < epoch:
        return Verdict(False, f"it has seen epoch {epoch}, and the tables end at epoch {last.epoch}")
    if last is None or last.query_id != query_id:
        return Verdict(False, "it is of another query than the one that wrote the last epoch")
    return Verdict(True)


def _read_batches(folder: Path) -> int | None:
    """Read each file of Spark's log of offsets or commits. A file is a line with a version, then lines of JSON.

    Returns:
        Number of the last batch, or None without a batch.

    Raises:
        OSError, ValueError: a file is truncated or cannot be read.
    """
    numbers = [int(entry.name) for entry in os.scandir(folder) if entry.name.isdigit()]
    for number in numbers:
        path = folder / str(number)
        try:
            version, *lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            continue  # an old file that a running fold has deleted
        if version != _VERSION_LINE or not any(lines):
            raise ValueError(f"{path} is torn")
        for line in filter(None, lines):
            try:
                if line != b"-":
                    msgspec.json.decode(line)
            except msgspec.MsgspecError as error:
                raise ValueError(f"{path} is torn: {error}") from error
    return max(numbers, default=None)


def remove(checkpoint_dir: Path) -> None:
    """Remove a checkpoint. The fold then reads its state from the tables.

    The marker goes first, so that a rest after a kill is not taken for a checkpoint.

    Raises:
        OSError: storage failed. The checkpoint may still be valid.
    """
    (checkpoint_dir / MARKER_FILE).unlink(missing_ok=True)
    shutil.rmtree(checkpoint_dir, ignore_errors=True)
