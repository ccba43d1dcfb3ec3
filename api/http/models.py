# SPDX-License-Identifier: Apache-2.0
"""Request bodies of HTTP. Field names are RocketMQ's. Each rule is stated once, in this module.

Models are strict: there is no conversion and no unknown field. An absent optional field and null are the same.

Sources (5.5.0): RegisterBrokerRequestHeader, RegisterBrokerBody, TopicConfigAndMappingSerializeWrapper, TopicConfig,
TopicQueueMappingInfo, BrokerHeartbeatRequestHeader, UnRegisterBrokerRequestHeader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from api.http import naming_rules as names
from schemas import limits
from schemas.broker import DataVersion, QueueRow, TopicQueueMappingInfo
from schemas.codes import MAX_INT, MAX_LONG
from schemas.events import Actor, BrokerHeartbeat, RegisterBroker, UnregisterBroker, topic_config_digest
from schemas.topic_names import RETRY_OR_DLQ_TOPIC_MAX_LENGTH

MAX_QUEUES: Final = 65_535
"""Maximum number of queues of one topic on one broker. RocketMQ has no limit; its largest built-in topic has 1024."""

MAX_HEARTBEAT_TIMEOUT_MS: Final = 30 * 24 * 3600 * 1000
MAX_ZONE: Final = 127


def _checked(problem: Callable[[str], str | None]) -> AfterValidator:
    """Turn a rule of `api.http.naming_rules` into a validator."""

    def check(text: str) -> str:
        found = problem(text)
        if found is not None:
            raise PydanticCustomError("name", "{rule}", {"rule": found})
        return text

    return AfterValidator(check)


def _kv_value_problem(text: str) -> str | None:
    size = len(text.encode())
    limit = limits.MAX_KV_VALUE_BYTES
    return f"may have at most {limit} bytes, this one has {size}" if size > limit else None


def _queue_id(key: object) -> object:
    """Convert a queue id from a JSON key. JSON has only text for keys, so the id is in decimal digits."""
    if isinstance(key, str) and re.fullmatch(r"0|[1-9][0-9]{0,9}", key):
        return int(key)
    raise PydanticCustomError("queue_id", "a queue id must be a whole number")


def _strings(pattern: str, longest: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "maxLength": longest})


Topic = Annotated[str, _checked(names.topic_problem), _strings("^[%|A-Za-z0-9_-]+$", RETRY_OR_DLQ_TOPIC_MAX_LENGTH)]
BrokerName = Annotated[str, _checked(names.broker_name_problem), _strings("^[%|A-Za-z0-9_.-]+$", names.MAX_NAME)]
ClusterName = Annotated[str, _checked(names.cluster_name_problem), _strings("^[%|A-Za-z0-9_.-]+$", names.MAX_NAME)]
Address = Annotated[
    str,
    _checked(names.address_problem),
    WithJsonSchema({"type": "string", "maxLength": names.MAX_ADDRESS, "examples": ["10.0.0.1:10911"]}),
]
Zone = Annotated[str, Field(min_length=1, max_length=MAX_ZONE), _checked(names.text_problem)]
Long = Annotated[int, Field(ge=0, le=MAX_LONG)]
Int = Annotated[int, Field(ge=0, le=MAX_INT)]
Queues = Annotated[int, Field(ge=0, le=MAX_QUEUES)]
QueueId = Annotated[int, BeforeValidator(_queue_id), Field(ge=0, le=MAX_INT)]


class Model(BaseModel):
    """Strict, closed, frozen; wire names in camelCase."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=to_camel, regex_engine="rust-regex"
    )


class DataVersionBody(Model):
    """Version of a broker's topic table. The NameServer only tests whether it is equal to the last one."""

    state_version: Long = Field(0, description="of the controller's state machine; 0 without a controller")
    timestamp: Long = Field(description="the broker's clock at its last change, ms since the epoch")
    counter: Long = Field(description="how many changes there were")

    def value(self) -> DataVersion:
        """Return the DataVersion of the contracts."""
        return DataVersion(self.state_version, self.timestamp, self.counter)


class TopicConfigBody(Model):
    """A topic on one broker (TopicConfig). Absent fields take RocketMQ's defaults."""

    topic_name: Topic | None = Field(None, description="if given, the key it stands under")
    read_queue_nums: Queues = 16
    write_queue_nums: Queues = 16
    perm: Annotated[int, Field(ge=0, le=15, description="bits: inherit 1, write 2, read 4, priority 8")] = 6
    topic_filter_type: Literal["SINGLE_TAG", "MULTI_TAG"] = Field("SINGLE_TAG", description="not kept")
    topic_sys_flag: Int = Field(0, description="bit 0 unit, bit 1 unit subscription")
    order: bool = Field(False, description="not kept")
    attributes: dict[str, str] | None = Field(None, description="not kept")


class TopicQueueMappingInfoBody(Model):
    """Static-topic mapping of one broker (TopicQueueMappingInfo)."""

    topic: Topic | None = Field(None, description="if given, the key it stands under")
    scope: Annotated[str, Field(max_length=names.MAX_NAME)] | None = "__global__"
    total_queues: Int = 0
    bname: BrokerName = Field(description="the broker it belongs to; decides the row it is stored under")
    epoch: Long = 0
    dirty: bool = False
    curr_id_map: dict[QueueId, Int] | None = Field(None, description="logical queue id to physical queue id")

    def value(self, topic: str) -> TopicQueueMappingInfo:
        """Return the TopicQueueMappingInfo of the contracts."""
        return TopicQueueMappingInfo(
            topic, self.scope, self.total_queues, self.bname, self.epoch, self.dirty, self.curr_id_map
        )


def _topic_names_are_keys(table: dict[str, TopicConfigBody]) -> dict[str, TopicConfigBody]:
    for topic, config in table.items():
        if config.topic_name is not None and config.topic_name != topic:
            raise PydanticCustomError("key", "topicName of {topic} must be that key, or absent", {"topic": topic})
    return table


def _mapping_topics_are_keys(table: dict[str, TopicQueueMappingInfoBody]) -> dict[str, TopicQueueMappingInfoBody]:
    for topic, mapping in table.items():
        if mapping.topic is not None and mapping.topic != topic:
            raise PydanticCustomError("key", "topic of {topic} must be that key, or absent", {"topic": topic})
    queue_ids = sum(len(mapping.curr_id_map or ()) for mapping in table.values())
    if len(table) + queue_ids > limits.MAX_MAPPINGS:
        text = "may have at most {limit} mappings and queue ids in them"
        raise PydanticCustomError("too_many", text, {"limit": limits.MAX_MAPPINGS})
    return table


class TopicConfigSerializeWrapperBody(Model):
    """A broker's topics (TopicConfigAndMappingSerializeWrapper)."""

    data_version: DataVersionBody
    topic_config_table: Annotated[
        dict[Topic, TopicConfigBody], Field(max_length=limits.MAX_TOPICS), AfterValidator(_topic_names_are_keys)
    ] = Field({}, description="topic to its settings")
    topic_queue_mapping_info_map: Annotated[
        dict[Topic, TopicQueueMappingInfoBody], AfterValidator(_mapping_topics_are_keys)
    ] = Field({}, description="static topics")
    mapping_data_version: DataVersionBody | None = Field(None, description="not kept")
    topic_queue_mapping_detail_map: dict[Topic, dict[str, Any]] | None = Field(None, description="not kept")


class BrokerBody(Model):
    """The names of a broker, as all requests of brokers have them."""

    cluster_name: ClusterName
    broker_name: BrokerName
    broker_addr: Address


class RegisterBrokerBody(BrokerBody):
    """REGISTER_BROKER: the request header and the body of the remoting protocol in one object."""

    broker_id: Long = Field(description="0 is the master")
    ha_server_addr: Address | None = Field(None, description="where slaves replicate from")
    heartbeat_timeout_millis: Annotated[int, Field(ge=1, le=MAX_HEARTBEAT_TIMEOUT_MS)] | None = Field(
        None, description="how long it may stay silent; 120,000 if absent"
    )
    enable_acting_master: bool | None = Field(None, description="absent: a broker older than 5.0")
    zone_name: Zone | None = None
    filter_server_list: Annotated[list[Address], Field(max_length=limits.MAX_FILTER_SERVERS)] | None = Field(
        None, description="absent leaves what is known alone, an empty list removes it"
    )
    topic_config_serialize_wrapper: TopicConfigSerializeWrapperBody | None = Field(
        None, description="absent registers a broker without topics"
    )

    def event(self, actor: Actor, *, delete_absent_topics: bool) -> RegisterBroker:
        """Return the event for the event log."""
        fields = dict(self)
        wrapper: TopicConfigSerializeWrapperBody | None = fields.pop("topic_config_serialize_wrapper")
        topics = {} if wrapper is None else _queue_rows(wrapper.topic_config_table)
        mappings = {} if wrapper is None else wrapper.topic_queue_mapping_info_map
        return RegisterBroker(
            actor=actor,
            data_version=DataVersion() if wrapper is None else wrapper.data_version.value(),
            topic_config_digest=topic_config_digest(topics),
            topic_config_table=topics,
            topic_queue_mapping_info_map={topic: mapping.value(topic) for topic, mapping in mappings.items()},
            delete_absent_topics=delete_absent_topics,
            **fields,
        )


class BrokerHeartbeatBody(BrokerBody):
    """BROKER_HEARTBEAT."""

    def event(self, actor: Actor) -> BrokerHeartbeat:
        """Return the event for the event log."""
        return BrokerHeartbeat(actor=actor, **dict(self))


class UnregisterBrokerBody(BrokerBody):
    """UNREGISTER_BROKER."""

    broker_id: Long

    def event(self, actor: Actor) -> UnregisterBroker:
        """Return the event for the event log."""
        return UnregisterBroker(actor=actor, **dict(self))


class SelfPreservationBody(Model):
    """The live switch selfPreservationPercent."""

    percent: Annotated[int, Field(ge=0, le=99)]


class SessionBody(Model):
    """Request for a session of the console."""

    token: Annotated[str, Field(min_length=1, max_length=16_384, pattern=r"^[\x21-\x7e]+$")]


class PutKvConfigBody(Model):
    """PUT_KV_CONFIG: the value; namespace and key are in the path."""

    value: Annotated[str, Field(max_length=limits.MAX_KV_VALUE_BYTES), _checked(_kv_value_problem)]


def _queue_rows(table: dict[str, TopicConfigBody]) -> dict[str, QueueRow]:
    return {
        topic: QueueRow(config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag)
        for topic, config in table.items()
    }
