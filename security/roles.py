# SPDX-License-Identifier: Apache-2.0
"""Roles, and the one that each request needs: reader < broker < admin.

RocketMQ's NameServer has none of this. What stock brokers, clients and mqadmin send decides the rows: a broker asks for
105, 106 and 101, too, so a role has everything below it. A request that is not listed is denied to everybody, so a code
that a later release adds is nobody's until somebody has decided whose it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from schemas.codes import RequestCode


class Role(IntEnum):
    """Role of an account; each role includes the permissions of those below it.

    READER reads routes, topics and KV. BROKER registers and keeps alive the brokers that its account is bound to. ADMIN
    deletes, changes permissions, KV and settings.
    """

    READER = 1
    BROKER = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """Name of the role in texts, in lower case."""
        return self.name.lower()


def role_of(word: str) -> Role | None:
    """The role of that name; None where there is none."""
    return _BY_WORD.get(word)


_BY_WORD: Final = {role.word: role for role in Role}

_R = RequestCode
_REQUESTS: Final[Mapping[Role, tuple[RequestCode, ...]]] = {
    Role.READER: (
        _R.GET_KV_CONFIG, _R.GET_ROUTEINFO_BY_TOPIC, _R.GET_BROKER_CLUSTER_INFO, _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        _R.GET_KVLIST_BY_NAMESPACE, _R.GET_TOPICS_BY_CLUSTER, _R.GET_SYSTEM_TOPIC_LIST_FROM_NS, _R.GET_UNIT_TOPIC_LIST,
        _R.GET_HAS_UNIT_SUB_TOPIC_LIST, _R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ),
    Role.BROKER: (
        _R.REGISTER_BROKER, _R.UNREGISTER_BROKER, _R.REGISTER_TOPIC_IN_NAMESRV, _R.QUERY_DATA_VERSION,
        _R.GET_BROKER_MEMBER_GROUP, _R.BROKER_HEARTBEAT,
    ),
    Role.ADMIN: (
        _R.PUT_KV_CONFIG, _R.DELETE_KV_CONFIG, _R.WIPE_WRITE_PERM_OF_BROKER, _R.ADD_WRITE_PERM_OF_BROKER,
        _R.DELETE_TOPIC_IN_NAMESRV, _R.UPDATE_NAMESRV_CONFIG, _R.GET_NAMESRV_CONFIG,
    ),
}  # fmt: skip

NEEDED: Final[Mapping[int, Role]] = {code: role for role, codes in _REQUESTS.items() for code in codes}
"""RequestCode -> the least role that may send it to a NameServer."""

BOUND: Final = frozenset(_REQUESTS[Role.BROKER]) - {_R.GET_BROKER_MEMBER_GROUP}
"""Requests that speak for a broker: an account that is bound to some may send them for those alone."""

_OPERATIONS: Final[Mapping[Role | None, tuple[str, ...]]] = {
    None: ("health", "ready", "foldHealth", "nameServers"),
    Role.READER: (
        "metrics", "getClusters", "listBrokers", "getBroker", "listTopics", "getTopicRoute", "listKv", "getKv",
        "getSelfPreservation", "listEpochs", "listenEvents", "listChanges", "getTopicChanges", "getDiff",
        "getTopicTimeline", "getBrokerTimeline", "getTopicBlame", "listReports", "getReport", "getActivity",
        "getLifelines",
    ),
    Role.BROKER: ("registerBroker", "heartbeat", "unregisterBroker"),
    Role.ADMIN: (
        "deleteTopic", "wipeWritePerm", "addWritePerm", "putKv", "deleteKv", "setSelfPreservation",
        "endSelfPreservation", "getConfig",
    ),
}  # fmt: skip

OPERATIONS: Final[Mapping[str, Role | None]] = {name: role for role, names in _OPERATIONS.items() for name in names}
"""HTTP operationId -> the least role; None: anybody. One that is not listed is denied to everybody."""
