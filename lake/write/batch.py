# SPDX-License-Identifier: Apache-2.0
"""Merge the shards' parts of one micro-batch into one epoch: the driver's input to the table writer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from lake.delta.data_file import Partition
from lake.write.arrow import command_rows, from_ipc
from lake.write.hash_chain import EpochDigest
from lake.write.history_file import WrittenHistory
from lake.write.rows import ShardProgress
from lake.write.spool import OutputPart, Read, remove, unpack
from lake.write.topic_rows import read_part
from schemas.outcomes import APPLIED


@dataclass(slots=True)
class Batch:
    """The shards' parts of one micro-batch, put together.

    What shards have written into data files is in ``histories`` and ``partitions`` alone. ``partitions`` are
    of topicQueueTable, ``operations`` of the other state tables. Rows of routeChangeTable that are in no file are in
    ``topics`` and ``changes``.
    """

    histories: list[WrittenHistory] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    topics: list[Read] = field(default_factory=list)
    operations: dict[str, list[pa.Table]] = field(default_factory=dict)
    live: list[pa.Table] = field(default_factory=list)
    changes: list[Read] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    quarantine: list[pa.Table] = field(default_factory=list)
    progress: list[ShardProgress] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    @classmethod
    def merge(cls, rows: Iterable[tuple[str, bytes]]) -> Batch:
        """Put emitted (kind, payload) rows of all shards together. To be closed.

        A command that went to every shard has one outcome: applied if any shard applied it. A record that went to every
        shard and could not be read is in quarantine once.
        """
        batch = cls()
        by_offset: dict[int, dict[str, Any]] = {}
        quarantined: set[int] = set()
        for part in unpack(rows, batch.files):
            batch._take(part, by_offset, quarantined)
        batch.outcomes = [by_offset[offset] for offset in sorted(by_offset)]
        if len(batch.quarantine) > 1:
            batch.quarantine = [pa.concat_tables(batch.quarantine).sort_by("offset")]
        return batch

    def _take(self, part: OutputPart, by_offset: dict[int, dict[str, Any]], quarantined: set[int]) -> None:
        if part.kind == "topics":
            self.topics.append(part.read)
        elif part.kind == "changes":
            self.changes.append(part.read)
        elif part.kind == "history":
            self.histories.append(msgspec.json.decode(part.read(), type=WrittenHistory))
            self.files.append(Path(self.histories[-1].file.path))
        elif part.kind == "partitions":
            partitions = msgspec.json.decode(part.read(), type=list[Partition])
            self.partitions += partitions
            self.files += (Path(file.path) for partition in partitions for file in partition.files)
        elif part.kind.startswith("ops:"):
            self.operations.setdefault(part.kind.removeprefix("ops:"), []).append(from_ipc(part.read()))
        elif part.kind == "live":
            self.live.append(from_ipc(part.read()))
        elif part.kind == "quarantine":
            table = from_ipc(part.read())
            new = [offset not in quarantined for offset in table["offset"].to_pylist()]
            quarantined.update(table["offset"].to_pylist())
            if any(new):
                self.quarantine.append(table.filter(pa.array(new)))
        elif part.kind == "outcomes":
            for entry in msgspec.json.decode(part.read()):
                known = by_offset.setdefault(entry["offset"], entry)
                if known is not entry and entry["outcome"] == APPLIED:
                    known["outcome"] = APPLIED
        else:
            self.progress.append(msgspec.json.decode(part.read(), type=ShardProgress))

    def close(self) -> None:
        """Remove the shards' files, once everything is written."""
        remove(self.files)

    @property
    def is_empty(self) -> bool:
        """Nothing but unchanged heartbeats, so that no epoch is due."""
        return not (self.has_history or self.partitions or self.operations or self.quarantine)

    @property
    def has_history(self) -> bool:
        """Return True if there are rows for routeChangeTable, in files or from `history`."""
        return bool(self.histories or self.topics or self.changes or self.outcomes)

    def history(self, digest: EpochDigest | None = None) -> Iterator[pa.Table]:
        """Rows of routeChangeTable without ``epoch``, part by part, each made when it is asked for.

        Args:
            digest: is given what they and those in files add to the chain; for topics the shards have made it.
        """
        digest = digest or EpochDigest()
        for written in self.histories:
            digest.add_digests(written.digests)
        for read in self.topics:
            rows, digests = read_part(read())
            digest.add_digests(digests)
            yield rows
        for read in self.changes:
            yield digest.add_changes(from_ipc(read()))
        if self.outcomes:
            yield digest.add_changes(command_rows(self.outcomes))
