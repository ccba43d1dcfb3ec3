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

NEEDED: Final[Mapping[int, Role]] = {
    _R.GET_KV_CONFIG: Role.READER,
    _R.GET_ROUTEINFO_BY_TOPIC: Role.READER,
    _R.GET_BROKER_CLUSTER_INFO: Role.READER,
    _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Role.READER,
    _R.GET_KVLIST_BY_NAMESPACE: Role.READER,
    _R.GET_TOPICS_BY_CLUSTER: Role.READER,
    _R.GET_SYSTEM_TOPIC_LIST_FROM_NS: Role.READER,
    _R.GET_UNIT_TOPIC_LIST: Role.READER,
    _R.GET_HAS_UNIT_SUB_TOPIC_LIST: Role.READER,
    _R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Role.READER,
    _R.REGISTER_BROKER: Role.BROKER,
    _R.UNREGISTER_BROKER: Role.BROKER,
    _R.REGISTER_TOPIC_IN_NAMESRV: Role.BROKER,
    _R.QUERY_DATA_VERSION: Role.BROKER,
    _R.GET_BROKER_MEMBER_GROUP: Role.BROKER,
    _R.BROKER_HEARTBEAT: Role.BROKER,
    _R.PUT_KV_CONFIG: Role.ADMIN,
    _R.DELETE_KV_CONFIG: Role.ADMIN,
    _R.WIPE_WRITE_PERM_OF_BROKER: Role.ADMIN,
    _R.ADD_WRITE_PERM_OF_BROKER: Role.ADMIN,
    _R.DELETE_TOPIC_IN_NAMESRV: Role.ADMIN,
    _R.UPDATE_NAMESRV_CONFIG: Role.ADMIN,
    _R.GET_NAMESRV_CONFIG: Role.ADMIN,
}
"""RequestCode -> the least role that may send it to a NameServer."""

BOUND: Final = frozenset(
    {
        _R.REGISTER_BROKER,
        _R.UNREGISTER_BROKER,
        _R.REGISTER_TOPIC_IN_NAMESRV,
        _R.QUERY_DATA_VERSION,
        _R.BROKER_HEARTBEAT,
    }
)
"""Requests that speak for a broker: an account that is bound to some may send them for those alone."""

OPERATIONS: Final[Mapping[str, Role | None]] = {
    "health": None,
    "ready": None,
    "foldHealth": None,
    "nameServers": None,
    "metrics": Role.READER,
    "getClusters": Role.READER,
    "listBrokers": Role.READER,
    "getBroker": Role.READER,
    "getTopicChanges": Role.READER,
    "listEpochs": Role.READER,
    "listChanges": Role.READER,
    "getDiff": Role.READER,
    "getTopicTimeline": Role.READER,
    "getBrokerTimeline": Role.READER,
    "getTopicBlame": Role.READER,
    "listReports": Role.READER,
    "getReport": Role.READER,
    "getActivity": Role.READER,
    "getLifelines": Role.READER,
    "listenEvents": Role.READER,
    "listTopics": Role.READER,
    "getTopicRoute": Role.READER,
    "listKv": Role.READER,
    "getSelfPreservation": Role.READER,
    "getKv": Role.READER,
    "registerBroker": Role.BROKER,
    "heartbeat": Role.BROKER,
    "unregisterBroker": Role.BROKER,
    "deleteTopic": Role.ADMIN,
    "wipeWritePerm": Role.ADMIN,
    "addWritePerm": Role.ADMIN,
    "putKv": Role.ADMIN,
    "deleteKv": Role.ADMIN,
    "setSelfPreservation": Role.ADMIN,
    "endSelfPreservation": Role.ADMIN,
    "getConfig": Role.ADMIN,
}
"""HTTP operationId -> the least role; None: anybody. One that is not listed is denied to everybody."""
