# SPDX-License-Identifier: Apache-2.0
"""Content of the answers to mqadmin's requests. Pure.

Every function raises `AnswerBodyError` for an invalid body.

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.body.TopicList, KVTable, GroupList,
org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable, TopicOffset, MixAll.string2Properties.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec

from clients.route.queues import MessageQueue
from schemas.errors import RoutelakeError
from schemas.rocketmq_json import decode, decode_cluster_info, decode_topic_route
from schemas.route import ClusterInfo, TopicRouteData

T = TypeVar("T")


class AnswerBodyError(RoutelakeError):
    """An answer with SUCCESS has an invalid body."""


class TopicOffset(msgspec.Struct, frozen=True, rename="camel"):
    """Offsets of one queue. ``last_update_timestamp`` is in milliseconds since 1970, or 0 for never."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStats(msgspec.Struct, frozen=True):
    """Statistics of a topic on one broker (TopicStatsTable). ``topic_put_tps`` is in messages per second."""

    offsets: dict[MessageQueue, TopicOffset]
    topic_put_tps: float


class _TopicList(msgspec.Struct, rename="camel"):
    topic_list: list[str]


class _GroupList(msgspec.Struct, rename="camel"):
    group_list: list[str]


class _KVTable(msgspec.Struct, rename="camel"):
    table: dict[str, str]


_topic_list = msgspec.json.Decoder(_TopicList)
_group_list = msgspec.json.Decoder(_GroupList)
_kv_table = msgspec.json.Decoder(_KVTable)


def topic_route(body: bytes) -> TopicRouteData:
    """The answer to GET_ROUTEINFO_BY_TOPIC."""
    return _decoded(decode_topic_route, body, "route")


def cluster_info(body: bytes) -> ClusterInfo:
    """The answer to GET_BROKER_CLUSTER_INFO."""
    return _decoded(decode_cluster_info, body, "cluster info")


def topic_list(body: bytes) -> list[str]:
    """The answer to GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
    return _decoded(partial(decode, decoder=_topic_list), body, "topic list").topic_list


def group_list(body: bytes) -> list[str]:
    """The answer to QUERY_TOPIC_CONSUME_BY_WHO."""
    return _decoded(partial(decode, decoder=_group_list), body, "group list").group_list


def kv_table(body: bytes) -> dict[str, str]:
    """The answer to GET_BROKER_RUNTIME_INFO."""
    return _decoded(partial(decode, decoder=_kv_table), body, "table").table


def properties(body: bytes) -> dict[str, str]:
    """The answer to GET_NAMESRV_CONFIG: ``key=value`` lines, in their order."""
    lines = (line.strip() for line in body.decode("utf-8", "replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _decoded(read: Callable[[bytes], T], body: bytes, what: str) -> T:
    try:
        return read(body)
    except (ValueError, RecursionError) as error:
        raise AnswerBodyError(f"the answer is not a valid {what}: {error}") from error


# --- TopicStatsTable: a map with objects as keys, which is not JSON ---

_OFFSET_TABLE: Final = '"offsetTable":{'
_json = json.JSONDecoder()


def topic_stats(body: bytes) -> TopicStats:
    """The answer to GET_TOPIC_STATS_INFO: ``{"offsetTable":{{"brokerName":…}:{"maxOffset":…},…},"topicPutTps":0.0}``.

    fastjson writes the MessageQueue keys as objects, or as texts with such an object.
    """
    try:
        text = body.decode()
        before, found, rest = text.partition(_OFFSET_TABLE)
        offsets, end = _read_offsets(rest) if found else ({}, 0)
        others = _json.decode(f"{before}{_OFFSET_TABLE}}}{rest[end:]}" if found else text)
        return TopicStats(offsets, msgspec.convert(others.get("topicPutTps", 0.0), float))
    except (ValueError, AttributeError, RecursionError) as error:
        raise AnswerBodyError(f"the answer is not topic statistics: {error}") from error


def _read_offsets(text: str) -> tuple[dict[MessageQueue, TopicOffset], int]:
    """Return the pairs up to the closing brace, and the position after the brace. Raises ValueError."""
    offsets: dict[MessageQueue, TopicOffset] = {}
    at = 0
    while text[at : at + 1] != "}":
        key, at = _json.raw_decode(text, at)
        queue = msgspec.convert(_json.decode(key) if isinstance(key, str) else key, MessageQueue)
        if text[at : at + 1] != ":":
            raise ValueError("no value for a queue")
        value, at = _json.raw_decode(text, at + 1)
        offsets[queue] = msgspec.convert(value, TopicOffset)
        at += text[at : at + 1] == ","
    return offsets, at + 1
