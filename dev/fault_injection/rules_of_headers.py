# SPDX-License-Identifier: Apache-2.0
"""The judge's rule about the headers of a read over HTTP: epoch, offset, ETag. As `dev.fault_injection.rules`, pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dev.fault_injection.case import NOT_MODIFIED, Case, Violation, digest_of, told
from dev.fault_injection.operations import READS
from dev.fault_injection.record import Entry


def headers(case: Case) -> list[Violation]:
    """(b) Epoch and offset of an answer are of one epoch. A 304 is for the content of the ETag that was sent."""
    found = []
    known: dict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for entry in sorted(case.record.entries, key=lambda entry: entry.done_s):
        if entry.via != "http" or entry.operation.kind not in READS or entry.code not in (200, NOT_MODIFIED):
            continue
        if not case.expected.knows(entry.operation):
            continue
        case.judged["headers"] += 1
        tags = known[entry.worker, entry.operation.subject]
        messages = [
            *_of_position(case, entry),
            *(_of_tag(entry, tags) if entry.code == NOT_MODIFIED else ()),
        ]
        found += [Violation("headers", message, (told(entry),)) for message in messages]
        if entry.code == 200:
            tags.add(digest_of(entry.tag))
    return found


def _of_position(case: Case, entry: Entry) -> Iterator[str]:
    if entry.offset is None or entry.epoch is None:
        yield "neither epoch nor offset, or one of them alone"
        return
    row = case.epochs.get(entry.epoch)
    if row is None:
        if entry.epoch:
            yield f"there is no epoch {entry.epoch}"
        return
    if entry.offset < row.log_offset:
        yield f"offset {entry.offset}, and epoch {entry.epoch} goes up to {row.log_offset}"
    if entry.operation.kind == "as-of" and not entry.operation.by_time and entry.offset != row.log_offset:
        yield f"offset {entry.offset}, and epoch {entry.epoch} goes up to {row.log_offset}"
    if entry.asked.get("reads") == "committed":
        # Quiet stretches make no epoch, and who expires is in the tables at another time.
        changes = [
            logged.offset
            for logged in case.expected.changes(entry.operation, row.log_offset, entry.offset)
            if logged.offset not in case.expected.noticed_at
        ]
        if changes:
            yield f"offset {entry.offset}, and epoch {entry.epoch} has not what is at {changes[0]}"
        if entry.offset < int(entry.asked.get("wait_for", -1)):
            yield f"offset {entry.offset}, and {entry.asked['wait_for']} was to be waited for"


def _of_tag(entry: Entry, tags: set[str]) -> Iterator[str]:
    asked = entry.asked.get("if_none_match", "")
    if digest_of(asked) != digest_of(entry.tag):
        yield f"304 for {entry.tag}, asked with {asked}"
    if digest_of(asked) not in tags:
        yield f"304 for {asked}, which nobody was told"
