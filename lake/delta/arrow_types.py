# SPDX-License-Identifier: Apache-2.0
"""Data files whose columns have the types that Parquet and Delta name, and no others.

delta-rs writes into the footer of each file, under the key ``ARROW:schema``, how it held the columns in memory. Who
reads with Arrow gets his types from there. A MERGE holds text as ``string_view`` (delta-rs pull request 4302: on
purpose, and without an option in its Python API), which Arrow cannot compare with ``string``: ``where topic = 'a'``
fails on such a table in DuckDB, pandas and pyarrow. Without that entry every reader finds plain strings, so the entry
is renamed, whoever wrote the file (docs/adr/0009).

One byte is changed, in place: the file keeps its length, which the Delta log names, and whoever reads it meanwhile
finds one key or the other. Source: Parquet's ``FileMetaData``, whose ``key_value_metadata`` comes after all
statistics; Arrow's documentation of Parquet on ``ARROW:schema``.
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
"""Length of the footer in four bytes, and ``PAR1``."""


def drop_arrow_types(file: Path) -> bool:
    """Let Arrow readers take a Parquet file's types from Parquet; its length and times stay.

    Returns:
        Whether the file had others. A file that is no Parquet file is left as it is.

    Raises:
        OSError: it is missing, or cannot be written.
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
        # The last one: statistics, which come before, may have a topic of that name.
        opened.seek(start + opened.read(footer_bytes).rindex(_KEY) + _COLON)
        opened.write(b"-")
        os.utime(opened.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))  # vacuum goes by it
        return True


def data_files(table: Path) -> Iterator[Path]:
    """Data files and change feed files of a table, of all its versions, folder by folder."""
    for folder, folders, names in os.walk(table):
        folders[:] = [name for name in folders if name != LOG_FOLDER]
        yield from (Path(folder, name) for name in names if name.endswith(".parquet"))
