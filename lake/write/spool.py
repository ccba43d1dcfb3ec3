# SPDX-License-Identifier: Apache-2.0
"""Output of a shard, in parts: a few small ones travel through Spark, the rest through a file.

One command can change every topic of a broker. One second without heartbeats can change every topic of a cluster. So
the output of a micro-batch may be far larger than its input. A shard therefore hands on each part as soon as it is
complete, and the driver reads the parts one at a time when it writes the tables. Neither holds all of them, and nothing
large passes through the JVM. Worker and driver share a file system (``local[n]``, or the shared folder of a cluster).

A file belongs to one shard's part of one micro-batch. The driver removes it when the batch is written. The next start
removes files of a killed process (`pipelines.job`). The same is true for the data files that shards write into this
folder (`lake.write.topic_files`, `lake.write.history_file`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

INLINE_BYTES: Final = 256 * 1024
"""Parts of a shard that go through Spark, all together."""

SPOOLED: Final = "spooled"
"""Kind of the row that names a file."""

Read = Callable[[], bytes]
"""Gives a part's bytes, each time it is asked."""


class _Spooled(msgspec.Struct, array_like=True):
    path: str
    parts: list[tuple[str, int]]
    """Kind and size of each, in the order in which they stand in the file."""


class ShardOutput:
    """Collects a shard's parts.

    Args:
        folder: where files go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inline: list[tuple[str, bytes]] = []
        self._inline_bytes = 0
        self._file: int | None = None
        self._spooled = _Spooled("", [])

    def add(self, kind: str, payload: bytes) -> None:
        """Take one part.

        Raises:
            OSError: the file cannot be written.
        """
        # In order: behind a part that went into the file, every other does.
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
        """Yield the rows that go through Spark, once everything is in."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        yield from self._inline
        if self._spooled.parts:
            yield SPOOLED, msgspec.msgpack.encode(self._spooled)


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A part as the driver gets it."""

    kind: str
    read: Read


def unpack(rows: Iterable[tuple[str, bytes]], opened: list[Path]) -> Iterator[OutputPart]:
    """The parts that `ShardOutput.rows` told of, in order.

    Args:
        rows: of all shards.
        opened: files are noted here; to be removed when no part is read any more.
    """
    for kind, payload in rows:
        if kind != SPOOLED:
            yield OutputPart(kind, lambda payload=payload: payload)  # type: ignore[misc]
            continue
        spooled = msgspec.msgpack.decode(payload, type=_Spooled)
        path = Path(spooled.path)
        opened.append(path)
        at = 0
        for part_kind, size in spooled.parts:
            yield OutputPart(part_kind, _reader(path, at, size))
            at += size


def remove(files: list[Path]) -> None:
    """Let go of files whose parts have been read."""
    for path in files:
        with suppress(OSError):
            path.unlink()
    files.clear()


def _reader(path: Path, at: int, size: int) -> Read:
    def read() -> bytes:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(size)

    return read
