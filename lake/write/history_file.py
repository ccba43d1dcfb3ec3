# SPDX-License-Identifier: Apache-2.0
"""Rows of routeChangeTable as a data file that a shard writes, where they are many (docs/adr/0021).

Their column ``epoch`` is the one thing about them that a shard does not know by itself: the driver says it when it asks
for a batch's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from lake.delta.data_file import NO_TWO_ALIKE, DataFile, DataFileWriter
from lake.write.topic_columns import HISTORY_SCHEMA
from schemas.tables import ROUTE_CHANGE_TABLE

ROWS_WORTH_A_FILE: Final = 500
"""Fewer go to the driver, which writes what all shards have few of into one file."""

_EPOCH: Final = pa.field("epoch", pa.int64(), nullable=False)
_SCHEMA: Final = pa.schema([_EPOCH, *HISTORY_SCHEMA])
_PLAIN: Final = (NO_TWO_ALIKE[ROUTE_CHANGE_TABLE.name], "topic")


class WrittenHistory(msgspec.Struct, frozen=True, array_like=True):
    """A file of one shard's rows.

    Attributes:
        epoch: of its rows.
        file: where they are.
        digests: of them, for the chain (`lake.write.topic_digest`).
    """

    epoch: int
    file: DataFile
    digests: list[str]


class HistoryFile:
    """One shard's file of one micro-batch; it is there once a part has been added.

    Args:
        folder: where it goes.
        epoch: that the batch will be.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        self._folder = folder
        self._epoch = epoch
        self._writer: DataFileWriter | None = None
        self._digests: list[str] = []

    def wants(self, count: int) -> bool:
        """Return True if a part with this number of rows belongs into the file."""
        return self._writer is not None or count >= ROWS_WORTH_A_FILE

    def add(self, rows: pa.Table, digests: Sequence[str]) -> None:
        """Append a part in `HISTORY_SCHEMA`. Raises OSError."""
        if self._writer is None:
            self._writer = DataFileWriter(self._folder, _SCHEMA, _PLAIN)
        self._writer.write(with_epoch(rows, self._epoch))
        self._digests += digests

    def close(self) -> WrittenHistory | None:
        """The file; None if nothing was added. Raises OSError."""
        if self._writer is None:
            return None
        return WrittenHistory(self._epoch, self._writer.close(), self._digests)


def with_epoch(rows: pa.Table, epoch: int) -> pa.Table:
    """Rows of routeChangeTable with the one column that a shard's do not have."""
    return rows.add_column(0, _EPOCH, pa.repeat(pa.scalar(epoch, pa.int64()), len(rows)))
