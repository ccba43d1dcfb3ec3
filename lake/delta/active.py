# SPDX-License-Identifier: Apache-2.0
"""Which files a table is made of, by its last checkpoint and the commits since.

deltalake lists the whole ``_delta_log`` folder to open a table and reads all that its checkpoint has, most of which are
files removed within the retention: 160 ms after 37,000 commits, four times in a gateway's start. The pointer
``_last_checkpoint`` spares the one, and reading a single column of it the other; what is left is a file for each
commit since. Where that does not lead to the version (an older one, a pointer that is torn, another layout, storage
that is not local) deltalake does it.

Source: the Delta transaction protocol, "Action Reconciliation", "Checkpoints" and "Last Checkpoint File".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lake.delta.actions import File, checkpoint_name, entry_name, read_actions, read_last_checkpoint
from lake.delta.damage import DamagedTableError, check_commits, check_protocol, damage_in
from lake.delta.log import file_system, is_local, table_uri
from lake.delta.types import arrow_schema
from schemas.tables import Table

_COLUMNS: Final = ["add.path", "add.partitionValues", "add.stats", "add.deletionVector"]


class Active(NamedTuple):
    """The files of a table at a version."""

    version: int
    files: list[File]


def active(uri: str, version: int | None = None) -> Active:
    """The files of a table at a version, or at the newest.

    Raises:
        TableNotFoundError: There is no table.
        DamagedTableError: A file of its log is damaged.
        DeltaError, OSError: It cannot be read.
    """
    if is_local(uri):
        try:
            found = _from_log(Path(uri).absolute(), version)
        except (OSError, ValueError, pa.ArrowException):
            check_commits(Path(uri))  # deltalake takes an empty one for one that changed nothing
            found = None  # cleaned up meanwhile, or not as routelake writes it
        if found is not None:
            return found
    try:
        table = DeltaTable(uri, version=version)
    except TableNotFoundError:
        if is_local(uri):
            with suppress(FileNotFoundError):
                Path(uri).stat()  # a loop of links, or a folder that is closed to us, is no table that is not there
        raise
    except DeltaError as error:
        if is_local(uri) and (damage := damage_in(Path(uri))):
            raise DamagedTableError(damage) from error
        raise
    return Active(table.version(), files_of(table))


def files_of(table: DeltaTable) -> list[File]:
    """The same from an open table."""
    return [
        File(
            path=action["path"],
            partition_values=action.get("partition") or {},
            stats=json.dumps({"minValues": _integers(action.get("min")), "maxValues": _integers(action.get("max"))}),
        )
        for action in pa.table(table.get_add_actions()).to_pylist()
    ]


def dataset(lake_dir: str, table: Table, files: Sequence[File], codes: Sequence[str] = ()) -> pds.Dataset:
    """Files of a table as an Arrow dataset, read without Python.

    delta-rs's own reads through a Python file system. Then Arrow's threads hold Python buffers, and one that is
    released while the interpreter ends aborts the process ("terminate called without an active exception").

    Args:
        lake_dir: directory or URI of the lake.
        table: which table.
        files: of it, at one version.
        codes: text columns to be read as dictionaries, which take less room; those of the partition never are.
    """
    text = [name for name in codes if name not in table.partition_by]
    schema = arrow_schema(table)
    for name in text:
        index = schema.get_field_index(name)
        schema = schema.set(index, schema.field(index).with_type(pa.dictionary(pa.int32(), pa.string())))
    layout = pds.ParquetFileFormat(read_options=pds.ParquetReadOptions(dictionary_columns=text))
    storage = file_system(table_uri(lake_dir, table))
    fragments = [
        layout.make_fragment(unquote(file.path), filesystem=storage, partition_expression=_partition(file, schema))
        for file in files
    ]
    return pds.FileSystemDataset(fragments, schema, layout, storage)


def _partition(file: File, schema: pa.Schema) -> pc.Expression | None:
    """The columns that all rows of a file have in common, which are not in it."""
    terms = [
        pc.field(name) == pa.scalar(value, pa.string()).cast(schema.field(name).type)
        for name, value in (file.partition_values or {}).items()
    ]
    return reduce(and_, terms) if terms else None


def _integers(values: Mapping[str, Any] | None) -> dict[str, int]:
    """Statistics of whole numbers, in which routelake looks for an epoch."""
    return {name: value for name, value in (values or {}).items() if isinstance(value, int)}


def _from_log(table: Path, version: int | None) -> Active | None:
    """None where the last checkpoint is of no use, or a commit is missing."""
    at, files = -1, dict[str, File]()
    last = read_last_checkpoint(table)
    if last is not None:
        if last.parts is not None:
            return None
        at = last.version
        files = {file.path: file for file in _in_checkpoint(table / checkpoint_name(at))}
    while at != version and (table / entry_name(at + 1)).exists():
        at += 1
        for action in read_actions((table / entry_name(at)).read_bytes()):
            check_protocol(table, action)
            if action.remove is not None:
                files.pop(action.remove.path, None)
            if action.add is not None:
                if action.add.deletion_vector is not None:
                    return None
                files[action.add.path] = action.add
    if at < 0 or version not in (None, at):
        return None
    return Active(at, list(files.values()))


def _in_checkpoint(path: Path) -> list[File]:
    with pq.ParquetFile(path) as checkpoint:
        adds = checkpoint.read(_COLUMNS, use_threads=False)["add"].combine_chunks()
    adds = adds.filter(pc.is_valid(pc.struct_field(adds, "path")))
    if pc.any(pc.is_valid(pc.struct_field(adds, ["deletionVector", "storageType"]))).as_py():
        raise ValueError(f"{path} has deletion vectors")
    paths, values, stats = (pc.struct_field(adds, name).to_pylist() for name in ("path", "partitionValues", "stats"))
    return [File(*found) for found in zip(paths, map(dict, values), stats, strict=True)]
