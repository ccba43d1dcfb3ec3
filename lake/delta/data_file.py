# SPDX-License-Identifier: Apache-2.0
"""Writer of data files in the process that has the rows. Another process commits them (`lake.write.staging`).

The files equal those of delta-rs in columns, compression and statistics, without Arrow-specific types (docs/adr/0009).
Spark workers use this module, so it does not import deltalake.

**Arrow-specific types.** delta-rs writes the in-memory types of the columns into the footer of each file, under the key
``ARROW:schema``. Arrow readers use these types. A MERGE holds text as ``string_view``, on purpose and without an option
in its Python API (delta-rs pull request 4302). Arrow cannot compare ``string_view`` with ``string``. So ``where topic =
'a'`` fails on such a table in DuckDB, pandas and pyarrow. Without the entry, every reader finds plain strings. So
`drop_arrow_types` renames the entry in every file, also in files of other programs. One byte is changed in place. The
file keeps its length, which the Delta log names, and a concurrent reader finds one key or the other.

Source: the Delta transaction protocol, "Per-file Statistics" and "Change Data Files". Parquet's ``FileMetaData`` (its
``key_value_metadata`` comes after all statistics). Arrow's documentation of Parquet on ``ARROW:schema``.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.intervals import TOPIC_QUEUE_HISTORY
from schemas.tables import ROUTE_CHANGE_TABLE, TOPIC_QUEUE_TABLE

COMPRESSION: Final = "ZSTD"
COMPRESSION_LEVEL: Final = 1
"""Level of zstd. Snappy takes the same time and makes files three times as large."""

STATISTICS_LENGTH: Final = 256
"""Maximum characters of a text in statistics. A longer text is truncated to a bound that still holds. The smallest and
greatest text of each column goes into the Delta log, and so into the memory of the writer and of every reader."""

NO_TWO_ALIKE: Final = {
    TOPIC_QUEUE_TABLE.name: "topic",
    TOPIC_QUEUE_HISTORY.table.name: "topic",
    ROUTE_CHANGE_TABLE.name: "key",
}
"""Table name to the column for which dictionary encoding only costs time."""

CHANGE_TYPE: Final = "_change_type"
INSERTED: Final = "insert"
DELETED: Final = "delete"
BEFORE: Final = "update_preimage"
AFTER: Final = "update_postimage"

_ARROW_TYPES: Final = b"ARROW:schema"
_COLON: Final = _ARROW_TYPES.index(b":")
_TAIL_BYTES: Final = 8
"""Size of the end of a Parquet file: the length of the footer in four bytes, and ``PAR1``."""

_GREATEST: Final = "\U0010ffff"
_json = msgspec.json.Encoder()


class DataFile(msgspec.Struct, frozen=True, array_like=True):
    """A data file that is not committed to a table yet.

    Attributes:
        path: path of the file.
        size_bytes: size of the file.
        rows: number of rows.
        stats: JSON with numRecords, minValues, maxValues, nullCount.
        modified_ms: modification time, ms since 1970.
    """

    path: str
    size_bytes: int
    rows: int
    stats: str
    modified_ms: int

    def place(self, values: Mapping[str, str]) -> str:
        """Return the path of the file relative to its table, in the form of delta-rs.

        Args:
            values: partition values, by column.
        """
        folders = (f"{name}={quote(value, safe='')}" for name, value in values.items())
        return "/".join((*folders, Path(self.path).name))


class Partition(msgspec.Struct, frozen=True, array_like=True):
    """Changes of one partition in one commit.

    Attributes:
        values: partition values, by column.
        added: file of the new rows. With ``feed`` it has all rows of the partition, or None if no row is left.
        feed: file of exactly the changed rows, for the change data feed. None if ``added`` has exactly these.
    """

    values: dict[str, str]
    added: DataFile | None
    feed: DataFile | None

    @property
    def files(self) -> list[DataFile]:
        """Files of this change."""
        return [file for file in (self.added, self.feed) if file is not None]


class DataFileWriter:
    """Writes one file, part by part.

    Args:
        folder: folder of the file.
        schema: schema of the rows. Dictionary columns are written as their values.
        plain: columns without dictionary encoding in the file.

    Raises:
        OSError: the file cannot be written and was removed. The methods raise the same error.
    """

    def __init__(self, folder: Path, schema: pa.Schema, plain: Collection[str] = ()) -> None:
        self.path = folder / f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
        self._metadata: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self.path,
            schema,
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=[name for name in schema.names if name not in plain],
            store_schema=False,
            metadata_collector=self._metadata,
        )

    def write(self, rows: pa.Table) -> None:
        """Append rows."""
        try:
            self._writer.write_table(rows)
        except OSError:
            self.discard()
            raise

    def close(self) -> DataFile:
        """Finish the file."""
        try:
            self._writer.close()
        except OSError:
            self.path.unlink(missing_ok=True)
            raise
        (metadata,) = self._metadata
        return DataFile(
            str(self.path),
            self.path.stat().st_size,
            metadata.num_rows,
            statistics(metadata),
            time.time_ns() // 1_000_000,
        )

    def discard(self) -> None:
        """Remove the unfinished file."""
        with suppress(OSError):
            self._writer.close()
        self.path.unlink(missing_ok=True)


def write_data_file(folder: Path, rows: pa.Table, plain: Collection[str] = ()) -> DataFile:
    """Write a file of these rows. Raises OSError."""
    writer = DataFileWriter(folder, rows.schema, plain)
    writer.write(rows)
    return writer.close()


def statistics(metadata: pq.FileMetaData) -> str:
    """Statistics of the columns of a file, as JSON for the Delta log. No column may be nested."""
    least: dict[str, object] = {}
    most: dict[str, object] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    for at, name in enumerate(metadata.schema.names):
        found = [group.column(at).statistics for group in groups]
        nulls[name] = sum(part.null_count for part in found)
        _range(name, [part for part in found if part.num_values], least, most)
    return _json.encode(
        {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    ).decode()


def _range(name: str, parts: Sequence[Any], least: dict[str, object], most: dict[str, object]) -> None:
    """Note the smallest and greatest value of a column, unless Parquet has no statistics of a part (long values)."""
    if not parts or not all(part.has_min_max for part in parts):
        return
    least[name] = _at_most(min(part.min for part in parts))
    greatest = _at_least(max(part.max for part in parts))
    if greatest is not None:
        most[name] = greatest


def _at_most(value: object) -> object:
    if isinstance(value, str):
        return value[:STATISTICS_LENGTH]
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
    return value


def _at_least(value: object) -> object:
    if isinstance(value, str):
        if len(value) <= STATISTICS_LENGTH:
            return value
        # The next greater text of that length. UTF-8 sorts by code points.
        kept = value[:STATISTICS_LENGTH].rstrip(_GREATEST)
        return kept[:-1] + _after(kept[-1]) if kept else None
    if isinstance(value, datetime):
        rounded_ms = -(-value.microsecond // 1000)
        return _at_most(value) if rounded_ms * 1000 == value.microsecond else None
    return value


def _after(letter: str) -> str:
    """Return the next code point that is valid in a text."""
    return "\ue000" if letter == "\ud7ff" else chr(ord(letter) + 1)


def drop_arrow_types(file: Path) -> bool:
    """Disable the Arrow types of a Parquet file, so that Arrow readers use Parquet's. Its length and times stay.

    Returns:
        True if the file had Arrow types. A file of another format is left unchanged.

    Raises:
        OSError: the file is missing or cannot be written.
    """
    with file.open("r+b", buffering=0) as opened:
        try:
            said = pq.read_metadata(opened).metadata
        except pa.ArrowInvalid:
            return False
        if said is None or _ARROW_TYPES not in said:
            return False
        about = os.fstat(opened.fileno())
        opened.seek(about.st_size - _TAIL_BYTES)
        footer_bytes = int.from_bytes(opened.read(4), "little")
        start = opened.seek(about.st_size - _TAIL_BYTES - footer_bytes)
        # The last match: the statistics before it may contain a topic of that name.
        opened.seek(start + opened.read(footer_bytes).rindex(_ARROW_TYPES) + _COLON)
        opened.write(b"-")
        os.utime(opened.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))  # vacuum uses the modification time
        return True
