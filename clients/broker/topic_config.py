# SPDX-License-Identifier: Apache-2.0
"""Settings of one topic on one broker, the table of topics, and its version. No I/O.

A table in JSON is the content of topics.json, and a part of every registration::

    {"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1700000000000},
     "topicConfigTable":{"orders":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,
         "topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":8}}}

Sources (5.5.0): org.apache.rocketmq.common.TopicConfig, org.apache.rocketmq.remoting.protocol.DataVersion,
org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from schemas.broker import PERM_READ, PERM_WRITE, DataVersion, Int
from schemas.errors import BadRequestError
from schemas.rocketmq_json import decode

DEFAULT_QUEUE_NUMS: Final = 16
READ_WRITE: Final = PERM_READ | PERM_WRITE

FilterType = Literal["SINGLE_TAG", "MULTI_TAG"]


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of one topic. The fields are in the order of their wire names, as fastjson writes them."""

    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    order: bool = False
    perm: Int = READ_WRITE
    read_queue_nums: Int = DEFAULT_QUEUE_NUMS
    topic_filter_type: FilterType = "SINGLE_TAG"
    topic_name: str
    topic_sys_flag: Int = 0
    write_queue_nums: Int = DEFAULT_QUEUE_NUMS

    def __str__(self) -> str:
        """Return the text in RocketMQ's remarks (TopicConfig.toString)."""
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={perm_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={str(self.order).lower()}, attributes={self.attributes}]"
        )


def perm_text(perm: int) -> str:
    """Return a text such as ``RW-`` (PermName.perm2String)."""
    return f"{'R' if perm & 4 else '-'}{'W' if perm & 2 else '-'}{'X' if perm & 1 else '-'}"


class TopicTable(msgspec.Struct, rename="camel"):
    """A table and its version: TopicConfigSerializeWrapper."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)


class _Wire(msgspec.Struct, rename="camel"):
    """A TopicConfig from another program. An absent or null field gets the default."""

    attributes: dict[str, str] | None = None
    order: bool | None = None
    perm: Int | None = None
    read_queue_nums: Int | None = None
    topic_filter_type: FilterType | None = None
    topic_name: str | None = None
    topic_sys_flag: Int | None = None
    write_queue_nums: Int | None = None

    def config(self, name: str | None = None) -> TopicConfig:
        given = {key: value for key, value in msgspec.structs.asdict(self).items() if value is not None}
        return TopicConfig(**{"topic_name": name or "", **given})


class _WireTable(msgspec.Struct, rename="camel"):
    data_version: DataVersion
    topic_config_table: dict[str, _Wire]


class _WireList(msgspec.Struct, rename="camel"):
    topic_config_list: list[_Wire]


_table = msgspec.json.Decoder(_WireTable, strict=False)
_list = msgspec.json.Decoder(_WireList, strict=False)
encode_topic_config: Final = msgspec.json.Encoder().encode
"""TopicConfig to its JSON, without spaces and in fastjson's order."""


def decode_topic_table(data: bytes) -> TopicTable:
    """Decode a table with its version, such as topics.json. An entry without topicName gets its key as name.

    Raises:
        BadRequestError: The data is not a topic table, or it lacks dataVersion or topicConfigTable.
    """
    try:
        found = decode(data, _table)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(str(error)) from error
    return TopicTable(
        found.data_version, {name: config.config(name) for name, config in found.topic_config_table.items()}
    )


def decode_topic_list(data: bytes) -> list[TopicConfig]:
    """Decode the body of UPDATE_AND_CREATE_TOPIC_LIST (CreateTopicListRequestBody).

    Raises:
        BadRequestError: The body is not a list of topics.
    """
    try:
        return [config.config() for config in decode(data, _list).topic_config_list]
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is no list of topics (topicConfigList): {error}") from error


def encode_entries(table: Mapping[str, TopicConfig]) -> bytes:
    """The entries of a table's JSON object, without the braces around them."""
    encode = msgspec.json.Encoder().encode
    return b",".join(b"%b:%b" % (encode(name), encode(config)) for name, config in table.items())


# --- DataVersion ---


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    """The version after a change (DataVersion.nextVersion).

    Args:
        version: Version before the change.
        now_ms: Current time, in milliseconds since 1970.
    """
    return DataVersion(0, now_ms, version.counter + 1)
