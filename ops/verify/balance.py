# SPDX-License-Identifier: Apache-2.0
"""Check that the state tables equal the sum of all changes.

Every change removes a row (``before``) and adds one (``after``). So for each key, the added rows minus the removed rows
are the one row in the table. For many keys, the sums of the rows' digests are equal. Such sums are kept for some
thousand groups of keys, which takes the same memory for any number of rows. If a sum differs, the group's rows are read
again one by one to name the difference.

Columns that every heartbeat moves (brokerLiveTable) are not in the changes. A replay checks them (`ops.verify.replay`).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lake.delta.reader import plain_text, table_at
from lake.write.arrow import values_json
from lake.write.windows import ChangeWindows
from ops.verify.report import Proof, VerifyReport, shortened
from schemas.tables import STATE_TABLES, TOPIC_QUEUE_TABLE, Table

_ROWS_AT_A_TIME: Final = 10_000
_GROUPS: Final = 4_096
_NAMED_GROUPS: Final = 64
"""Maximum number of groups to compare row by row."""
_COLUMNS: Final = ("epoch", "eventTime", "offset", "seq", "tableName", "key", "before", "after")
_ORDER: Final = [(name, "ascending") for name in ("epoch", "eventTime", "offset", "seq")]
_json = msgspec.json.Encoder()


class Balance:
    """Sums of changes, for comparison with the tables.

    Args:
        proof: proof that collects the results.
    """

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._sums = {table.name: [0] * _GROUPS for table in STATE_TABLES}
        self._strange: dict[str, int] = {}

    def take(self, rows: pa.Table) -> None:
        """Add rows of routeChangeTable, in any order."""
        rows = rows.filter(pc.is_valid(rows["tableName"]))
        names, keys, befores, afters = (rows[name].to_pylist() for name in ("tableName", "key", "before", "after"))
        for name, key, before, after in zip(names, keys, befores, afters, strict=True):
            sums = self._sums.get(name)
            if sums is None or key is None:
                self._strange[name] = self._strange.get(name, 0) + 1
                continue
            group = _group(key)
            if after is not None:
                sums[group] += _digest(key, after)
            if before is not None:
                sums[group] -= _digest(key, before)

    def check(self, windows: ChangeWindows) -> None:
        """Compare with the tables, after all changes were added.

        Raises:
            DamagedTableError, DeltaError, OSError, pyarrow.ArrowException: a table cannot be read.
        """
        report = self._proof.report
        before = report.refutations
        for name, count in self._strange.items():
            report.refute(f"routeChangeTable: {count} rows are of a table {name!r}, which there is not, or have no key")
        rows = 0
        wrong: dict[str, set[int]] = {}
        for table in STATE_TABLES:
            sums = self._sums[table.name]
            for key, values in self._rows(table):
                sums[_group(key)] -= _digest(key, values)
                rows += 1
                if rows % _ROWS_AT_A_TIME == 0:
                    self._proof.at("rows of state tables", rows, rows)
            if found := {group for group, total in enumerate(sums) if total}:
                wrong[table.name] = found
        for table in STATE_TABLES:
            if table.name in wrong:
                self._name(table, wrong[table.name], windows)
        if report.refutations == before:
            report.verified.append(
                f"the {len(STATE_TABLES)} state tables ({rows:,} rows) are what the {windows.rows:,} changes add up to"
            )

    def _rows(self, table: Table) -> Iterator[tuple[str, str]]:
        """Key and values of each row of a state table, in the JSON of routeChangeTable."""
        found = table_at(self._proof.lake_dir, table, self._proof.last.versions[table.name])
        width, columns = len(table.key), (*table.key, *table.value_columns)
        texts: dict[tuple[Any, ...], str] = {}
        for batch in found.to_batches(batch_size=_ROWS_AT_A_TIME, batch_readahead=2, fragment_readahead=1):
            rows = plain_text(pa.Table.from_batches([batch]))
            for row in zip(*(rows[name].to_pylist() for name in columns), strict=True):
                values = row[width:]
                if table is not TOPIC_QUEUE_TABLE:
                    text = values_json(table, values)
                elif (text := texts.get(values, "")) == "":  # millions of topics have few distinct values
                    text = texts[values] = values_json(table, values)
                yield _json.encode(dict(zip(table.key, row[:width], strict=True))).decode(), text

    def _name(self, table: Table, groups: set[int], windows: ChangeWindows) -> None:
        report = self._proof.report
        looked_at = set(sorted(groups)[:_NAMED_GROUPS])
        refuted = report.refutations
        expected = self._expected(table, looked_at, windows)
        for key, values in self._rows(table):
            if _group(key) in looked_at:
                _compare(table, key, values, expected, report)
        for key, last in expected.items():
            if last.values is not None and not last.met:
                report.refute(f"{table.name}, {_spelled(key)}: the row is missing; {last.cause} added it")
        if report.refutations == refuted:
            report.refute(f"{table.name}: its rows differ from the sum of the changes")
        if len(groups) > len(looked_at):
            report.more_refuted += len(groups) - len(looked_at)

    def _expected(self, table: Table, groups: set[int], windows: ChangeWindows) -> dict[str, _Last]:
        """The row of each key after its last change."""
        last: dict[str, _Last] = {}
        for window in windows.read(_COLUMNS):
            rows = window.filter(pc.equal(window["tableName"], table.name))
            wanted = [key is not None and _group(key) in groups for key in rows["key"].to_pylist()]
            for row in rows.filter(pa.array(wanted, pa.bool_())).sort_by(_ORDER).to_pylist():
                cause = f"epoch {row['epoch']}, offset {row['offset']}, seq {row['seq']}"
                left = last.get(row["key"])
                was = None if left is None else left.values
                if row["before"] != was:
                    by = "nothing" if left is None else left.cause
                    where = f"routeChangeTable, {cause}, {table.name}, {_spelled(row['key'])}"
                    for what in _said(row["before"], was):
                        self._proof.report.refute(f"{where}: before says {what} ({by})")
                last[row["key"]] = _Last(row["after"], cause)
        return last


@dataclass(slots=True)
class _Last:
    """Row of a key after its last change. ``met``: the table has it."""

    values: str | None
    cause: str
    met: bool = False


def _compare(table: Table, key: str, values: str, expected: Mapping[str, _Last], report: VerifyReport) -> None:
    last = expected.get(key)
    where = f"{table.name}, {_spelled(key)}"
    if last is None or last.values is None:
        by = "no change has put it there" if last is None else f"{last.cause} has removed it"
        report.refute(f"{where}: there is such a row, but {by}")
    elif last.met:
        report.refute(f"{where}: there are two such rows")
    elif values != last.values:
        for column, found, wanted in _named_differences(values, last.values):
            report.refute(
                f"{where}: column {column} is {shortened(found)}, and by the changes {shortened(wanted)} ({last.cause})"
            )
    if last is not None:
        last.met = True


def _named_differences(found: str | None, expected: str | None) -> Iterator[tuple[str, Any, Any]]:
    """(column, found value, expected value) for each differing column of two JSON objects."""
    left: Mapping[str, Any] = msgspec.json.decode(found or "{}")
    right: Mapping[str, Any] = msgspec.json.decode(expected or "{}")
    for name in dict.fromkeys([*left, *right]):
        if left.get(name) != right.get(name):
            yield name, left.get(name), right.get(name)


def _spelled(key: str) -> str:
    """Format a key for a sentence: ``brokerName=a topic=b``."""
    try:
        found = msgspec.json.decode(key)
    except msgspec.DecodeError:
        return key
    return " ".join(f"{name}={value}" for name, value in found.items()) if isinstance(found, dict) else key


def _said(before: str | None, was: str | None) -> Iterator[str]:
    if before is None or was is None:
        said, left = ("there was no row" if text is None else "there was a row" for text in (before, was))
        yield f"{said}, but after the change before {left}"
        return
    for column, found, wanted in _named_differences(before, was):
        yield f"{column} was {shortened(found)}, but the change before has left {shortened(wanted)}"


def _group(key: str) -> int:
    return zlib.crc32(key.encode()) % _GROUPS


def _digest(key: str, values: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{len(key)}:{key}{values}".encode(), digest_size=16).digest())
