# SPDX-License-Identifier: Apache-2.0
"""Roles, and the role that each request needs: reader < broker < admin.

RocketMQ's NameServer has no roles. The requests of stock brokers, clients and mqadmin decide the table below. A broker
sends 105, 106 and 101, too, so a role includes all lower roles. A request that is not listed is denied to every role.
So a code of a later release stays denied until a role is chosen for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from schemas.codes import RequestCode


class Role(IntEnum):
    """Role of an account. Each role includes the permissions of the lower ones.

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
    """Return the role of that name. None if there is no such role."""
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
"""Lowest role that may send a request to a NameServer, by RequestCode."""

BOUND: Final = frozenset(_REQUESTS[Role.BROKER]) - {_R.GET_BROKER_MEMBER_GROUP}
"""Requests that speak for a broker. An account that is bound to some brokers may send them only for those."""

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
"""Lowest role by HTTP operationId. None: every client. An operation that is not listed is for readers."""
