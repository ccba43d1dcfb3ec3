# SPDX-License-Identifier: Apache-2.0
"""Hash chain of epochs. Each row of routeCommitTable has a digest of itself, the epoch's changes and the previous row.

docs/reference/tables.md, "The chain", describes the hashed data. A *field* is the length of a value's text in bytes, a
colon and the text, or ``-:`` for null, so that different rows never give the same fields. A *block* is the rows of one
epoch with equal values in the columns of `HEAD`: the changes by one cause to one table of one broker group. The digest
of a block covers these columns once, and then the other columns (`REST`) of each row in the order of seq. Blocks have
no order, because rewritten files of a table have none, so their digests are sorted. A block goes to the writer in one
piece, so the writer needs memory for one part only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from schemas.route_commit import to_us
from schemas.tables import CHAIN, QUARANTINE_TABLE, ROUTE_COMMIT_TABLE

HEAD: Final = ("offset", "eventTime", "command", "outcome", "reason", "actor", "tableName", "brokerName")
REST: Final = ("seq", "topic", "key", "before", "after")
_EPOCH: Final = "epoch"
_ORDER: Final = [(name, "ascending") for name in (*HEAD, "seq")]
_COMMIT_COLUMNS: Final = ROUTE_COMMIT_TABLE.column_names[: ROUTE_COMMIT_TABLE.column_names.index(CHAIN)]


class Block(NamedTuple):
    """One block: index of its first row, and the digest of all its rows, in hex."""

    row: int
    digest: str


class EpochDigest:
    """Collects the digests of the rows of one epoch, from any threads. `link` computes the next digest of the chain."""

    def __init__(self) -> None:
        self._digests: list[str] = []

    def add_changes(self, rows: pa.Table) -> pa.Table:
        """Add rows of routeChangeTable, with or without ``epoch``. Each block must be complete and in order.

        Returns:
            The same rows.
        """
        self._digests.extend(block.digest for block in blocks(rows))
        return rows

    def add_digests(self, digests: Iterable[str]) -> None:
        """Add blocks of the epoch by their digests, in hex."""
        self._digests.extend(digests)

    def add_quarantine(self, rows: pa.Table) -> pa.Table:
        """Add rows of quarantineTable, in any order, and return them. Each row is a block of its own."""
        lines = field_lines(rows, QUARANTINE_TABLE.column_names)
        self._digests.extend(hashlib.sha256(line.as_buffer()).hexdigest() for line in lines)
        return rows

    def link(self, previous: str, commit: Mapping[str, Any]) -> str:
        """Compute the digest for column ``chain``.

        Args:
            previous: digest of the previous epoch. Empty for the first epoch.
            commit: row of routeCommitTable with the values of Arrow. Times may be in microseconds.
        """
        digest = hashlib.sha256(previous.encode())
        digest.update("".join(field(commit[name]) for name in _COMMIT_COLUMNS).encode())
        digest.update("".join(sorted(self._digests)).encode())
        return digest.hexdigest()


def in_blocks(rows: pa.Table) -> pa.Table:
    """Sort rows of routeChangeTable by epoch, so that the rows of a block are together and in the order of seq."""
    return rows.sort_by([("epoch", "ascending"), *_ORDER] if _EPOCH in rows.column_names else _ORDER)


def blocks(rows: pa.Table) -> Iterator[Block]:
    """The blocks of rows that `in_blocks` has sorted, or in the order in which a shard made them.

    Rows of several epochs have a column ``epoch`` and are sorted by it first.
    """
    if not rows.num_rows:
        return
    lines = field_lines(rows, REST)
    _, places, text = lines.buffers()
    ends = memoryview(places).cast("i")[lines.offset : lines.offset + len(lines) + 1]
    view = memoryview(text)
    starts = _starts(rows)
    heads = field_lines(rows.select(HEAD).take(pa.array(starts)), HEAD)
    for first, after, head in zip(starts, [*starts[1:], rows.num_rows], heads, strict=True):
        digest = hashlib.sha256(head.as_buffer())
        digest.update(view[ends[first] : ends[after]])
        yield Block(first, digest.hexdigest())


def field_lines(rows: pa.Table, columns: tuple[str, ...]) -> pa.StringArray:
    """For each row, the concatenated fields of some columns."""
    parts: list[Any] = []
    for name in columns:
        values = rows[name].combine_chunks()
        if pa.types.is_dictionary(values.type):
            parts.append(_decoded(values, field))
        else:
            texts = _text(values)
            lengths = pc.binary_length(texts).dictionary_encode()
            parts += [_decoded(lengths, lambda length: "-:" if length is None else f"{length}:"), texts]
    return pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="")


def _decoded(values: pa.DictionaryArray, decode: Callable[[Any], str]) -> pa.StringArray:
    """Texts of dictionary values. Each distinct value is converted once."""
    texts = pa.array([*map(decode, values.dictionary.to_pylist()), decode(None)], pa.string())
    return texts.take(values.indices.fill_null(len(texts) - 1))


def _text(values: pa.Array) -> pa.StringArray:
    """Numbers in decimal, times in microseconds since 1970, bytes in hex."""
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64()).cast(pa.string())
    if pa.types.is_binary(values.type):
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())
    return values.cast(pa.string())


def field(value: object) -> str:
    """The field of a value. Versions are ``name=version,name=version``, sorted by name."""
    if value is None:
        return "-:"
    if isinstance(value, datetime):
        value = to_us(value)
    elif isinstance(value, list):
        value = ",".join(f"{name}={version}" for name, version in sorted(value))
    text = str(value)
    return f"{len(text.encode())}:{text}"


def _starts(rows: pa.Table) -> list[int]:
    """Index of the first row of each block."""
    differs: Any = None
    for name in (_EPOCH, *HEAD) if _EPOCH in rows.column_names else HEAD:
        column = rows[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.indices
        before, here = column[:-1], column[1:]
        other = pc.or_(pc.fill_null(pc.not_equal(before, here), False), pc.xor(pc.is_null(before), pc.is_null(here)))
        differs = other if differs is None else pc.or_(differs, other)
    return [0, *(place + 1 for place in pc.indices_nonzero(differs).to_pylist())]
