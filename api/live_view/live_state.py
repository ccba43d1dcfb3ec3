# SPDX-License-Identifier: Apache-2.0
"""LiveState: the state at an offset of the event log, and the route view of that state. No I/O, no clock, no thread.

It begins at an epoch in which brokerLiveTable lacks no heartbeat. It applies each later record once, by the same `step`
as the fold. The next view differs only by the broker groups that records touched since the last view. So a heartbeat
costs the same for a group of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from api.live_view.check import Check, Comparison
from nameserver.state_machine.changes import kv_changes
from nameserver.state_machine.replay import Record, read_event
from nameserver.state_machine.state import At, BrokerGroup, TopicRows, TopicTable
from nameserver.state_machine.step import KvChange, Step, apply, step
from nameserver.view.conversions import changes_to, state_of, topics_of
from nameserver.view.model import Changes
from nameserver.view.snapshot import RouteView, no_pause
from schemas.errors import EventDecodeError
from schemas.events import AccessRefused, AnyEvent, BrokerHeartbeat, Clock, Resume
from schemas.outcomes import QUARANTINED, REJECTED, UNCHANGED
from schemas.route_commit import CommandOutcome, RouteCommit

_NO_COMMANDS: Final = (BrokerHeartbeat, AccessRefused, Clock)
"""Events without a sender that waits for an outcome."""

_LOADED_ROWS: Final = 500_000
"""Maximum number of topics that are held by broker group, in addition to the view. They take about 50 MB."""


class LiveState:
    """The state at the end of the event log, and a view of it.

    Attributes:
        view: View after the last `publish`.
        offset: Offset of the last record that was taken.
        gateway_id: Gateway that has written the last readable record.
        is_urgent: Whether a record since the last `publish` may change an answer.
    """

    def __init__(self, view: RouteView, *, everything: bool = False) -> None:
        """Begin at a view.

        Args:
            view: View of an epoch with a livenessOffset equal to its logOffset.
            everything: Compare all rows of the next epoch, not only the changed ones.
        """
        self.view = view.apart()
        self.offset = view.log_offset
        self.gateway_id = ""
        self.is_urgent = False
        self._state = state_of(view, self._topics)
        self._check = Check(everything=everything)
        self._loaded: dict[str, int] = {}
        """Groups with topics that were loaded and are still held -> number of these topics."""
        self._shown: dict[str, BrokerGroup] = {}
        """Groups that records touched since the last `publish`, as the view shows them."""
        self._entries: dict[tuple[str, str], tuple[str | None] | None] = {}
        """KV entries that records touched since the last `publish`: the current row, or None without a row."""

    def take(self, record: Record) -> CommandOutcome | None:
        """Apply one record. The view does not show it until `publish`.

        Returns:
            Outcome of a command. None for a record without a command: a heartbeat, a refusal, CLOCK or not an event.
        """
        self.offset = record.offset
        try:
            event = read_event(record)
        except EventDecodeError:
            self._state.now_ms = max(self._state.now_ms, record.event_time_ms)
            return None  # in quarantine, as in the tables: its sender got a refusal, or it has no sender
        self.gateway_id = event.actor.gateway
        try:
            done = step(self._state, event, At(record.offset, record.event_time_ms))
        except Exception:  # a defect in a rule, for which the fold quarantines the record, too
            self._state.now_ms = max(self._state.now_ms, record.event_time_ms)
            self.is_urgent = True
            return CommandOutcome(record.offset, REJECTED, QUARANTINED)
        for change in done.changes:
            self._check.took(change, record.offset)
            if isinstance(change, KvChange):
                self._entries.update({(row.key[0], row.key[1]): row.after for row in kv_changes(change)})
                continue
            self._shown.setdefault(change.before.broker_name, change.before)
            if change.event is None:  # an expiry
                self.is_urgent = True
        apply(self._state, done)
        if isinstance(event, _NO_COMMANDS) or _is_no_silence(event, done):
            return None
        outcome = done.outcome
        if outcome.verdict != UNCHANGED:
            self.is_urgent = True
        result = None if outcome.result is None else dict(outcome.result)
        return CommandOutcome(record.offset, outcome.verdict, outcome.reason, result)

    def publish(self, epoch: RouteCommit, pause: Callable[[], None] = no_pause) -> RouteView:
        """Return the view after all records that were taken.

        Args:
            epoch: Latest epoch in the view, or the epoch at which the live view began.
            pause: Called often, between small pieces of work.
        """
        event_time = datetime.fromtimestamp(self._state.now_ms / 1000, UTC)
        preserved_ms = self._state.preserved_ms
        commit = msgspec.structs.replace(
            epoch,
            log_offset=self.offset,
            liveness_offset=self.offset,
            event_time=event_time,
            watermark=datetime.fromtimestamp(self._state.watermark_ms / 1000, UTC),
            preserve_time=datetime.fromtimestamp(preserved_ms / 1000, UTC) if preserved_ms else None,
        )
        groups = self._state.groups
        touched = [(before, groups.get(name) or BrokerGroup(name)) for name, before in self._shown.items()]
        changes = changes_to(commit, touched, self._entries)
        self.view = self.view.apply(changes, pause)
        self._check.showed(changes.topics)
        self._unload(after for before, after in touched if after.topics is not before.topics)
        self._shown.clear()
        self._entries = {}
        self.is_urgent = False
        return self.view

    def moved(self, changes: Changes | None) -> None:
        """Note a step of the tables, for `compare`. None: their view was loaded as a whole."""
        self._check.moved(changes)

    def compare(self, tables: RouteView, pause: Callable[[], None] = no_pause) -> Comparison:
        """Compare the state up to an epoch's offset with the tables.

        Args:
            tables: View of the epoch. Its offset must be reached, and urgent changes must be published.
            pause: Called often.
        """
        return self._check.compare(tables, self._state, self.view, pause)

    @property
    def is_shown(self) -> bool:
        """Return whether the view shows all records that were taken."""
        return self.view.log_offset == self.offset

    def _unload(self, changed: Iterable[BrokerGroup]) -> None:
        """Drop changed topics, because the view has them now. A rule that needs them loads them from the view."""
        for group in changed:
            if group.broker_name in self._state.groups:
                self._state.groups[group.broker_name] = replace(group, topics=self._topics(group.broker_name))
        if sum(self._loaded.values()) > _LOADED_ROWS:
            for name in self._loaded.keys() & self._state.groups.keys():
                self._state.groups[name].topics.unload()
            self._loaded.clear()

    def _topics(self, broker_name: str) -> TopicTable:
        """Return a group's topics, loaded from the view when a rule needs them. No event has changed them since."""
        return TopicTable(load=partial(self._load, broker_name), find=partial(self._has, broker_name))

    def _load(self, broker_name: str) -> TopicRows:
        rows = topics_of(self.view, broker_name)
        self._loaded[broker_name] = len(rows)
        return rows

    def _has(self, broker_name: str, topic: str) -> bool:
        rows = self.view.topics.get(topic)
        return rows is not None and rows.find(broker_name) is not None


def _is_no_silence(event: AnyEvent, done: Step) -> bool:
    """Return whether an event is a RESUME in time. It precedes every append, and no sender waits for it."""
    return isinstance(event, Resume) and done.outcome.verdict == UNCHANGED
