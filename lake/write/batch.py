# SPDX-License-Identifier: Apache-2.0
"""The output of the shards for one micro-batch, from the shard to the table writer.

A shard writes its output in parts: a few small ones travel through Spark, the rest through a file. The driver merges
the parts of all shards into one `Batch`.

One command can change every topic of a broker. One second without heartbeats can change every topic of a cluster. So
the output of a micro-batch may be far larger than its input. A shard therefore hands on each part as soon as it is
complete, and the driver reads the parts one at a time when it writes the tables. Neither holds all of them, and nothing
large passes through the JVM. Worker and driver share a file system (``local[n]``, or the shared folder of a cluster).

A file belongs to one shard's part of one micro-batch. The driver removes it when the batch is written. The next start
removes files of a killed process (`pipelines.job`). The same is true for the data files that shards write into this
folder (`lake.write.shard_files`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from lake.delta.data_file import Partition
from lake.write.arrow import command_rows, from_ipc
from lake.write.hash_chain import EpochDigest
from lake.write.shard_files import WrittenHistory
from schemas.outcomes import APPLIED

INLINE_BYTES: Final = 256 * 1024
"""Maximum bytes of the parts of a shard that go through Spark, in total."""

SPOOLED: Final = "spooled"
"""Kind of the row that names a file."""

Read = Callable[[], bytes]
"""Reads the bytes of a part. It can be called repeatedly."""


class ShardProgress(msgspec.Struct):
    """Progress of a shard. With ``full``, it reported all its live rows, not only the touched ones."""

    shard: int
    offset: int
    event_time_ms: int
    watermark_ms: int
    full: bool


class _Spooled(msgspec.Struct, array_like=True):
    path: str
    parts: list[tuple[str, int]]
    """Kind and size in bytes of each part, in the order in the file."""


class ShardOutput:
    """Collects the parts of a shard.

    Args:
        folder: folder for files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inline: list[tuple[str, bytes]] = []
        self._inline_bytes = 0
        self._file: int | None = None
        self._spooled = _Spooled("", [])

    def add(self, kind: str, payload: bytes) -> None:
        """Add one part.

        Raises:
            OSError: the file cannot be written.
        """
        # After the first part in the file, all others go into the file, which keeps their order.
        if self._file is None and self._inline_bytes + len(payload) <= INLINE_BYTES:
            self._inline.append((kind, payload))
            self._inline_bytes += len(payload)
            return
        if self._file is None:
            self._file, self._spooled.path = tempfile.mkstemp(prefix="part-", dir=self._folder)
        view = memoryview(payload)
        while view:
            view = view[os.write(self._file, view) :]
        self._spooled.parts.append((kind, len(payload)))

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """Yield the rows that go through Spark, after all parts are added."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        yield from self._inline
        if self._spooled.parts:
            yield SPOOLED, msgspec.msgpack.encode(self._spooled)


def unpack(rows: Iterable[tuple[str, bytes]], opened: list[Path]) -> Iterator[tuple[str, Read]]:
    """The parts behind the rows of `ShardOutput.rows`, in order: kind and reader of each.

    Args:
        rows: rows of all shards.
        opened: receives the paths of files. The caller removes them after the last read.
    """
    for kind, payload in rows:
        if kind != SPOOLED:
            yield kind, partial(bytes, payload)
            continue
        spooled = msgspec.msgpack.decode(payload, type=_Spooled)
        path = Path(spooled.path)
        opened.append(path)
        at = 0
        for part_kind, size in spooled.parts:
            yield part_kind, partial(_read, path, at, size)
            at += size


def _read(path: Path, at: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(size)


@dataclass(slots=True)
class Batch:
    """The merged parts of all shards for one micro-batch.

    ``histories`` and ``partitions`` name the data files that shards have written. ``partitions`` are those of
    topicQueueTable, ``operations`` those of the other state tables. ``changes`` has the rows of routeChangeTable that
    are in no file.
    """

    histories: list[WrittenHistory] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    operations: dict[str, list[pa.Table]] = field(default_factory=dict)
    live: list[pa.Table] = field(default_factory=list)
    changes: list[Read] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    quarantine: list[pa.Table] = field(default_factory=list)
    progress: list[ShardProgress] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    @classmethod
    def merge(cls, rows: Iterable[tuple[str, bytes]]) -> Batch:
        """Merge the (kind, payload) rows of all shards. The caller closes the batch.

        A command that went to every shard has one outcome: applied, if any shard applied it. An unreadable record that
        went to every shard is in quarantine once.
        """
        batch = cls()
        by_offset: dict[int, dict[str, Any]] = {}
        quarantined: set[int] = set()
        for kind, read in unpack(rows, batch.files):
            batch._take(kind, read, by_offset, quarantined)
        batch.outcomes = [by_offset[offset] for offset in sorted(by_offset)]
        if len(batch.quarantine) > 1:
            batch.quarantine = [pa.concat_tables(batch.quarantine).sort_by("offset")]
        return batch

    def _take(self, kind: str, read: Read, by_offset: dict[int, dict[str, Any]], quarantined: set[int]) -> None:
        if kind == "changes":
            self.changes.append(read)
        elif kind == "history":
            self.histories.append(msgspec.json.decode(read(), type=WrittenHistory))
            self.files.append(Path(self.histories[-1].file.path))
        elif kind == "partitions":
            partitions = msgspec.json.decode(read(), type=list[Partition])
            self.partitions += partitions
            self.files += (Path(file.path) for partition in partitions for file in partition.files)
        elif kind.startswith("ops:"):
            self.operations.setdefault(kind.removeprefix("ops:"), []).append(from_ipc(read()))
        elif kind == "live":
            self.live.append(from_ipc(read()))
        elif kind == "quarantine":
            table = from_ipc(read())
            new = [offset not in quarantined for offset in table["offset"].to_pylist()]
            quarantined.update(table["offset"].to_pylist())
            if any(new):
                self.quarantine.append(table.filter(pa.array(new)))
        elif kind == "outcomes":
            for entry in msgspec.json.decode(read()):
                known = by_offset.setdefault(entry["offset"], entry)
                if known is not entry and entry["outcome"] == APPLIED:
                    known["outcome"] = APPLIED
        else:
            self.progress.append(msgspec.json.decode(read(), type=ShardProgress))

    def close(self) -> None:
        """Remove the files of the shards, after everything is written."""
        for path in self.files:
            with suppress(OSError):
                path.unlink()
        self.files.clear()

    @property
    def is_empty(self) -> bool:
        """Return True if there are only unchanged heartbeats, so that no epoch is due."""
        return not (self.has_history or self.partitions or self.operations or self.quarantine)

    @property
    def has_history(self) -> bool:
        """Return True if there are rows for routeChangeTable, in files or from `history`."""
        return bool(self.histories or self.changes or self.outcomes)

    def history(self, digest: EpochDigest | None = None) -> Iterator[pa.Table]:
        """Yield rows of routeChangeTable without ``epoch``, part by part.

        Args:
            digest: collects the digests of these rows and of those in files, for the hash chain. Shards have computed
                the latter.
        """
        digest = digest or EpochDigest()
        for written in self.histories:
            digest.add_digests(written.digests)
        for read in self.changes:
            yield digest.add_changes(from_ipc(read()))
        if self.outcomes:
            yield digest.add_changes(command_rows(self.outcomes))
