# SPDX-License-Identifier: Apache-2.0
"""Removal of Arrow-specific types from data files, so that only the types of Parquet and Delta are left.

delta-rs writes the in-memory types of the columns into the footer of each file, under the key ``ARROW:schema``. Arrow
readers use these types. A MERGE holds text as ``string_view``, on purpose and without an option in its Python API
(delta-rs pull request 4302). Arrow cannot compare ``string_view`` with ``string``. So ``where topic = 'a'`` fails on
such a table in DuckDB, pandas and pyarrow. Without the entry, every reader finds plain strings. So the entry is renamed
in every file, also in files of other programs (docs/adr/0009).

One byte is changed in place. The file keeps its length, which the Delta log names, and a concurrent reader finds one
key or the other. Source: Parquet's ``FileMetaData`` (its ``key_value_metadata`` comes after all statistics). Arrow's
documentation of Parquet on ``ARROW:schema``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lake.delta.log import LOG_FOLDER

_KEY: Final = b"ARROW:schema"
_COLON: Final = _KEY.index(b":")
_TAIL_BYTES: Final = 8
"""Size of the end of a Parquet file: the length of the footer in four bytes, and ``PAR1``."""


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
        if said is None or _KEY not in said:
            return False
        about = os.fstat(opened.fileno())
        opened.seek(about.st_size - _TAIL_BYTES)
        footer_bytes = int.from_bytes(opened.read(4), "little")
        start = opened.seek(about.st_size - _TAIL_BYTES - footer_bytes)
        # The last match: the statistics before it may contain a topic of that name.
        opened.seek(start + opened.read(footer_bytes).rindex(_KEY) + _COLON)
        opened.write(b"-")
        os.utime(opened.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))  # vacuum uses the modification time
        return True


def data_files(table: Path) -> Iterator[Path]:
    """Data files and change feed files of a table, of all its versions, folder by folder."""
    for folder, folders, names in os.walk(table):
        folders[:] = [name for name in folders if name != LOG_FOLDER]
        yield from (Path(folder, name) for name in names if name.endswith(".parquet"))
