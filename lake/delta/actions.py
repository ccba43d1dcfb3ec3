# SPDX-License-Identifier: Apache-2.0
"""A commit in a Delta table's log, as far as routelake reads it itself.

Source: the Delta transaction protocol, "Delta Log Entries" and "Actions".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

LOG_FOLDER: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG_FOLDER}/_last_checkpoint"


class File(msgspec.Struct, rename="camel"):
    """A data file or a file of the change feed.

    Attributes:
        path: Percent-encoded, relative to the table.
        partition_values: Of its rows, by column.
        stats: JSON: numRecords, minValues, maxValues, nullCount.
        data_change: False where rows were only put together anew.
        deletion_vector: routelake writes none.
    """

    path: str
    partition_values: dict[str, str | None] | None = None
    stats: str | None = None
    data_change: bool = True
    deletion_vector: Any = None


class Protocol(msgspec.Struct, rename="camel"):
    """What a program must know to read a table ("Protocol Evolution")."""

    min_reader_version: int
    reader_features: list[str] | None = None


READER_VERSION: Final = 1
"""Of routelake's tables: it makes none that need more, and reads none that do."""


class Action(msgspec.Struct):
    """A line of a commit; all None if it is about neither a file nor the protocol."""

    add: File | None = None
    remove: File | None = None
    cdc: File | None = None
    protocol: Protocol | None = None


_decoder = msgspec.json.Decoder(Action)


def read_actions(text: bytes) -> list[Action]:
    """The lines of a commit. Raises ValueError for a torn one, of which a power cut may have left no byte."""
    if not text:
        raise ValueError("a commit without a line")
    return _decoder.decode_lines(text)


def changed_files(actions: Iterable[Action]) -> list[str]:
    """Files that tell what a commit changed, relative to the table: its feed if it has one, else its data files."""
    actions = list(actions)
    feed = [action.cdc for action in actions if action.cdc is not None]  # whose dataChange is false, always
    changed = [file for action in actions if (file := action.add or action.remove) is not None and file.data_change]
    return [unquote(file.path) for file in feed or changed]


def entry_identity(text: bytes) -> tuple[int, int]:
    """A commit's CRC and size: each has a time and an id, so another one in its place has others."""
    return zlib.crc32(text), len(text)


class LastCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pointer to a table's last checkpoint.

    Attributes:
        version: of the table.
        size: how many actions it holds.
        parts: how many files it is, where it is not one.
    """

    version: int
    size: int
    parts: int | None = None


_last_checkpoint_decoder = msgspec.json.Decoder(LastCheckpoint)


def read_last_checkpoint(table: Path) -> LastCheckpoint | None:
    """None where the table has no checkpoint. Raises OSError, or ValueError for a pointer that is torn."""
    try:
        text = (table / LAST_CHECKPOINT).read_bytes()
    except FileNotFoundError:
        return None
    return decode_last_checkpoint(text)


def decode_last_checkpoint(text: bytes) -> LastCheckpoint:
    """The pointer's content. Raises ValueError for one that is torn."""
    return _last_checkpoint_decoder.decode(text)


def write_last_checkpoint(table: Path, pointer: LastCheckpoint) -> None:
    """Write the pointer of a table that nobody reads yet."""
    (table / LAST_CHECKPOINT).write_bytes(msgspec.json.encode(pointer))


def entry_name(version: int) -> str:
    """Where the commit of a version is, relative to the table."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """Where the checkpoint of a version is, relative to the table, if there is one and it is one file."""
    return f"{LOG_FOLDER}/{version:020d}.checkpoint.parquet"
