# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about subscribers of epochs (`GET /v1/events`) and about differences (`GET /v1/diff`)."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from dev.fault_injection.answers import Form, Tables
from dev.fault_injection.case import Case, Violation
from dev.fault_injection.operations import READS, Operation
from dev.fault_injection.plan import TOPICS
from dev.fault_injection.record import Heard

LATE_S: Final = 10.0
"""Maximum delay of an epoch for a subscriber, after its gateway has shown it to any client, in seconds. It usually takes
milliseconds, but a gateway may stand still for three seconds, and machines are busy."""
CUT_OFF: Final = ("separate-second",)
"""Faults after which packets that were lost are sent again, for as long as `LATE_S` and more."""


_QUESTIONS: Final = ("diff", "refused", "unanswered")
"""Kinds of requests that a listener sends between two events."""


def every_epoch_is_told(case: Case) -> list[Violation]:
    """(c) A subscriber receives each epoch after the one it knew, once, in order, in time, as the tables have it."""
    found: list[Violation] = []
    for _, stream in groupby(case.record.heard, lambda heard: (heard.worker, heard.stream)):
        found += _of_stream(case, [heard for heard in stream if heard.kind not in _QUESTIONS])
    first: dict[int, Heard] = {}
    for heard in case.record.heard:
        if heard.kind != "epoch" or heard.epoch is None:
            continue
        before = first.setdefault(heard.epoch, heard)
        case.judged["event again"] += before is not heard
        if before.data != heard.data:
            found.append(_violation("one epoch is told in two ways", before, heard))
    for heard in first.values():
        found += [_violation(message, heard) for message in _of_event(case, heard)]
    return [*found, *_late(case)]


def _of_stream(case: Case, stream: list[Heard]) -> Iterator[Violation]:
    """One connection."""
    last = stream[0].after
    for heard in stream:
        epoch = heard.epoch
        if heard.kind == "reset":
            yield _violation(f"reset after {last}, in the lake that it knew", stream[0], heard)
        if epoch is None:
            continue
        if last is None:
            last = epoch
        if heard.kind == "epoch":
            case.judged["event of a topic" if heard.topic else "event"] += 1
            if epoch <= last:
                yield _violation(f"epoch {epoch} after epoch {last}", heard)
            last += 1 if epoch > last and not heard.topic else 0
        elif epoch < last:
            yield _violation(f"id {epoch} after epoch {last}", heard)
        missed = _missed(case, last, epoch - (heard.kind == "epoch"), heard.topic)
        if heard.topic and missed:
            yield _violation(f"nothing of epochs {missed}, which changed {heard.topic}", heard)
        elif not heard.topic and epoch > last:
            yield _violation(f"epoch {epoch} after {last}: something between them is missing", heard)
        last = max(last, epoch)


def _missed(case: Case, last: int, until: int, topic: str) -> list[int]:
    """The epochs after one, and up to another, that changed a topic."""
    nothing = frozenset[str](), frozenset[str]()
    return [epoch for epoch in range(last + 1, until + 1) if topic in case.evidence.changed.get(epoch, nothing)[0]]


def _of_event(case: Case, heard: Heard) -> Iterator[str]:
    """Yield the errors of an event, by the tables and by the model."""
    assert heard.epoch is not None
    row = case.epochs.get(heard.epoch)
    if row is None:
        yield f"epoch {heard.epoch} is not in routeCommitTable"
        return
    topics, brokers = frozenset(heard.data["topics"]), frozenset(heard.data["brokers"])
    if heard.data["offset"] != row.log_offset:
        yield f"offset {heard.data['offset']}, and {row.log_offset} in routeCommitTable"
    if (topics, brokers) != case.evidence.changed.get(heard.epoch, (frozenset(), frozenset())):
        yield f"names {case.evidence.changed.get(heard.epoch)} in routeChangeTable"
    if (heard.data["topicCount"], heard.data["brokerCount"]) != (len(topics), len(brokers)):
        yield "counts that are not those of its names"
    if heard.topic and heard.topic not in topics:
        yield f"told to who listens to {heard.topic}"
    for topic in TOPICS:
        if topic not in topics and not (_brokers_of_change(case, topic, heard.epoch) <= brokers):
            yield f"{topic} has another route since this epoch, by the model"


def _brokers_of_change(case: Case, topic: str, epoch: int) -> set[str]:
    """Broker groups in which a topic's routes before and after an epoch differ."""
    operation = Operation("route", ask={"topic": topic})
    try:
        forms = [case.expected.at_epoch(operation, number) for number in (epoch - 1, epoch)]
    except LookupError:  # no client asked for this topic
        return set()
    before, after = map(_groups, forms)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _groups(form: Form) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in [] if form is None else [*json.loads(form)["brokerDatas"], *json.loads(form)["queueDatas"]]:
        found.setdefault(row["brokerName"], []).append(row)
    return found


def _late(case: Case) -> Iterator[Violation]:
    """At each event of a subscriber, and at its end: it knows the epochs that its gateway showed seconds ago."""
    known: dict[int, tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
    told = [(heard.time_s, heard.gateway, heard.epoch) for heard in case.record.heard if heard.kind in ("epoch", "id")]
    told += [
        (entry.done_s, entry.gateway, entry.epoch)
        for entry in case.record.entries
        if entry.operation.kind in READS and entry.operation.kind != "as-of"
    ]
    for time_s, gateway, epoch in sorted((word for word in told if word[2] is not None), key=lambda word: word[0]):
        times, epochs = known[gateway]
        times.append(time_s)
        epochs.append(max(epoch or 0, epochs[-1] if epochs else 0))
    for _, connection in groupby(case.record.heard, lambda heard: (heard.worker, heard.stream)):
        stream = [*connection]
        begin, newest = stream[0], stream[0].after
        for heard in stream[1:]:
            if heard.kind in _QUESTIONS:
                continue
            newest = max(newest or 0, heard.epoch) if heard.epoch is not None else newest
            since_s = heard.time_s - LATE_S - _asking_s(stream, heard.time_s)
            if newest is None or since_s < begin.time_s or (heard.topic and heard.kind != "id"):
                continue
            if any(
                fault.kind in CUT_OFF and fault.begun_s <= heard.time_s and since_s <= fault.ended_s + case.well_limit_s
                for fault in case.record.faults
                if heard.gateway
            ):
                continue
            times, epochs = known[heard.gateway]
            count = bisect_right(times, since_s)
            case.judged["listener in time"] += 1
            if count and newest < epochs[count - 1]:
                yield _violation(
                    f"told up to {newest}, {LATE_S:.0f} s after {epochs[count - 1]} was there", begin, heard
                )
                break


def _asking_s(stream: list[Heard], time_s: float) -> float:
    """Return the seconds, in the minute before, that a listener waited for an answer of its own."""
    return sum(
        heard.time_s - heard.asked_s
        for heard in stream
        if heard.asked_s is not None and heard.asked_s < time_s and heard.time_s > time_s - 60.0
    )


# --- what is different ---


def differences(case: Case) -> list[Violation]:
    """(d) The difference of two epochs is that of the model's tables at both."""
    found = []
    for heard in case.record.heard:
        if heard.kind == "refused" and heard.data["status"] != 503:
            found.append(_violation(f"answered with {heard.data['status']}", heard, rule="differences"))
        if heard.kind != "diff" or heard.epoch is None or heard.after is None:
            continue
        case.judged["diff"] += 1
        before, after = case.expected.tables_at(heard.after), case.expected.tables_at(heard.epoch)
        if before is None or after is None:
            found.append(_violation("it is of an epoch that is not there", heard, rule="differences"))
            continue
        found += [_violation(message, heard, rule="differences") for message in _differs(heard, before, after)]
    return found


def _differs(heard: Heard, before: Tables, after: Tables) -> Iterator[str]:
    said: list[dict[Any, tuple[Any, ...]]] = [{}, {}, {}]
    for row in heard.data["differences"]:
        if row["tableName"] in _TABLES:
            place, key_of, value_of = _TABLES[row["tableName"]]
            values = (None if row[side] is None else value_of(row[side]) for side in ("before", "after"))
            said[place][key_of(row["key"])] = tuple(values)
    tables: tuple[tuple[Any, Any], ...] = tuple(zip(before, after, strict=True))
    for told, (old, new) in zip(said, tables, strict=True):
        for key in sorted({*old, *new, *told}, key=repr):
            right = old.get(key), new.get(key)
            if key in told and told[key] != right:
                yield f"{key} went from {told[key][0]} to {told[key][1]}, and by the model from {right[0]} to {right[1]}"
            elif key not in told and right[0] != right[1]:
                yield f"nothing of {key}, which went from {right[0]} to {right[1]} by the model"


_TABLES: Final[dict[str, tuple[int, Any, Any]]] = {
    "topicQueueTable": (
        0,
        lambda key: (key["topic"], key["brokerName"]),
        lambda row: (row["readQueueNums"], row["writeQueueNums"], row["perm"]),
    ),
    "brokerAddrTable": (
        1,
        lambda key: key["brokerName"],
        lambda row: {int(number): addr for number, addr in dict(row["brokerAddrs"]).items()},
    ),
    "kvConfigTable": (2, lambda key: (key["namespace"], key["key"]), lambda row: row["value"]),
}
"""Place in `Tables`, key and value of a row."""


def _violation(message: str, *heard: Heard, rule: str = "every_epoch_is_told") -> Violation:
    return Violation(rule, message, tuple(json.dumps(each.line(), ensure_ascii=False) for each in heard))
