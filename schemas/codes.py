# SPDX-License-Identifier: Apache-2.0
"""Numbers of the remoting protocol: request and response codes, languages, releases, header types.

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.RequestCode, ResponseCode, RemotingSysResponseCode, LanguageCode,
SerializeType; org.apache.rocketmq.common.MQVersion. Only numbers for a NameServer or a broker's topics are included.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class RequestCode(IntEnum):
    """Request codes of RocketMQ. A NameServer sends 905 to brokers. Peers send the others to it or to brokers."""

    SEND_MESSAGE = 10
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    GET_TOPIC_STATS_INFO = 202
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_DATA_VERSION = 322
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_TOPIC_CONFIG = 351
    GET_BROKER_MEMBER_GROUP = 901
    BROKER_HEARTBEAT = 904
    NOTIFY_MIN_BROKER_ID_CHANGE = 905


class ResponseCode(IntEnum):
    """Response codes of a NameServer or a broker (ResponseCode and RemotingSysResponseCode)."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    QUERY_NOT_FOUND = 22
    INVALID_PARAMETER = 29
    GO_AWAY = 1500


class LanguageCode(IntEnum):
    """Language of a peer: in a JSON header its name, in a ROCKETMQ header its number."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class SerializeType(IntEnum):
    """Encoding of a header: the byte before the header length."""

    JSON = 0
    ROCKETMQ = 1


# MQVersion.Version ordinals. Every release has a SNAPSHOT twin just before it.
V3_0_11: Final = 37
"""First version with the RegisterBrokerBody envelope in REGISTER_BROKER. Before it, the body is the topic table."""
V4_9_4: Final = 401
"""First version with quoted map keys in a route answer."""
V5_0_0: Final = 413
"""First version with the topic queue mappings at the end of a compressed registration."""
V5_5_0: Final = 513
HIGHER_VERSION: Final = 612
"""Highest ordinal. Any higher one counts as this."""

MIN_INT: Final = -(1 << 31)
MAX_INT: Final = (1 << 31) - 1
MIN_LONG: Final = -(1 << 63)
MAX_LONG: Final = (1 << 63) - 1
