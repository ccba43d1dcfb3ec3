# SPDX-License-Identifier: Apache-2.0
"""A NameServer made of the pure fold, for comparison with the model: requests in, answers out.

Requests become events as in the gateway (`remoting.codec.commands`). Answers that only read are the model's own functions
over the fold's state, laid out as RocketMQ's six tables (`tables_of`); answers to writes are written down here, naively,
from the outcome and the state.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
from msgspec.structs import replace

from dev.model import bodies, codes, route_tables
from dev.model.deliberate import DeliberateModel
from dev.model.javajson import encode as java_json
from dev.model.kvconfig import ORDER_TOPIC_CONFIG
from dev.model.settings import Settings
from dev.model.wire import Request, Response
from nameserver.state_machine.state import At, Outcome, RouteState
from nameserver.state_machine.step import apply, step
from remoting.codec.commands import (
    EVENT_CODES,
    RefusedError,
    RequestContext,
    read_topic_registration,
    rows_to_register,
    to_event,
)
from remoting.codec.frame import RemotingCommand
from schemas.broker import DataVersion
from schemas.events import (
    Actor,
    AnyEvent,
    Channel,
    ChannelClosed,
    Clock,
    RegisterBroker,
    RegisterTopic,
    decode,
    encode,
)
from schemas.outcomes import SINGLE_TOPIC_REFUSED, TOPICS_REQUIRED

ACTOR = Actor(gateway="g1", via="remoting", peer="10.9.9.9:1234")

Identity = tuple[str, str, str]
"""clusterName, brokerName, brokerAddr."""


class FoldNameServer:
    """The fold behind the request codes.

    Attributes:
        state: everything folded; what is silent stays in it until its group's next event.
        settings: shared with the caller that compares; 318 changes it through this object.
        slim: leave the topics out of registrations that the gateway would believe known.
        slim_refused: how many of those the fold refused.
    """

    def __init__(self, settings: Settings, *, slim: bool = False) -> None:
        self.state = RouteState()
        self.settings = settings
        self.slim = slim
        self.slim_refused = 0
        self._offset = 0
        self._reader = DeliberateModel(settings)
        self._connections: dict[str, int] = defaultdict(int)
        self._bound: dict[str, set[Identity]] = defaultdict(set)

    def handle(self, request: Request, now_ms: int, channel: str) -> Response:
        """Answer one request."""
        if request.code == codes.REGISTER_TOPIC_IN_NAMESRV:
            return self._register_topic(request, now_ms)
        if request.code not in EVENT_CODES:
            return self._read(request, now_ms)
        command = RemotingCommand(request.code, request.ext, request.body, version=request.version)
        connection = Channel(gateway="g1", connection=f"{channel}#{self._connections[channel]}")
        try:
            event = to_event(command, RequestContext(ACTOR, connection, now_ms=now_ms))
        except RefusedError as error:
            return Response(error.code, error.ext_fields, remark=str(error))
        assert event is not None, "the strategies leave no name out"
        if isinstance(event, RegisterBroker):
            self._bound[channel].add((event.cluster_name, event.broker_name, event.broker_addr))
            return self._register(event, now_ms)
        before = self._at(now_ms)
        return self._answer(request, self._fold(event, now_ms), before)

    def close_channel(self, channel: str, now_ms: int) -> None:
        """What a gateway writes when a connection ends: one event per broker bound to it."""
        connection = Channel(gateway="g1", connection=f"{channel}#{self._connections[channel]}")
        self._connections[channel] += 1
        for cluster, name, addr in sorted(self._bound.pop(channel, ())):
            event = ChannelClosed(
                actor=ACTOR, cluster_name=cluster, broker_name=name, broker_addr=addr, channel=connection
            )
            self._fold(event, now_ms)

    def tables(self, now_ms: int) -> route_tables.RouteTables:
        """The state at a time, as RocketMQ lays it out."""
        return tables_of(self._at(now_ms), self.settings)

    def kv(self) -> dict[str, dict[str, str]]:
        """Namespaces with the keys that can be found in them."""
        return {ns: {key: value for key, value in kv.items() if value is not None} for ns, kv in self.state.kv.items()}

    def _at(self, now_ms: int) -> RouteState:
        state = replace(self.state, groups=dict(self.state.groups))
        apply(state, step(state, Clock(actor=ACTOR), At(self._offset, now_ms)))
        return state

    def _fold(self, event: AnyEvent, now_ms: int) -> Outcome:
        self._offset += 1
        done = step(self.state, decode(encode(event)), At(self._offset, now_ms))
        apply(self.state, done)
        return done.outcome

    def _register(self, event: RegisterBroker, now_ms: int) -> Response:
        if self.settings.delete_topic_with_broker_registration:
            event = msgspec.structs.replace(event, delete_absent_topics=True)
        if self.slim:
            outcome = self._fold(msgspec.structs.replace(event, topic_config_table=None), now_ms)
            if outcome.reason == TOPICS_REQUIRED:
                self.slim_refused += 1
                outcome = self._fold(event, now_ms)
        else:
            outcome = self._fold(event, now_ms)
        if outcome.reason == SINGLE_TOPIC_REFUSED:
            return Response(codes.SYSTEM_ERROR, {})
        ext = {}
        if outcome.verdict != "rejected" and event.broker_id != 0:
            group = self.state.groups[event.broker_name]
            master = group.broker_addrs.get(0)
            live = None if master is None else group.live.get((event.cluster_name, master))
            if live is not None and master is not None:
                ext = {"haServerAddr": live.ha_server_addr, "masterAddr": master}
                ext = {key: value for key, value in ext.items() if value is not None}
        body = b""
        order = self.kv().get(ORDER_TOPIC_CONFIG)
        if self.settings.return_order_topic_config_to_broker and order is not None:
            body = java_json({"table": order})
        return Response(codes.SUCCESS, ext, body)  # type: ignore[arg-type]

    def _register_topic(self, request: Request, now_ms: int) -> Response:
        found = read_topic_registration(
            RemotingCommand(request.code, request.ext, request.body, version=request.version)
        )
        if found is not None:
            topic, rows = found
            groups = self._at(now_ms).groups
            known = {name for name, group in groups.items() if group.known}
            exists = any(topic in group.topics.rows for group in groups.values())
            for row in rows_to_register(rows, known, topic_exists=exists):
                outcome = self._fold(RegisterTopic(actor=ACTOR, topic=topic, queue_data=row), now_ms)
                assert outcome.verdict != "rejected"
        return Response(codes.SUCCESS)

    def _answer(self, request: Request, outcome: Outcome, before: RouteState) -> Response:
        if request.code == codes.QUERY_DATA_VERSION:
            return self._data_version(request, before)
        if request.code in (codes.WIPE_WRITE_PERM_OF_BROKER, codes.ADD_WRITE_PERM_OF_BROKER):
            assert outcome.result is not None
            return Response(codes.SUCCESS, {name: str(count) for name, count in outcome.result.items()})
        return Response(codes.SUCCESS)

    def _data_version(self, request: Request, before: RouteState) -> Response:
        group = before.groups.get(request.ext["brokerName"])
        live = None if group is None else group.live.get((request.ext["clusterName"], request.ext["brokerAddr"]))
        asked = None
        if request.body:
            fields = msgspec.json.decode(request.body)
            asked = DataVersion(fields.get("stateVersion", 0), fields.get("timestamp", 0), fields.get("counter", 0))
        stored = None if live is None else live.data_version
        changed = stored is None or stored != asked
        body = b"" if stored is None else java_json(_version(stored).to_json())
        return Response(codes.SUCCESS, {"changed": str(changed).lower()}, body)

    def _read(self, request: Request, now_ms: int) -> Response:
        self._reader.tables = self.tables(now_ms)
        self._reader.kv.config_table = {ns: dict(kv) for ns, kv in self.state.kv.items()}
        return self._reader.handle(request, now_ms)


def tables_of(state: RouteState, settings: Settings) -> route_tables.RouteTables:
    """The state of all groups as RouteInfoManager's six tables."""
    tables = route_tables.RouteTables(settings)
    offsets: dict[tuple[str, str], int] = {}
    for name, group in sorted(state.groups.items()):
        for topic, row in group.topics.rows.items():
            tables.topic_queue_table.setdefault(topic, {})[name] = route_tables.QueueData(name, *row)
        if group.known:
            assert group.cluster is not None
            tables.broker_addr_table[name] = route_tables.BrokerData(
                group.cluster, name, dict(group.broker_addrs), group.zone_name, group.enable_acting_master
            )
        for cluster in group.clusters:
            tables.cluster_addr_table.setdefault(cluster, {})[name] = None
        for (cluster, addr), live in group.live.items():
            tables.broker_live_table[route_tables.BrokerAddrInfo(cluster, addr)] = route_tables.BrokerLiveInfo(
                live.last_update_ms, live.heartbeat_timeout_ms, _version(live.data_version), None, live.ha_server_addr
            )
        for (cluster, addr), servers in group.filter_servers.items():
            tables.filter_server_table[route_tables.BrokerAddrInfo(cluster, addr)] = list(servers)
        for (topic, bname), entry in group.mappings.items():
            if entry.offset > offsets.get((topic, bname), -1):
                offsets[topic, bname] = entry.offset
                info = msgspec.structs.asdict(entry.mapping)
                tables.topic_queue_mapping_info_table.setdefault(topic, {})[bname] = bodies.TopicQueueMappingInfo(
                    **info
                )
    return tables


def comparable(tables: route_tables.RouteTables) -> dict[str, Any]:
    """All six tables as plain values, without connections."""
    return {
        "topicQueueTable": {
            topic: {n: vars(q) for n, q in rows.items()} for topic, rows in tables.topic_queue_table.items()
        },
        "brokerAddrTable": {name: vars(data) for name, data in tables.broker_addr_table.items()},
        "clusterAddrTable": {cluster: set(names) for cluster, names in tables.cluster_addr_table.items()},
        "brokerLiveTable": {key: {**vars(live), "channel": None} for key, live in tables.broker_live_table.items()},
        "filterServerTable": dict(tables.filter_server_table),
        "topicQueueMappingInfoTable": {
            topic: {bname: vars(info) for bname, info in rows.items()}
            for topic, rows in tables.topic_queue_mapping_info_table.items()
        },
    }


def _version(version: DataVersion) -> bodies.DataVersion:
    return bodies.DataVersion(version.state_version, version.timestamp, version.counter)
