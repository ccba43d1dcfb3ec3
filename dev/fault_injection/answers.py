# SPDX-License-Identifier: Apache-2.0
"""Expected answers: the model's, at each offset of the log and at each epoch.

An answer is compared as a *form*: its contents without the protocol. None is the form of "there is no such thing".
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from typing import Any, Final

from dev.fault_injection.evidence import Epoch, Evidence, Logged
from dev.fault_injection.model_fold import Key, ModelFold
from dev.fault_injection.operations import Operation
from dev.fault_injection.record import Entry
from dev.model import codes
from dev.model.tables import BrokerAddrInfo
from dev.model.wire import Request, Response, canonical

_NOTHING: Final = {
    **dict.fromkeys(("route", "as-of"), codes.TOPIC_NOT_EXIST),
    **dict.fromkeys(("kv", "kv-list"), codes.QUERY_NOT_FOUND),
}
"""The code of each kind of request for "there is no such thing"."""

Form = str | None
"""JSON with its keys in order, or None."""


def form_of(entry: Entry) -> Form:
    """Return the form of an answer to a read.

    Raises:
        LookupError: The answer has no contents: a refusal, or no answer.
    """
    operation = entry.operation
    if entry.via == "remoting":
        if entry.code == _NOTHING.get(operation.kind):
            return None
        if entry.code != codes.SUCCESS:
            raise LookupError(f"code {entry.code}")
        return _form(operation, Response(codes.SUCCESS, entry.ext, entry.body.encode()))
    if entry.code == 404 and operation.kind in _NOTHING and _problem(entry) == _NOTHING[operation.kind]:
        return None
    if entry.code != 200:
        raise LookupError(f"status {entry.code}")
    if operation.kind == "kv":
        return _json(json.loads(entry.body)["value"])
    return _form(operation, Response(codes.SUCCESS, None, entry.body.encode()))


def _problem(entry: Entry) -> int | None:
    try:
        found = json.loads(entry.body).get("code")
    except ValueError:
        return None
    return None if found is None else int(found)


def _form(operation: Operation, answer: Response) -> Form:
    if operation.kind == "query-version":
        return _json(json.loads(answer.body)) if answer.body else None
    if operation.kind == "kv":
        return _json((answer.ext or {})["value"])
    body = canonical(_request(operation), answer)["body"]
    if operation.kind == "topics":
        return _json(body["topicList"])
    if operation.kind == "kv-list":
        return _json(body["table"]) if body["table"] else None  # one that is empty may be known or not
    return _json(body)


def _request(operation: Operation) -> Request:
    return Operation("route", ask=operation.ask).request() if operation.kind == "as-of" else operation.request()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def key_of(operation: Operation) -> Key:
    """Return the subject of an operation, as `ModelFold.take` names it."""
    subject = operation.subject
    match operation.kind:
        case "as-of":
            return ("route", *subject[1:])
        case "members":
            return subject[:2]
        case "query-version":
            assert operation.broker is not None
            return ("version", operation.broker.addr)
    return subject


class Expected:
    """The model's answers over a whole log, to what a run asked.

    Attributes:
        model: after the last event.
        written: offset -> event, of what can be read.
        noticed: (brokerName, address, offset) of everybody who expired, with the event by which it was noticed.
        refused: offsets of registrations that the rules refuse: another broker has the brokerId.
        lacking: offsets of registrations without topics that must come again, with them.
        changed_at: offsets of events that changed an answer; noticed_at: of those by which an expiry was noticed.
        last_tables: at the newest epoch.
    """

    def __init__(
        self,
        evidence: Evidence,
        asked: Iterable[Operation],
        times_ms: Iterable[int] = (),
        whole_epochs: Collection[int] = (),
    ) -> None:
        """Fold the whole log once.

        Args:
            evidence: log and epochs.
            asked: every read that is to be judged.
            times_ms: of the past that they name.
            whole_epochs: epochs with tables that will be asked for.
        """
        self._operations = {key_of(operation): operation for operation in asked}
        self.model = ModelFold()
        self.last_tables: Tables = tables_of(self.model)
        self._tables: dict[int, Tables] = {0: self.last_tables}
        self._whole_epochs = whole_epochs
        self.noticed: list[tuple[str, str, int]] = []
        self.refused: set[int] = set()
        self.lacking: set[int] = set()
        self.changed_at: set[int] = set()
        self.noticed_at: set[int] = set()
        self.written: dict[int, Logged] = {}
        self._last_offset = -1
        self._offsets: dict[Key, list[int]] = {}
        self._forms: dict[Key, list[Form]] = {}
        self._when: dict[Key, dict[Form, list[int]]] = {}
        """Places in the two lists above, by form."""
        self._epochs: dict[int, int] = {}
        """Each epoch's last offset."""
        for key in self._operations:
            first = self._answer(self.model, key)
            self._offsets[key], self._forms[key], self._when[key] = [-1], [first], {first: [0]}
        self._past: dict[int, tuple[int, dict[Key, Form]]] = {}
        self._overdue: list[tuple[int, ModelFold, int]] = []
        """Times of the past at which a deadline had passed, the model then, and how many had expired before."""
        times = sorted(times_ms, reverse=True)
        epochs = iter(sorted(evidence.epochs))
        epoch = next(epochs, None)
        for logged in evidence.log:
            while epoch is not None and epoch.log_offset < logged.offset:
                self._take_epoch(epoch)
                epoch = next(epochs, None)
            while times and times[-1] < logged.time_ms:
                self._take_time(times.pop())
            self._take(logged)
        while epoch is not None:
            self._take_epoch(epoch)
            epoch = next(epochs, None)

    def _take(self, logged: Logged) -> None:
        self.written[logged.offset] = logged
        self._last_offset = logged.offset
        if logged.event is None:
            return
        changed = self.model.take(logged.event, logged.time_ms)
        self.refused.update([logged.offset] if self.model.refused else [])
        self.lacking.update([logged.offset] if self.model.lacking else [])
        for name, addr, _, _ in self.model.expired[len(self.noticed) :]:
            self.noticed.append((name, addr, logged.offset))
            self.noticed_at.add(logged.offset)
        for key in changed & self._operations.keys():
            form = self._answer(self.model, key)
            if form != self._forms[key][-1]:
                self._when[key].setdefault(form, []).append(len(self._forms[key]))
                self._offsets[key].append(logged.offset)
                self._forms[key].append(form)
                self.changed_at.add(logged.offset)

    def _take_epoch(self, epoch: Epoch) -> None:
        self._epochs[epoch.number] = epoch.log_offset
        # The tables are compared at the newest epoch: what is folded after it must not show in it.
        self.last_tables = tables_of(self.model)
        if epoch.number in self._whole_epochs:
            self._tables[epoch.number] = self.last_tables
        for time_ms, then, known in self._overdue:
            gone = {
                (addr, deadline_ms) for _, addr, deadline_ms, _ in self.model.expired[known:] if deadline_ms < time_ms
            }
            if gone:
                other = then.without(gone)
                forms = {key: self._answer(other, key) for key in self._operations}
                self._past[time_ms] = self._past[time_ms][0], forms
        self._overdue.clear()

    def _take_time(self, time_ms: int) -> None:
        """Note a point in time: an expiry by the end of its epoch counts from the millisecond after the deadline on.

        See docs/how-to/analyze/reports.md.
        """
        self._past[time_ms] = self._last_offset, {}
        if self.model.overdue(time_ms):
            self._overdue.append((time_ms, self.model.without(()), len(self.model.expired)))

    def _answer(self, fold: ModelFold, key: Key) -> Form:
        operation = self._operations[key]
        if operation.kind == "query-version":
            assert operation.broker is not None
            found = fold.data_version(BrokerAddrInfo(operation.broker.cluster, operation.broker.addr))
            return None if found is None else _json(found)
        response = fold.model.handle(_request(operation), fold.now_ms)
        return None if response.code == _NOTHING.get(operation.kind) else _form(operation, response)

    # --- questions ---

    def knows(self, operation: Operation) -> bool:
        """Return whether an operation was among those that were asked."""
        return key_of(operation) in self._operations

    def at(self, operation: Operation, offset: int) -> Form:
        """The answer of the head at an offset."""
        key = key_of(operation)
        return self._forms[key][bisect_right(self._offsets[key], offset) - 1]

    def first_right(self, operation: Operation, form: Form, first: int, last: int) -> int | None:
        """The earliest offset of first to last at which this was the answer; None for none."""
        key = key_of(operation)
        offsets, places = self._offsets[key], self._when[key].get(form, [])
        index = bisect_right(offsets, first) - 1
        found = bisect_left(places, index)
        if found == len(places) or (places[found] > index and offsets[places[found]] > last):
            return None
        return max(first, offsets[places[found]])

    def forms(self, operation: Operation, first: int, last: int) -> list[Form]:
        """The answers from one offset to another."""
        key = key_of(operation)
        index, end = (bisect_right(self._offsets[key], offset) for offset in (first, last))
        return self._forms[key][max(0, index - 1) : max(end, index)]

    def last_right(self, operation: Operation, form: Form, last: int) -> int | None:
        """Return the last place, up to an offset, at which this became the answer; None for nowhere."""
        key = key_of(operation)
        offsets, places = self._offsets[key], self._when[key].get(form, [])
        found = bisect_left(places, bisect_right(offsets, last)) - 1
        return offsets[places[found]] if found >= 0 else None

    def at_epoch(self, operation: Operation, epoch: int) -> Form:
        """The answer of an epoch.

        Raises:
            LookupError: there is no such epoch.
        """
        return self.at(operation, self._epochs[epoch] if epoch else -1)

    def tables_at(self, epoch: int) -> Tables | None:
        """The tables of an epoch that was named at the beginning; None if there is no such epoch."""
        return self._tables.get(epoch)

    def at_time(self, operation: Operation, time_ms: int) -> Form:
        """The answer of a time.

        Raises:
            LookupError: nothing came after it.
        """
        offset, forms = self._past[time_ms]
        return forms[key_of(operation)] if forms else self.at(operation, offset)

    def changes(self, operation: Operation, first: int, last: int) -> list[Logged]:
        """The events after first, up to last, that changed this answer."""
        key = key_of(operation)
        return [self.written[offset] for offset in self._offsets[key] if first < offset <= last]


Tables = tuple[
    dict[tuple[str, str], tuple[int, int, int]], dict[str, dict[int, str]], dict[tuple[str, str], str | None]
]
"""topicQueueTable, brokerAddrTable, kvConfigTable, as `Evidence` has them."""


def tables_of(fold: ModelFold) -> Tables:
    """Return the expected contents of the tables."""
    tables = fold.model.tables
    topics = {
        (topic, str(name)): (row.read_queue_nums, row.write_queue_nums, row.perm)
        for topic, rows in tables.topic_queue_table.items()
        for name, row in rows.items()
    }
    brokers = {
        name: {number: str(addr) for number, addr in data.broker_addrs.items()}
        for name, data in tables.broker_addr_table.items()
    }
    kv: dict[tuple[str, str], str | None] = {
        (str(namespace), str(key)): value
        for namespace, table in fold.model.kv.config_table.items()
        for key, value in table.items()
        if value is not None
    }
    return topics, brokers, kv
