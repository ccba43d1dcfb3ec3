# SPDX-License-Identifier: Apache-2.0
"""Results that remain after a run: the log and the tables, read into plain values for the judge."""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from dev.support.intervals import assert_kept, assert_now
from eventlog.base import DEFAULT_READ_RECORDS, LogRecord
from eventlog.open import open_log
from lake.commits import last_commit, last_exact_commit
from lake.history.intervals import IntervalKeeper
from lake.write.seed import read_state
from nameserver.state_machine.replay import replay
from nameserver.state_machine.state import RouteState
from nameserver.state_machine.step import BROKER_EXPIRED
from ops.verify.verify import verify
from schemas.errors import EventDecodeError
from schemas.events import AnyEvent, decode
from schemas.route_commit import to_ms
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    KV_CONFIG_TABLE,
    QUARANTINE_TABLE,
    ROUTE_CHANGE_TABLE,
    ROUTE_COMMIT_TABLE,
    TOPIC_QUEUE_TABLE,
)

_ENDED: Final = re.compile(r"child process exited; starting it again +child=(?P<child>\S+) exit_code=(?P<code>-?\d+)")
_DIED: Final = "background task failed; the process exits"


class Logged(NamedTuple):
    """A record of the log; ``event`` is None if it holds no event."""

    offset: int
    time_ms: int
    event: AnyEvent | None


class Epoch(NamedTuple):
    """A row of routeCommitTable."""

    number: int
    log_offset: int
    liveness_offset: int
    watermark_ms: int


@dataclass
class Evidence:
    """Contents of log and tables.

    Attributes:
        log: every record, in order.
        epochs: in order.
        changes: (offset, command, brokerName, seq, tableName) of routeChangeTable -> how many rows have it.
        changed: epoch -> the topics and the broker groups that routeChangeTable names at it.
        topics: topicQueueTable at the newest epoch: (topic, brokerName) -> (reads, writes, perm).
        brokers: brokerAddrTable likewise: brokerName -> its addresses by id.
        kv: kvConfigTable likewise: (namespace, key) -> value.
        expired: (brokerName, event time in ms, epoch) of each BROKER_EXPIRED in routeChangeTable that took a live row away.
        quarantined: offsets in quarantineTable.
        replayed: differences between the tables and the product's own replay of the log; "" for none.
        ends: (process, exit code) of a restarted process -> number of restarts.
        deaths: log lines of servers about threads and tasks that died.
        unverified: statements that `history verify` refutes, or cannot prove.
        intervals: errors of the interval tables; "" for none.
        live_view_differences: files in which a gateway records differences between live view and tables.
    """

    log: list[Logged] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    changes: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    changed: dict[int, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    topics: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    brokers: dict[str, dict[int, str]] = field(default_factory=dict)
    kv: dict[tuple[str, str], str | None] = field(default_factory=dict)
    expired: list[tuple[str, int, int]] = field(default_factory=list)
    quarantined: list[int] = field(default_factory=list)
    replayed: str = ""
    ends: Counter[tuple[str, int]] = field(default_factory=Counter)
    deaths: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    intervals: str = ""
    live_view_differences: list[str] = field(default_factory=list)


def read_evidence(records: list[LogRecord], lake_dir: Path) -> Evidence:
    """Read everything; nothing may write to it meanwhile."""
    found = Evidence(log=[Logged(record.offset, record.event_time_ms, _event(record)) for record in records])
    commits = DeltaTable(str(lake_dir / ROUTE_COMMIT_TABLE.name)).to_pyarrow_table().sort_by("epoch").to_pylist()
    found.epochs = [
        Epoch(row["epoch"], row["logOffset"], row["livenessOffset"], to_ms(row["watermark"])) for row in commits
    ]
    names = ("offset", "command", "brokerName", "seq", "tableName", "topic", "key")
    history = DeltaTable(str(lake_dir / ROUTE_CHANGE_TABLE.name)).to_pyarrow_table(
        columns=[*names, "eventTime", "epoch"]
    )
    found.changes = Counter(zip(*(map(str, history[name].to_pylist()) for name in names), strict=True))
    found.changed = _changed(history)
    found.expired = [
        (row["brokerName"], to_ms(row["eventTime"]), row["epoch"])
        for row in history.to_pylist()
        if row["command"] == BROKER_EXPIRED and row["tableName"] == BROKER_LIVE_TABLE.name
    ]
    versions = dict(commits[-1]["versions"]) if commits else {}

    def rows(name: str) -> list[dict[str, Any]]:
        return DeltaTable(str(lake_dir / name), version=versions.get(name)).to_pyarrow_table().to_pylist()

    found.topics = {
        (row["topic"], row["brokerName"]): (row["readQueueNums"], row["writeQueueNums"], row["perm"])
        for row in rows(TOPIC_QUEUE_TABLE.name)
    }
    found.brokers = {
        row["brokerName"]: {int(number): addr for number, addr in dict(row["brokerAddrs"]).items()}
        for row in rows(BROKER_ADDR_TABLE.name)
    }
    found.kv = {(row["namespace"], row["key"]): row["value"] for row in rows(KV_CONFIG_TABLE.name)}
    found.quarantined = [row["offset"] for row in rows(QUARANTINE_TABLE.name)]
    found.replayed = _replayed(records, lake_dir)
    found.unverified = _unverified(records, lake_dir)
    found.intervals = _wrong_intervals(lake_dir)
    found.live_view_differences = [path.read_text() for path in sorted(lake_dir.glob("live-view-differences-*.json"))]
    return found


def read_logs(paths: Iterable[Path], found: Evidence) -> None:
    """Read from logs the ends of processes, and deaths of threads and tasks."""
    for path in paths:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if end := _ENDED.search(line):
                found.ends[end["child"], int(end["code"])] += 1
            if _DIED in line:
                found.deaths.append(line)


def kept_log(path: Path) -> list[LogRecord]:
    """Every record that `dev.fault_injection.torture` has kept."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        offset, time_ms, key, payload = json.loads(line)
        records.append(LogRecord(offset, time_ms, key, base64.b64decode(payload)))
    return records


def read_log(log_url: str) -> list[LogRecord]:
    """Every record."""
    log = open_log(log_url)
    try:
        records: list[LogRecord] = []
        while found := log.read(records[-1].offset + 1 if records else 0):
            records += found
        return records
    finally:
        log.close()


def _changed(history: pa.Table) -> dict[int, tuple[frozenset[str], frozenset[str]]]:
    named: dict[int, tuple[set[str], set[str]]] = {}
    for epoch, *names in zip(*(history[name].to_pylist() for name in ("epoch", "topic", "brokerName")), strict=True):
        for known, name in zip(named.setdefault(epoch, (set(), set())), names, strict=True):
            known.update([] if name is None else [name])
    return {epoch: (frozenset(topics), frozenset(brokers)) for epoch, (topics, brokers) in named.items()}


def _event(record: LogRecord) -> AnyEvent | None:
    try:
        return decode(record.payload)
    except EventDecodeError:
        return None


def _replayed(records: list[LogRecord], lake_dir: Path) -> str:
    last = last_exact_commit(lake_dir)
    if last is None:
        return "there is no epoch"
    folded = [record for record in records if record.offset <= last.log_offset]
    expected = replay(RouteState(), folded)
    actual = read_state(lake_dir, last)
    for name in sorted(expected.groups.keys() | actual.groups.keys()):
        if expected.groups.get(name) != actual.groups.get(name):
            return f"group {name} at epoch {last.epoch}: replayed {expected.groups.get(name)}, in the tables {actual.groups.get(name)}"
    return "" if expected.kv == actual.kv else f"KV: replayed {expected.kv}, in the tables {actual.kv}"


class _Kept:
    """Records that were read before, as a log."""

    def __init__(self, records: Sequence[LogRecord]) -> None:
        self._records, self._offsets = records, [record.offset for record in records]

    def read(self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = 0) -> list[LogRecord]:
        first = bisect_left(self._offsets, start_offset)
        return list(self._records[first : first + max_records])

    def kept_from(self, offset: int) -> int:
        place = bisect_left(self._offsets, offset)
        return self._offsets[place] if place < len(self._offsets) else offset

    def close(self) -> None:
        return


def _unverified(records: Sequence[LogRecord], lake_dir: Path) -> list[str]:
    """Return the statements that `history verify` refutes, or finds no proof of."""
    report = verify(lake_dir, _Kept(records))
    return [*report.refuted, *(f"not verified: {what}" for what in report.not_verified)]


def _wrong_intervals(lake_dir: Path) -> str:
    """Return the difference of interval tables from changes, or of open intervals from the state; "" for none.

    Changes that the fold had not entered by its end are entered now: nothing else may write the lake.
    """
    last = last_commit(lake_dir)
    if last is None:
        return ""
    IntervalKeeper(lake_dir).catch_up(last.epoch, last.versions[ROUTE_CHANGE_TABLE.name])
    try:
        assert_kept(lake_dir)
        assert_now(lake_dir)
    except AssertionError as error:
        return str(error)[:4_000] or "they are not"
    return ""
