# SPDX-License-Identifier: Apache-2.0
"""JSON answers of the HTTP API. Handlers encode these types, and the API description is made from them.

Routes and clusters are encoded by `schemas.rocketmq_json`, and their types are in `schemas.route`. Rows of the past
that may be sent as CSV, too, are written by `lake.history.change_json`. The tests compare them with the types below.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lake.history.activity import ActivityPoint
from lake.history.diff import Difference
from lake.history.lifelines import Life, WriteTurn
from lake.history.provenance import Cause
from schemas.broker import DataVersion
from schemas.route import BrokerData


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Base of the answers. Unknown members are refused, wire names are in camelCase, and defaults are left out."""


# --- problems ---


class FieldProblem(Answer, frozen=True, kw_only=True):
    """One field that is wrong, by its path, such as `topicConfigSerializeWrapper.dataVersion.counter`."""

    field: str
    message: str


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9457 problem details. Kinds add members of their own."""

    type: Annotated[str, Meta(description="URI of the kind of problem")]
    title: str
    status: int
    detail: Annotated[str, Meta(description="description of this case, for a person")]
    code: Annotated[int, Meta(description="RocketMQ's ResponseCode")]
    errors: list[FieldProblem] | None = None


# --- writes ---


class ReceiptAnswer(Answer, frozen=True, kw_only=True):
    """Receipt of a write. `offset` is the token that reads can wait for."""

    offset: int
    event_time: Annotated[str, Meta(description="event time of the write on the event log, RFC 3339")]
    visible: Annotated[bool, Meta(description="true: the live view of this gateway shows the effect")]
    epoch: Annotated[int, Meta(description="latest epoch at this gateway. The write is in a later one")]
    outcome: Annotated[
        Literal["applied", "unchanged", "accepted"],
        Meta(
            description="applied: the write changed the state. unchanged: the state already had this content. "
            "accepted: the write is durable, and its outcome is not known yet"
        ),
    ]


class RegistrationAnswer(ReceiptAnswer, frozen=True, kw_only=True):
    """Receipt of a registration. A slave gets the addresses of its master, if the master is registered."""

    master_addr: str | None = None
    ha_server_addr: str | None = None
    order_topic_conf: Annotated[
        dict[str, str] | None,
        Meta(description="entries of namespace ORDER_TOPIC_CONFIG. Absent: no such namespace"),
    ] = None


class HeartbeatAnswer(ReceiptAnswer, frozen=True, kw_only=True):
    """Receipt of a heartbeat. A broker that is not `known` should register."""

    known: bool


class WipeAnswer(ReceiptAnswer, frozen=True, kw_only=True):
    """Receipt of a wipe. It counts the topics that have a row for the broker, changed or not."""

    wipe_topic_count: int | None = None


class AddAnswer(ReceiptAnswer, frozen=True, kw_only=True):
    """Receipt of an add. It counts the topics that have a row for the broker, changed or not."""

    add_topic_count: int | None = None


# --- topics and brokers ---


class TopicSums(Answer, frozen=True, kw_only=True):
    """A topic and its broker groups together. Sums count all queues, with any permission."""

    topic_name: str
    clusters: list[str]
    brokers: Annotated[int, Meta(description="number of broker groups with the topic")]
    read_queue_nums: int
    write_queue_nums: int
    perms: Annotated[list[int], Meta(description="different permissions of its broker groups")]


class TopicListAnswer(Answer, frozen=True, kw_only=True):
    """A page of topic names in order. `nextCursor` leads to the next page and is absent on the last."""

    topic_list: list[str]
    total: Annotated[int, Meta(description="number of topics that match the filter, on all pages")]
    topics: Annotated[list[TopicSums] | None, Meta(description="one row for each name. Absent without `details`")] = (
        None
    )
    next_cursor: str | None = None


class LiveBroker(Answer, frozen=True, kw_only=True):
    """A live broker address. Times are milliseconds since the epoch, on the event log's clock."""

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: Annotated[int | None, Meta(description="id in its broker group. Absent: another address took it")] = None
    ha_server_addr: str | None = None
    last_update_timestamp: Annotated[
        int, Meta(description="last registration or heartbeat. Updated at most every ten seconds")
    ]
    heartbeat_timeout_millis: int
    expire_timestamp: Annotated[
        int, Meta(description="deadline: the broker expires after it, unless a heartbeat arrives before")
    ]
    data_version: DataVersion


class BrokerListAnswer(Answer, frozen=True, kw_only=True):
    """Live broker addresses."""

    brokers: list[LiveBroker]


class BrokerAnswer(BrokerData, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A broker group and its live addresses."""

    topic_count: int
    live: list[LiveBroker]


# --- KV configuration and settings ---


class KvTableAnswer(Answer, frozen=True, kw_only=True):
    """A namespace of KV configuration."""

    namespace: str
    table: dict[str, str]


class KvAnswer(Answer, frozen=True, kw_only=True):
    """One entry of KV configuration."""

    namespace: str
    key: str
    value: str


class ConfigAnswer(Answer, frozen=True, kw_only=True):
    """Settings that GET_NAMESRV_CONFIG shows."""

    config: Annotated[dict[str, str], Meta(description="values in Java's notation, by RocketMQ's names")]


class SelfPreservationAnswer(Answer, frozen=True, kw_only=True):
    """State of self-preservation: whether expiry pauses, and the numbers that decide it."""

    percent: Annotated[int, Meta(description="share of silent brokers above which expiry pauses, in percent. 0: never")]
    is_on: Annotated[bool, Meta(description="true: expiry is paused at present")]
    since: Annotated[str | None, Meta(description="event time at which expiry was paused, RFC 3339")] = None
    until: Annotated[str | None, Meta(description="latest end of the pause by this gateway's limit, RFC 3339")] = None
    live: Annotated[int, Meta(description="number of live broker addresses")]
    silent: Annotated[
        int, Meta(description="number of live broker addresses without a heartbeat for more than half of their timeout")
    ]


# --- health ---


class Check(Answer, frozen=True, kw_only=True):
    """One condition of readiness."""

    ok: bool
    reason: str | None = None


class ReadyAnswer(Answer, frozen=True, kw_only=True):
    """Readiness of the gateway: whether it answers routes, and its problems."""

    ready: bool
    epoch: int
    offset: int
    routes_age_seconds: Annotated[
        float | None,
        Meta(description="age of the newest event in the routes, in seconds. Absent: there is no event yet"),
    ] = None
    checks: dict[str, Check]


class FoldLag(Answer, frozen=True, kw_only=True):
    """Lag of the tables."""

    epochs: Annotated[int, Meta(description="number of epochs that the fold has written and this gateway has not read")]
    events: Annotated[int, Meta(description="number of events in the live view of this gateway that no epoch has yet")]
    seconds: Annotated[
        float | None, Meta(description="time since the last status of the fold, in seconds. Absent: there is no status")
    ] = None


class FoldHealthAnswer(Check, frozen=True, kw_only=True):
    """Last status of the fold."""

    epoch: int | None = None
    offset: Annotated[int | None, Meta(description="log offset up to which the fold has folded everything")] = None
    lag: FoldLag


class HealthAnswer(Answer, frozen=True, kw_only=True):
    """The process is alive. All but `status` is for readers."""

    status: Literal["ok"]
    version: str | None = None
    gateway: str | None = None
    uptime_seconds: float | None = None


# --- the past ---


class Change(Answer, frozen=True, kw_only=True):
    """A row of routeChangeTable: a changed row, a command or a refusal.

    `before` is absent if there was no row. `after` is absent if the row was removed.
    """

    epoch: int
    offset: int
    seq: int
    event_time: str
    command: str
    outcome: Literal["applied", "unchanged", "rejected"]
    reason: Annotated[str | None, Meta(description="cause of the rejection")] = None
    actor: Annotated[dict[str, Any] | None, Meta(description="sender of the command. Absent for an expiry")] = None
    table_name: Annotated[
        str | None, Meta(description="state table of the changed row. Absent: the command itself")
    ] = None
    broker_name: str | None = None
    topic: str | None = None
    key: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class ChangesAnswer(Answer, frozen=True, kw_only=True):
    """Changes, newest first. `nextCursor` leads to older ones and is absent at the end."""

    changes: list[Change]
    next_cursor: str | None = None


class PointInTime(Answer, frozen=True, kw_only=True):
    """One point in time of all tables. For a time within an epoch: the epoch before, and the last change until then."""

    epoch: int
    event_time: str


class DiffAnswer(Answer, frozen=True, kw_only=True):
    """Differences between two epochs. `nextCursor` leads to the next page and is null on the last."""

    from_: PointInTime = msgspec.field(name="from")
    to: PointInTime
    differences: list[Difference]
    next_cursor: str | None


class _Interval(Answer, frozen=True, kw_only=True):
    """Interval with its begin, its end (null: still open), and the causes of both."""

    from_: str = msgspec.field(name="from")
    to: str | None
    from_epoch: int
    to_epoch: int | None
    begun_by: Cause
    ended_by: Cause | None


class TopicBroker(Answer, frozen=True, kw_only=True):
    """A broker group that has a topic. `brokerAddrs` is null if the group itself does not exist."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int
    broker_addrs: dict[str, str] | None


class TopicInterval(_Interval, frozen=True, kw_only=True):
    """A state of a topic's route. It may have no brokers. Only queues that may be used are counted."""

    writable: bool
    readable: bool
    write_queue_nums: int
    read_queue_nums: int
    brokers: list[TopicBroker]


class TopicTimelineAnswer(Answer, frozen=True, kw_only=True):
    """Intervals without gaps, newest first. `nextCursor` leads to older ones and is absent at the end."""

    intervals: list[TopicInterval]
    next_cursor: str | None = None


class LiveAddress(Answer, frozen=True, kw_only=True):
    """An address that was heard in time."""

    cluster_name: str
    broker_addr: str


class BrokerInterval(_Interval, frozen=True, kw_only=True):
    """A state of a broker group. `brokerAddrs` is null if there was no such group."""

    alive: bool
    cluster: str | None
    broker_addrs: dict[str, str] | None
    live: list[LiveAddress]


class BrokerTimelineAnswer(Answer, frozen=True, kw_only=True):
    """Intervals of a broker group."""

    intervals: list[BrokerInterval]
    next_cursor: str | None = None


class BlameField(Answer, frozen=True, kw_only=True):
    """A field of a route, with the sender and time of its value. `brokerAddrs.0` is the address of brokerId 0."""

    table_name: str
    broker_name: str
    field: str
    value: Any
    epoch: int
    event_time: str
    set_by: Cause


class BlameAnswer(Answer, frozen=True, kw_only=True):
    """The fields of a topic's route at a point in time."""

    as_of: PointInTime
    fields: list[BlameField]


class ReportSpecAnswer(Answer, frozen=True, kw_only=True):
    """Definition of a report: its chart, and the changes behind a row.

    The changes are those of `GET /v1/changes` with `fixedFilters` and `filters`, after the epoch before the row's
    `firstEpoch`, up to its `lastEpoch`.
    """

    name: str
    title: str
    row: Annotated[str, Meta(description="meaning of a row")]
    label: Annotated[str, Meta(description="column with the names of the bars of a chart")]
    values: Annotated[list[str], Meta(description="columns in the chart, in one unit")]
    filters: Annotated[dict[str, str], Meta(description="columns by filter. A null value is no filter")]
    fixed_filters: Annotated[dict[str, str], Meta(description="values by filter")]
    times: Annotated[int | None, Meta(description="default of `times`. Absent: the report has no `times`")] = None


class ReportsAnswer(Answer, frozen=True, kw_only=True):
    """All reports."""

    reports: list[ReportSpecAnswer]


class ReportAnswer(Answer, frozen=True, kw_only=True):
    """Rows of a report, by column. `from` is absent where it is from the beginning, `nextCursor` on the last page."""

    report: str
    from_: str | None = msgspec.field(name="from", default=None)
    to: Annotated[str | None, Meta(description="end of the report's time. Absent: there is no event yet")] = None
    columns: Annotated[list[str], Meta(description="names of the columns, in order")]
    rows: list[dict[str, Any]]
    sql: Annotated[str | None, Meta(description="query for all rows, for the command `sql`")] = None
    next_cursor: str | None = None


class ActivityAnswer(Answer, frozen=True, kw_only=True):
    """Changes counted into points of equal width, in order. Points without a change are left out."""

    epoch: Annotated[int, Meta(description="epoch of the answer. 0: there is no epoch yet")]
    first: Annotated[int, Meta(description="start of the window: millisecond since 1970 UTC, or epoch")]
    last: int
    by: Literal["time", "epoch"]
    width: Annotated[int, Meta(description="width of a point, in milliseconds or epochs")]
    points: list[ActivityPoint]


class LifelinesAnswer(Answer, frozen=True, kw_only=True):
    """Lives that reach into the window."""

    epoch: Annotated[int, Meta(description="epoch of the answer. 0: there is no epoch yet")]
    from_: str = msgspec.field(name="from")
    to: str
    lives: list[Life]
    write_turns: list[WriteTurn]
    left_out: Annotated[
        int, Meta(description="number of older lives that the answer omits because of its size. Absent: none")
    ] = 0
    write_turns_left_out: Annotated[
        int, Meta(description="number of older turns that the answer omits because of its size. Absent: none")
    ] = 0


class Epoch(Answer, frozen=True, kw_only=True):
    """A row of routeCommitTable: one consistent commit of all tables."""

    epoch: int
    log_offset: int
    event_time: str
    watermark: str
    commit_time: str
    versions: Annotated[dict[str, int], Meta(description="Delta version by table name")]


class EpochsAnswer(Answer, frozen=True, kw_only=True):
    """Epochs, newest first. `nextBefore` leads to older ones and is absent at the end."""

    epochs: list[Epoch]
    next_before: int | None = None
