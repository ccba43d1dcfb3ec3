"""A commit in a Delta table's log, as far as routelake reads it itself.

Source: the Delta transaction protocol, "Delta Log Entries" and "Actions".
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

LOG_FOLDER: Final = "_delta_log"


class File(msgspec.Struct, rename="camel"):
    """A data file or a file of the change feed. ``path`` is percent-encoded, relative to the table."""

    path: str
    partition_values: dict[str, str | None] | None = None
    data_change: bool = True
    deletion_vector: Any = None


class Action(msgspec.Struct):
    """A line of a commit; all None if it is about no file."""

    add: File | None = None
    remove: File | None = None
    cdc: File | None = None


_decoder = msgspec.json.Decoder(Action)


def read_actions(text: bytes) -> list[Action]:
    """The lines of a commit. Raises msgspec.DecodeError (a ValueError) for a torn one."""
    return _decoder.decode_lines(text)


def entry_name(version: int) -> str:
    """Where the commit of a version is, relative to the table."""
    return f"{LOG_FOLDER}/{version:020d}.json"
