# SPDX-License-Identifier: Apache-2.0
"""What goes out over HTTP: the shapes of the answers, for the API description and the tests.

Answers are written as bytes (`msgspec`, the cache of encoded routes); the tests hold them against these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Shape(BaseModel):
    """Closed; wire names in camelCase. An optional member is absent rather than null."""

    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel)


class FieldProblem(Shape):
    """One field that is wrong."""

    field: str
    message: str


class ProblemDetails(BaseModel):
    """RFC 9457 problem details. Kinds add members of their own."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: str = Field(description="URI of the kind of problem")
    title: str
    status: int
    detail: str = Field(description="for a person")
    code: int = Field(description="RocketMQ's ResponseCode")
    errors: list[FieldProblem] | None = None


class ReceiptShape(Shape):
    """What became of a write. `offset` is the token that reads can wait for."""

    offset: int
    event_time: str = Field(description="event time on the log, RFC 3339")
    visible: bool = Field(description="whether reads of the head of the log show the effect at this gateway")
    epoch: int = Field(description="latest epoch that this gateway has; the write is in a later one")
    outcome: Literal["applied", "unchanged", "accepted"] = Field(
        description="applied; unchanged (it said what is known already); accepted (durable, its outcome not known yet)"
    )


class RegistrationShape(ReceiptShape):
    """Receipt of a registration; for a slave with a registered master, where it finds it."""

    master_addr: str | None = None
    ha_server_addr: str | None = None
    order_topic_conf: dict[str, str] | None = Field(None, description="namespace ORDER_TOPIC_CONFIG, when it exists")


class HeartbeatShape(ReceiptShape):
    """Receipt of a heartbeat. A broker that is not `known` should register."""

    known: bool


class WipeShape(ReceiptShape):
    """Receipt of a wipe; the count is of topics that have a row for the broker, changed or not."""

    wipe_topic_count: int | None = None


class AddShape(ReceiptShape):
    """Receipt of an add; the count is of topics that have a row for the broker, changed or not."""

    add_topic_count: int | None = None


class QueueDataShape(Shape):
    """A topic's queues on one broker group."""

    broker_name: str
    perm: int
    read_queue_nums: int
    topic_sys_flag: int
    write_queue_nums: int


class BrokerDataShape(Shape):
    """A broker group; `brokerAddrs` is brokerId (0 = master) to ip:port."""

    broker_addrs: dict[str, str]
    broker_name: str
    cluster: str
    enable_acting_master: bool
    zone_name: str | None = None


class MappingShape(Shape):
    """Static-topic mapping of one broker."""

    bname: str | None = None
    curr_id_map: dict[str, int] | None = None
    dirty: bool | None = None
    epoch: int | None = None
    scope: str | None = None
    topic: str | None = None
    total_queues: int | None = None


class RouteShape(Shape):
    """TopicRouteData, as GET_ROUTEINFO_BY_TOPIC answers it in standard JSON."""

    broker_datas: list[BrokerDataShape]
    filter_server_table: dict[str, list[str]]
    order_topic_conf: str | None = None
    queue_datas: list[QueueDataShape]
    topic_queue_mapping_by_broker: dict[str, MappingShape] | None = None


class ClusterInfoShape(Shape):
    """ClusterInfo, as GET_BROKER_CLUSTER_INFO answers it, in standard JSON."""

    broker_addr_table: dict[str, BrokerDataShape]
    cluster_addr_table: dict[str, list[str]]


class TopicSumsShape(Shape):
    """A topic and its broker groups together. Sums count all queues, whatever may be done with them."""

    topic_name: str
    clusters: list[str]
    brokers: int = Field(description="broker groups that hold it")
    read_queue_nums: int
    write_queue_nums: int
    perms: list[int] = Field(description="the different permissions of its broker groups")


class TopicListShape(Shape):
    """A page of topic names in order. `nextCursor` leads to the next page and is absent on the last."""

    topic_list: list[str]
    topics: list[TopicSumsShape] | None = Field(None, description="with `details`: a row for each name")
    total: int = Field(description="topics that meet the filter, on all pages")
    next_cursor: str | None = None


class DataVersionShape(Shape):
    """Version of a broker's topic table."""

    state_version: int
    timestamp: int
    counter: int


class LiveBrokerShape(Shape):
    """A live broker address. Times are milliseconds since the epoch, on the event log's clock."""

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: int | None = Field(None, description="absent: another address took its id")
    ha_server_addr: str | None = None
    last_update_timestamp: int = Field(description="last heard; written every ten seconds at most")
    heartbeat_timeout_millis: int
    expire_timestamp: int = Field(description="past this it counts as dead, unless it is heard before")
    data_version: DataVersionShape


class BrokerListShape(Shape):
    """Live broker addresses."""

    brokers: list[LiveBrokerShape]


class BrokerShape(BrokerDataShape):
    """A broker group and its live addresses."""

    topic_count: int
    live: list[LiveBrokerShape]


class KvTableShape(Shape):
    """A namespace of KV configuration."""

    namespace: str
    table: dict[str, str]


class KvShape(Shape):
    """One entry of KV configuration."""

    namespace: str
    key: str
    value: str


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
    cursor: str | None = Field(None, description="place in the list of a topic's changes")


class ChangesShape(Shape):
    """Changes, newest first. `before` leads to older ones (absent: there are none), `after` to what comes later."""

    changes: list[ChangeShape]
    before: str | None = None
    after: str | None = None


class AllChangesShape(Shape):
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


class CheckShape(Shape):
    """One condition of readiness."""

    ok: bool
    reason: str | None = None


class ReadyShape(Shape):
    """Whether routes are answered, and what is wrong, if anything."""

    ready: bool
    epoch: int
    offset: int
    routes_age_seconds: float | None = Field(
        None, description="age of the newest event that the routes show; absent: there are none yet"
    )
    checks: dict[str, CheckShape]


class ConfigShape(Shape):
    """What GET_NAMESRV_CONFIG shows."""

    config: dict[str, str] = Field(description="values as Java writes them, by RocketMQ's names")


class SelfPreservationShape(Shape):
    """Whether expiry pauses, and what would make it."""

    percent: int = Field(description="share of the live brokers above which it pauses; 0: off")
    is_on: bool = Field(description="whether no broker expires at the moment")
    since: str | None = Field(None, description="event time since when, RFC 3339")
    until: str | None = Field(None, description="when it ends at the latest, by this gateway's limit")
    live: int = Field(description="live broker addresses")
    silent: int = Field(description="those of them that more than half of their timeout has passed for")


class FoldLagShape(Shape):
    """How far the tables are behind."""

    epochs: int = Field(description="epochs that the fold has written and this gateway has not read")
    events: int = Field(
        description="events that this gateway has folded at the head of the log, and no epoch holds yet"
    )
    seconds: float | None = Field(None, description="since the fold last said how far it is; absent: it never did")


class FoldHealthShape(CheckShape):
    """The fold, as it last said of itself."""

    epoch: int | None = None
    offset: int | None = Field(None, description="it has folded everything up to this log offset")
    lag: FoldLagShape


class HealthShape(Shape):
    """The process is alive."""

    status: Literal["ok"]
    version: str
    gateway: str
    uptime_seconds: float
