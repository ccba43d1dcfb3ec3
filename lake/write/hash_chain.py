# SPDX-License-Identifier: Apache-2.0
"""The chain of epochs: each row of routeCommitTable has a digest of itself, its epoch's changes, and the row before.

What is hashed, in words, is in docs/reference/tables.md, "The chain". A *field* is the length of a value's text in
bytes, a colon and the text, or ``-:`` for null, so that no two rows give the same fields. A *block* is the rows of one
epoch that have the columns of `HEAD` in common: what one cause did to one table of one broker group. Its digest is over
those columns, once, and then the others (`REST`) of each row in the order of seq. Blocks have no order, because a table
has none once its files are rewritten; their digests are sorted. A block stays together on its way to the writer, which
therefore never holds more than a part.
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
    """One block: the first of its rows, and the digest of all of them, in hex."""

    row: int
    digest: str


class EpochDigest:
    """Collects the digests of one epoch's rows, from any threads; `link` makes the chain's next one."""

    def __init__(self) -> None:
        self._digests: list[str] = []

    def add_changes(self, rows: pa.Table) -> pa.Table:
        """Take rows of routeChangeTable, with or without ``epoch``, in which each block is whole and in order.

        Returns:
            The same rows: for who hands them on.
        """
        self._digests.extend(block.digest for block in blocks(rows))
        return rows

    def add_digests(self, digests: Iterable[str]) -> None:
        """Take blocks of the epoch's by their digests, in hex."""
        self._digests.extend(digests)

    def add_quarantine(self, rows: pa.Table) -> pa.Table:
        """Take rows of quarantineTable, in any order, and return them. Each is a block of its own."""
        lines = field_lines(rows, QUARANTINE_TABLE.column_names)
        self._digests.extend(hashlib.sha256(line.as_buffer()).hexdigest() for line in lines)
        return rows

    def link(self, previous: str, commit: Mapping[str, Any]) -> str:
        """The digest that stands in column ``chain``.

        Args:
            previous: that of the epoch before; empty for the first epoch.
            commit: the row of routeCommitTable, as Arrow gives it; times may be in microseconds.
        """
        digest = hashlib.sha256(previous.encode())
        digest.update("".join(field(commit[name]) for name in _COMMIT_COLUMNS).encode())
        digest.update("".join(sorted(self._digests)).encode())
        return digest.hexdigest()


def in_blocks(rows: pa.Table) -> pa.Table:
    """Rows of routeChangeTable in an order in which each block is whole and in the order of seq, epoch by epoch."""
    return rows.sort_by([("epoch", "ascending"), *_ORDER] if _EPOCH in rows.column_names else _ORDER)


def blocks(rows: pa.Table) -> Iterator[Block]:
    """The blocks of rows that `in_blocks` has put in order, or that come as a shard made them.

    Rows of several epochs have a column ``epoch``, and are in the order of epochs first.
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
    """For each row, the fields of some columns one after the other."""
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
    """Texts, each made once, at the places of the values that they are made of."""
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
    """A value's field. Versions are ``name=version,name=version``, by name."""
    if value is None:
        return "-:"
    if isinstance(value, datetime):
        value = to_us(value)
    elif isinstance(value, list):
        value = ",".join(f"{name}={version}" for name, version in sorted(value))
    text = str(value)
    return f"{len(text.encode())}:{text}"


def _starts(rows: pa.Table) -> list[int]:
    """The first row of each block."""
    differs: Any = None
    for name in (_EPOCH, *HEAD) if _EPOCH in rows.column_names else HEAD:
        column = rows[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.indices
        before, here = column[:-1], column[1:]
        other = pc.or_(pc.fill_null(pc.not_equal(before, here), False), pc.xor(pc.is_null(before), pc.is_null(here)))
        differs = other if differs is None else pc.or_(differs, other)
    return [0, *(place + 1 for place in pc.indices_nonzero(differs).to_pylist())]
