# SPDX-License-Identifier: Apache-2.0
"""The judge's rule about refusals and silence. As `dev.fault_injection.rules`, pure."""

from __future__ import annotations

from typing import Final

from dev.fault_injection.answers import form_of
from dev.fault_injection.case import NOT_MODIFIED, Case, Violation, told
from dev.fault_injection.effects import MUTE, UNWRITABLE, kept_away, near
from dev.fault_injection.record import Entry

_HTTP_REFUSALS: Final = {503}
_HTTP_ANSWERS: Final = {200, 202}
_DURABLE_ALONE: Final = 202
_NOT_YOURS: Final = 409
"""The rules refuse a registration: `dev.fault_injection.rules_of_receipts` judges whether they do."""
_THE_PAST: Final = {404, 410}
"""`dev.fault_injection.rules_of_past` judges these."""
_REMOTING_REFUSALS: Final = {2}
_REMOTING_ANSWERS: Final = {0}


def refusals(case: Case) -> list[Violation]:
    """(g) A request without an answer got an error that says to try again, and only while a fault was the reason."""
    found = []
    for entry in case.record.entries:
        if entry.operation.one_way and not entry.error:
            continue
        what = _refused(entry)
        if what is None:
            if not _is_answer(entry):
                found.append(Violation("refusals", f"answered with {entry.code}", (told(entry),)))
            continue
        case.judged[what] += 1
        if not _has_a_reason(case, entry) and not _waits_for_the_fold(entry):
            found.append(Violation("refusals", f"{what}, and no fault is the reason", (told(entry),)))
    return found


def _refused(entry: Entry) -> str | None:
    """Return the kind of failure of a request; None if it succeeded."""
    kind = "write" if entry.is_write else "read"
    if entry.code is None:
        return f"unanswered {kind}"
    if entry.code in (_REMOTING_REFUSALS if entry.via == "remoting" else _HTTP_REFUSALS):
        return f"refused {kind}"
    return "write not shown" if entry.is_write and entry.code == _DURABLE_ALONE else None


def _has_a_reason(case: Case, entry: Entry) -> bool:
    """Return whether a fault is the reason, at its gateway, or keeps that gateway from coming back."""
    span = entry.gateway, entry.sent_s, entry.done_s
    return near(case, UNWRITABLE if entry.is_write else MUTE, *span) or kept_away(case, *span)


def _waits_for_the_fold(entry: Entry) -> bool:
    """Return whether a request waits for an epoch: no rule limits that time, which a busy machine may exceed."""
    return entry.code is not None and entry.asked.get("reads") == "committed" and "wait_for" in entry.asked


def _is_answer(entry: Entry) -> bool:
    if entry.is_write:
        refused = entry.operation.kind == "register" and entry.via == "http" and entry.code == _NOT_YOURS
        return refused or entry.code in (_REMOTING_ANSWERS if entry.via == "remoting" else _HTTP_ANSWERS)
    if entry.code == NOT_MODIFIED or (entry.operation.kind == "as-of" and entry.code in _THE_PAST):
        return True
    try:
        form_of(entry)
    except LookupError:
        return False
    return True
