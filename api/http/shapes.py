# SPDX-License-Identifier: Apache-2.0
"""What goes out over HTTP: the shapes of the answers, for the API description and the tests.

Answers are written as bytes (`msgspec`, the cache of encoded routes); the tests hold them against these models.
"""

from __future__ import annotations

from typing import Literal

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
    """The process is alive. All but `status` is for readers."""

    status: Literal["ok"]
    version: str | None = None
    gateway: str | None = None
    uptime_seconds: float | None = None
