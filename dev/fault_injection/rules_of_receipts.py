# SPDX-License-Identifier: Apache-2.0
"""The judge's rule about the answer to a write. As `dev.fault_injection.rules`, pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from dev.fault_injection.answers import Form, form_of
from dev.fault_injection.case import ORDER_TOPICS, Case, Violation, logged_line, of_entry, told, told_by
from dev.fault_injection.evidence import Logged
from dev.fault_injection.record import Entry


def receipts(case: Case) -> list[Violation]:
    """(b) The answer to a write agrees with the log and with the model."""
    found = []
    places = {id(entry): offset for entry, offset in case.places}
    for entry in case.record.entries:
        if not entry.is_write or entry.code is None:
            continue
        place = places.get(id(entry))
        if entry.via == "http":
            messages = [*_over_http(case, entry)]
        elif entry.operation.kind == "register" and entry.acknowledged:
            messages = [*_of_registration(case, entry, place)]
        elif entry.operation.kind == "query-version" and entry.acknowledged:
            messages = [*_of_version(case, entry)]
        else:
            continue
        case.judged["receipt"] += 1
        logged = case.expected.written.get(-1 if place is None else place)
        lines = (told(entry), *([logged_line(logged)] if logged is not None else []))
        found += [Violation("receipts", message, lines) for message in messages]
    return found


def _over_http(case: Case, entry: Entry) -> Iterator[str]:
    refused = entry.offset in case.expected.refused
    if entry.code == 409 and not refused:
        yield "refused, and not by the model"
    if not entry.acknowledged:
        return
    if refused:
        yield "taken, and the model refuses it"
    said = json.loads(entry.body)
    logged = None if entry.offset is None else case.expected.written.get(entry.offset)
    if logged is None:
        return
    time_ms = round(datetime.fromisoformat(said["eventTime"]).timestamp() * 1000) if "eventTime" in said else None
    if time_ms != logged.time_ms:
        yield f"eventTime {said.get('eventTime')}, and {logged.time_ms} on the log"
    if said.get("epoch") and said["epoch"] not in case.epochs:
        yield f"epoch {said['epoch']} is not in routeCommitTable"
    if said.get("outcome") == "unchanged" and _changed(case, logged):
        yield "unchanged, and by the model something else is answered since"


def _changed(case: Case, logged: Logged) -> bool:
    """Return whether an event changed an answer, without the help of an expiry."""
    return logged.offset in case.expected.changed_at and logged.offset not in case.expected.noticed_at


def _of_registration(case: Case, entry: Entry, place: int | None) -> Iterator[str]:
    """Check the master named to a slave, and the order topics named to all, after the registration itself."""
    broker = entry.operation.broker
    assert broker is not None
    if of_entry(entry) in case.refused:
        return  # or the same was, at another time
    first = case.floor(entry.sent_s, entry.gateway) if place is None else place
    last = max(first, case.ceiling(entry.done_s))
    members, order_topics = told_by(entry.operation)
    ext = entry.ext or {}
    said = ext.get("masterAddr"), ext.get("haServerAddr")
    right = {_master(form) if broker.id else (None, None) for form in case.expected.forms(members, first, last)}
    if said not in right:
        yield f"master {said}, and {sorted(right, key=repr)} by the model"
    if _table(entry) not in case.expected.forms(order_topics, first, last):
        yield f"order topics {entry.body}"


def _master(form: Form) -> tuple[str | None, str | None]:
    addrs: dict[str, str] = {} if form is None else json.loads(form)["brokerMemberGroup"]["brokerAddrs"]
    addr = addrs.get("0")
    return addr, None if addr is None else addr.replace("10911", "10912")


def _table(entry: Entry) -> Form:
    if not entry.body:
        return None
    return form_of(Entry("", "remoting", "", ORDER_TOPICS, 0.0, 0.0, 0, entry.body))


def _of_version(case: Case, entry: Entry) -> Iterator[str]:
    """DataVersion as it was at some time while this was under way; `changed`, compared with what was asked."""
    operation = entry.operation
    right = case.expected.forms(operation, case.floor(entry.sent_s, entry.gateway), case.ceiling(entry.done_s))
    form = form_of(entry)
    if form not in right:
        yield f"version {form}, and {right} by the model"
    known: Any = None if form is None else json.loads(form)
    changed = (entry.ext or {}).get("changed")
    if changed != str(known != operation.data_version).lower():
        yield f"changed is {changed}, of {known}"
