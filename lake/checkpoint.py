# SPDX-License-Identifier: Apache-2.0
"""Marker of a checkpoint of the fold's query: check whether the fold can continue, and remove it. Without Spark."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from lake.delta.ddl import write_whole
from schemas.errors import one_line
from schemas.route_commit import RouteCommit

CHECKPOINT_FORMAT: Final = 6
"""Of the state, and of the offsets in the log. One written by an older routelake is deleted: the state comes back from
the tables."""
EPOCH_FILE: Final = "epoch"
"""In the checkpoint's folder: the last epoch that it has seen written, and the last batch."""
MARKER_FILE: Final = "routelake.json"
_VERSION_LINE: Final = b"v1"


class Verdict(NamedTuple):
    """Decision whether the fold continues with a checkpoint.

    Attributes:
        goes_on: it is whole, has a finished batch and belongs to the epochs in the lake.
        why: in words, where it does not.
    """

    goes_on: bool
    why: str = ""


class Marker(msgspec.Struct, frozen=True):
    """Contents of `MARKER_FILE`.

    Attributes:
        format: `CHECKPOINT_FORMAT` of who wrote it.
        shards: how many the state has.
        cluster: whether executors were elsewhere: state files have other names there (`pipelines.cluster.master`).
    """

    format: int
    shards: int
    cluster: bool = False


class _Metadata(msgspec.Struct):
    id: str


def read_marker(checkpoint_dir: Path) -> Marker:
    """Raises OSError, ValueError."""
    return msgspec.json.decode((checkpoint_dir / MARKER_FILE).read_bytes(), type=Marker)


def write_seen(checkpoint_dir: Path, epoch: int, batch_id: int) -> None:
    """Note the last epoch, and the batch after which it was that: before Spark writes that the batch is done."""
    write_whole(checkpoint_dir / EPOCH_FILE, f"{epoch} {batch_id}")


def check_compatible(checkpoint_dir: Path, last: RouteCommit | None) -> Verdict:
    """Compare a checkpoint with the last epoch of the lake, and check that all but its state can be read.

    None of it was synced, so that after a power cut any file of it may be torn, or be there without an older one. State
    is large, and Spark checks it when it loads it.
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
    if batch_id < finished:
        return Verdict(False, f"it has finished batch {finished}, and noted none after {batch_id}")
    if last is not None and last.epoch < epoch:
        return Verdict(False, f"it has seen epoch {epoch}, and the tables end at epoch {last.epoch}")
    if last is None or last.query_id != query_id:
        return Verdict(False, "it is of another query than the one that wrote the last epoch")
    return Verdict(True)


def _read_batches(folder: Path) -> int | None:
    """Read each file of Spark's log of offsets, or of commits: a line with a version, and JSON lines.

    Returns:
        The last batch; None for none.

    Raises:
        OSError, ValueError: one is torn.
    """
    numbers = [int(entry.name) for entry in os.scandir(folder) if entry.name.isdigit()]
    for number in numbers:
        path = folder / str(number)
        try:
            version, *lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            continue  # an old one, which a running fold has deleted
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
    """Remove a checkpoint: the state comes back from the tables. What a kill leaves of it is none any more.

    Raises:
        OSError: storage failed; it would still be gone on with.
    """
    (checkpoint_dir / MARKER_FILE).unlink(missing_ok=True)
    shutil.rmtree(checkpoint_dir, ignore_errors=True)
