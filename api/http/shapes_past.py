# SPDX-License-Identifier: Apache-2.0
"""Shapes of the answers about the past: changes, differences, timelines, blame, epochs (see `api.http.shapes`)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.http.shapes import Shape


class ChangeShape(Shape):
    """A row of routeChangeTable: a changed row, a command or a refusal.

    Without `before` there was no row, without `after` there is none any more.
    """

    epoch: int
    offset: int
    seq: int
    event_time: str
    command: str
    outcome: Literal["applied", "unchanged", "rejected"]
    reason: str | None = Field(None, description="why it was rejected")
    actor: dict[str, Any] | None = Field(None, description="who sent it; absent for an expiry")
    table_name: str | None = Field(None, description="table of the changed row; absent: about the command itself")
    broker_name: str | None = None
    topic: str | None = None
    key: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class ChangesShape(Shape):
    """Changes, newest first. `nextCursor` leads to older ones and is absent at the end."""

    changes: list[ChangeShape]
    next_cursor: str | None = None


class CutShape(Shape):
    """One moment of all tables. For a time within an epoch: the epoch before, and the last change until then."""

    epoch: int
    event_time: str


class DifferenceShape(Shape):
    """A row that two cuts show differently: `i` only the later one has it, `d` only the earlier one, `u` both."""

    table_name: str
    op: Literal["i", "u", "d"]
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class DiffShape(Shape):
    """What is different between two cuts. `nextCursor` leads to the next page and is null on the last."""

    from_: CutShape = Field(alias="from")
    to: CutShape
    differences: list[DifferenceShape]
    next_cursor: str | None


class CauseShape(Shape):
    """What made a change. `offset` is the log offset; of an expiry, its broker's last heartbeat's."""

    command: str
    actor: dict[str, Any] | None
    offset: int


class _IntervalShape(Shape):
    """From when, until when (null: still), and what began and ended it."""

    from_: str = Field(alias="from")
    to: str | None
    from_epoch: int
    to_epoch: int | None
    begun_by: CauseShape
    ended_by: CauseShape | None


class TopicBrokerShape(Shape):
    """A broker group that holds a topic; `brokerAddrs` is null where the group itself is not there."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int
    broker_addrs: dict[str, str] | None


class TopicIntervalShape(_IntervalShape):
    """A state of a topic's route; without brokers where it had none. Queues are those that may be used."""

    writable: bool
    readable: bool
    write_queue_nums: int
    read_queue_nums: int
    brokers: list[TopicBrokerShape]


class TopicTimelineShape(Shape):
    """Intervals, newest first; without a hole. `nextCursor` leads to older ones and is absent at the end."""

    intervals: list[TopicIntervalShape]
    next_cursor: str | None = None


class LiveAddressShape(Shape):
    """An address that was heard in time."""

    cluster_name: str
    broker_addr: str


class BrokerIntervalShape(_IntervalShape):
    """A state of a broker group; `brokerAddrs` is null where there was no such group."""

    alive: bool
    cluster: str | None
    broker_addrs: dict[str, str] | None
    live: list[LiveAddressShape]


class BrokerTimelineShape(Shape):
    """As a topic's."""

    intervals: list[BrokerIntervalShape]
    next_cursor: str | None = None


class BlameFieldShape(Shape):
    """A field of a route, and who set it to this value, when. `brokerAddrs.0` is the address of brokerId 0."""

    table_name: str
    broker_name: str
    field: str
    value: Any
    epoch: int
    event_time: str
    set_by: CauseShape


class BlameShape(Shape):
    """The fields of a topic's route at a moment."""

    as_of: CutShape
    fields: list[BlameFieldShape]


class ReportShape(Shape):
    """Rows of a report, by column. `from` is absent where it is from the beginning, `nextCursor` on the last page."""

    report: str
    from_: str | None = Field(None, alias="from")
    to: str | None = Field(None, description="absent: nothing has happened yet")
    columns: list[str] = Field(description="their names, in order")
    rows: list[dict[str, Any]]
    next_cursor: str | None = None


class EpochShape(Shape):
    """A row of routeCommitTable: a consistent cut of all tables."""

    epoch: int
    log_offset: int
    event_time: str
    watermark: str
    commit_time: str
    versions: dict[str, int] = Field(description="table name to Delta version")


class EpochsShape(Shape):
    """Epochs, newest first. `nextBefore` leads to older ones and is absent at the end."""

    epochs: list[EpochShape]
    next_before: int | None = None
