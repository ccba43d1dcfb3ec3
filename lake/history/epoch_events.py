# SPDX-License-Identifier: Apache-2.0
"""Events of `GET /v1/events`, one per epoch, with the changed topics and broker groups. Also for missed epochs."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from lake.delta import query
from lake.history.history import History
from schemas.errors import UnavailableError
from schemas.route_commit import EpochMark

MAX_EPOCHS: Final = 1000
"""Maximum number of missed epochs that are sent. A subscriber that missed more uses `GET /v1/diff`."""


class EpochEvent(msgspec.Struct, frozen=True):
    """Changes of an epoch, empty if only heartbeat times changed.

    Attributes:
        topics: Topics with a changed row, or named by a command.
        brokers: Broker groups with a changed row, or named by a command.
        digest: Digest of the commit (`lake.commits.EpochMark`).
    """

    epoch: int
    event_time: datetime
    offset: int
    topics: frozenset[str]
    brokers: frozenset[str]
    digest: str = ""

    @property
    def mark(self) -> EpochMark:
        """Position that a client stores after this event."""
        return EpochMark(self.epoch, self.digest)


def epoch_events(history: History, last: EpochMark, up_to: int) -> list[EpochEvent] | None:
    """The events of the epochs after one, in order.

    None if there are more than `MAX_EPOCHS`, if some are no longer recorded, or if the given one is of another lake.

    Raises:
        UnavailableError: The tables cannot be read now, or do not have these epochs yet.
    """
    if history.is_empty():
        raise UnavailableError("nothing has been committed yet")
    after = last.epoch
    if up_to - after > MAX_EPOCHS:
        return None
    commits = history.commits(list(range(max(after, 1), up_to + 1)))
    before = commits.pop(after, None)
    if last.digest and (before is None or not before.mark.may_be(last)):
        return None
    if len(commits) != up_to - after:
        if history.event_time(up_to) is None:
            raise UnavailableError(f"epoch {up_to} cannot be read yet")
        return None
    names: dict[int, tuple[set[str], set[str]]] = {epoch: (set(), set()) for epoch in commits}
    if names:
        with history.reading_changes() as table:
            rows = query.select(
                table,
                f'SELECT DISTINCT "epoch", "topic", "brokerName" FROM t WHERE "epoch" BETWEEN {after + 1} AND {up_to}',  # noqa: S608
            )
        columns = (rows[name].to_pylist() for name in ("epoch", "topic", "brokerName"))
        for epoch, topic, broker_name in zip(*columns, strict=True):
            topics, brokers = names[epoch]
            topics.add(topic)
            brokers.add(broker_name)
    return [
        EpochEvent(
            epoch,
            commits[epoch].event_time,
            commits[epoch].log_offset,
            frozenset(names[epoch][0] - {None}),
            frozenset(names[epoch][1] - {None}),
            commits[epoch].mark.digest,
        )
        for epoch in sorted(commits)
    ]
