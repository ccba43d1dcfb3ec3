# SPDX-License-Identifier: Apache-2.0
"""Handlers of the gateway: the answer to each request of the NameServer's two processors, by RequestCode.

Reads come from the view, and writes become events. `remoting.codec.commands` turns requests into events. It also
decides about malformed requests: a missing field is null, and not an error unless a rule says so.

Sources (5.5.0): org.apache.rocketmq.namesrv.processor.DefaultRequestProcessor, ClientRequestProcessor,
org.apache.rocketmq.namesrv.routeinfo.BrokerHousekeepingService.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import structlog

from api.gateway.gateway import KV_FULL, Gateway, Receipt
from api.gateway.metrics import Metrics
from api.gateway.registrations import HEARTBEAT_BYTES, Registrations, kept_bytes
from api.remoting import config_commands
from api.remoting.access import RemotingAccess
from api.remoting.notifier import Notifier
from api.remoting.route_requests import RouteRequest, RouteRequests, UnknownTopics
from api.remoting.shared_bodies import SharedBodies, TopicLists
from api.settings.keys import to_text
from nameserver.answers import RouteAnswers
from nameserver.state_machine.preservation import CLOSED_GRACE_MS
from nameserver.view.snapshot import RouteView
from remoting.codec import commands
from remoting.codec.frame import RemotingCommand
from remoting.codec.names import may_exist
from remoting.codec.registration import decode_data_version
from remoting.codec.reply import (
    EncodedReply,
    RemarkTemplate,
    Reply,
    encode_data_version,
    encode_kv_table,
    encode_topic_list,
    not_supported,
    response,
)
from remoting.server.channel import Connection, LastHeartbeat
from schemas.codes import RequestCode, ResponseCode
from schemas.errors import RoutelakeError
from schemas.events import (
    Actor,
    AnyEvent,
    BrokerHeartbeat,
    Channel,
    ChannelClosed,
    DeleteKvConfig,
    PutKvConfig,
    RegisterTopic,
    UnregisterBroker,
    encode,
    routing_key,
)
from schemas.kv import NAMESRV_CONFIG, ORDER_TOPIC_CONFIG
from schemas.outcomes import KV_TABLE_FULL, SINGLE_TOPIC_REFUSED, STATE_VERSION_CONFLICT
from schemas.rocketmq_json import encode_member_group
from security.admission.admission import Sender

log = structlog.get_logger("routelake.gateway")

_SETTLED_S: Final = 1.0
"""Maximum wait of the answer "no such topic" for registrations, in seconds. Clients give up after 3 s."""
_ON_ITS_WAY_S: Final = 0.1
"""Maximum wait for a registration that may come, in seconds. On an idle machine it comes within a millisecond."""


class Request(NamedTuple):
    """A request that was admitted, with its connection and sender."""

    command: RemotingCommand
    connection: Connection
    sender: Sender


Handler = Callable[[Request], Awaitable[RemotingCommand | Reply]]


class NameServerHandler:
    """Answers to requests on behalf of one gateway. Used on the gateway's event loop."""

    def __init__(
        self,
        gateway: Gateway,
        answers: RouteAnswers,
        metrics: Metrics,
        registrations: Registrations,
        access: RemotingAccess | None = None,
    ) -> None:
        self._gateway = gateway
        self._access = access or RemotingAccess(gateway)
        self._metrics = metrics
        self._answers = answers
        self._bodies = SharedBodies()
        self._topic_lists = TopicLists()
        self._bound: dict[str, dict[tuple[str, str, str], None]] = {}
        """Connection id -> (clusterName, brokerName, brokerAddr) registered over it, in order."""
        self._bindings: Counter[tuple[str, str]] = Counter()
        """(brokerName, brokerAddr) -> number of entries in `_bound`."""
        self.inline = RouteRequests(self._route_reply, may_wait=self._may_be_on_its_way)
        """Recognizes route requests and answers them, for the server."""
        self._registrations = registrations
        self._unknown = UnknownTopics()
        self._closing: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._notifier = Notifier(self._is_bound)
        gateway.shown.follow(self._view_moved)
        gateway.follow_settings(lambda _settings: self.inline.forget_replies())
        self._handlers: Final[dict[int, Handler]] = {
            RequestCode.PUT_KV_CONFIG: self._command,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._command,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._command,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._change_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._change_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topic_list,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._command,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topic_list,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topic_list,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_unit_topic_list,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_unit_topic_list,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._get_broker_member_group,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
        }

    # --- what the server calls ---

    def _route_reply(self, query: RouteRequest) -> Reply:
        gateway, topic, form = self._gateway, query.topic, query.form
        if not gateway.is_ready_for_service:
            return EncodedReply(response(ResponseCode.SYSTEM_ERROR, "name server not ready"))
        if topic is None:
            return EncodedReply(topic_not_exist(None))
        answer = self._answers.route(gateway.shown.view, topic, form.numeric_keys, form.zone)
        if answer is None:
            return _TOPIC_NOT_EXIST.fill(topic, query.plain)
        if answer.serial:
            query.reply = answer.reply
        return answer.reply

    def _is_unknown(self, query: RouteRequest) -> bool:
        """Return whether the live view lacks the topic. False if the latest epoch is shown: a wait would not help."""
        gateway = self._gateway
        return query.topic not in gateway.view.topics and gateway.shown is gateway.live_view

    def _may_be_on_its_way(self, query: RouteRequest) -> bool:
        """Return whether a registration of an unknown topic may be in progress, because its broker does not wait."""
        return self._registrations.may_come_one_way and self._is_unknown(query)

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | Reply:
        """Answer one request. An exception becomes an answer (`remoting.codec.reply.failure`)."""
        commands.check_header_fields(command)
        sender = await self._access.admit(command, connection)
        handler = self._handlers.get(command.code)
        if handler is None:
            return not_supported(command.code)
        return await handler(Request(command, connection, sender))

    def on_connect(self, connection: Connection) -> None:
        """Do nothing, because nothing is known of a peer before it registers."""

    def on_close(self, connection: Connection) -> None:
        """Unregister the brokers that registered over a lost connection (BrokerHousekeepingService)."""
        bound = self._bound.pop(connection.id, None)
        for _, name, addr in bound or ():
            self._count_binding(name, addr, -1)
        if bound and not self._stopping:
            task = asyncio.create_task(self._unbind(connection, self._access.actor(connection), sorted(bound)))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _view_moved(self, before: RouteView, after: RouteView) -> None:
        self.inline.forget_replies()
        if self._gateway.settings.notify_min_broker_id_changed:
            self._notifier.view_moved(before, after)

    def _is_bound(self, broker_name: str, broker_addr: str) -> bool:
        return (broker_name, broker_addr) in self._bindings

    def _bind(self, connection: Connection, broker: tuple[str, str, str]) -> None:
        bound = self._bound.setdefault(connection.id, {})
        if broker not in bound:
            bound[broker] = None
            self._count_binding(broker[1], broker[2], 1)

    def _count_binding(self, broker_name: str, broker_addr: str, more: int) -> None:
        self._bindings[broker_name, broker_addr] += more
        if not self._bindings[broker_name, broker_addr]:
            del self._bindings[broker_name, broker_addr]

    def stop(self) -> None:
        """Unregister no broker for a connection that closes from now on, because the gateway closes it."""
        self._stopping = True

    # --- brokers ---

    async def _register_broker(self, request: Request) -> RemotingCommand:
        command, connection, sender = request
        registered = await self._registrations.register_request(
            command, sender, self._channel(connection), lambda: connection.let_go(command)
        )
        if registered is None:
            return response(ext_fields={})
        event, receipt, master, order_topic_config = registered
        reason = receipt.reason
        if reason == SINGLE_TOPIC_REFUSED:
            return response(ResponseCode.SYSTEM_ERROR, "register broker failed", {})
        body = self._kv_body(ORDER_TOPIC_CONFIG, order_topic_config) or b""
        if reason == STATE_VERSION_CONFLICT:
            return response(ext_fields={}, body=body)
        effective(receipt)
        broker = (event.cluster_name, event.broker_name, event.broker_addr)
        if not connection.closed:
            self._bind(connection, broker)
            connection.has_registered = True
        else:
            # The connection closed before its registration was answered, so the broker has left.
            await self._unbind(connection, sender.actor, [broker])
        fields = {"haServerAddr": master.ha_server_addr, "masterAddr": master.master_addr}
        return response(ext_fields={name: value for name, value in fields.items() if value is not None}, body=body)

    def _kv_body(self, namespace: str, table: Mapping[str, str | None] | None) -> bytes | None:
        """Return a namespace as a KVTable. None if it has never had a key."""
        return None if table is None else self._bodies.get("kv", namespace, (table,), lambda: encode_kv_table(table))

    async def _unbind(self, connection: Connection, actor: Actor, brokers: list[tuple[str, str, str]]) -> None:
        settings = self._gateway.settings
        for cluster_name, broker_name, broker_addr in brokers:
            event = ChannelClosed(
                actor=actor,
                cluster_name=cluster_name,
                broker_name=broker_name,
                broker_addr=broker_addr,
                channel=Channel(settings.gateway_id, connection.id),
                grace_ms=CLOSED_GRACE_MS if settings.self_preservation_percent else 0,
            )
            try:
                await self._gateway.write(event, None)
            except RoutelakeError as error:
                log.warning(
                    "cannot record a lost connection; the broker expires later", broker=broker_name, error=str(error)
                )

    async def _query_data_version(self, request: Request) -> RemotingCommand:
        event = self._event(request)
        if event is not None:
            assert isinstance(event, BrokerHeartbeat)
            await self._gateway.write(event, request.sender)
        header = commands.read_broker_header(request.command)
        live = self._gateway.live_view.view.live_row(
            header.broker_name or "", header.cluster_name or "", header.broker_addr or ""
        )
        changed = live is None or live.data_version != decode_data_version(request.command.body)
        return response(
            ext_fields={"changed": "true" if changed else "false"},
            body=b"" if live is None else encode_data_version(live.data_version),
        )

    async def _heartbeat(self, request: Request) -> RemotingCommand | Reply:
        command, connection, sender = request
        known = connection.heartbeat
        if known is None or known.fields != command.ext_fields:
            event = self._event(request)
            if event is None:
                return response()
            known = LastHeartbeat(command.ext_fields, event, (routing_key(event), encode(event)))
            size = kept_bytes(command.ext_fields, known.encoded[1])
            connection.heartbeat = known if size is not None and size <= HEARTBEAT_BYTES else None
        await self._gateway.write(known.event, sender, known.encoded)
        return _OK

    async def _get_broker_member_group(self, request: Request) -> RemotingCommand:
        header = commands.read_broker_header(request.command)
        members = self._gateway.view.broker_member_group(header.broker_name or "")
        return response(
            # RocketMQ forgets to clear the remark here, too.
            remark="not set any response code",
            body=encode_member_group(header.cluster_name, header.broker_name, members),
        )

    async def _get_cluster_info(self, _request: Request) -> RemotingCommand:
        return response(body=self._answers.cluster_info(self._gateway.view))

    # --- topics ---

    async def _get_route(self, request: Request) -> Reply:
        """Answer a route request. If the topic is unknown, wait for registrations that may create it.

        A message may have created the topic just now, and its broker's registration may be in progress. RocketMQ's
        brokers before 5.0 answer the message without waiting for the registration. If a client gets the answer "no such
        topic", it asks again after 30 s.
        """
        query = self.inline.read(request.command)
        topic = query.topic
        if topic is None or not may_exist(topic) or not self._registrations.may_come_one_way:
            return self._route_reply(query)
        if self._is_unknown(query):
            await self._registrations.settled(_SETTLED_S)
        if self._is_unknown(query) and self._unknown.was_asked(topic, time.monotonic()):
            await self._registrations.arrived(lambda: not self._is_unknown(query), _ON_ITS_WAY_S)
        return self._route_reply(query)

    async def _get_all_topic_list(self, _request: Request) -> RemotingCommand:
        if not self._gateway.settings.enable_all_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        view = self._gateway.view
        return response(body=await self._topic_lists.get(view, "all", lambda: view.topics))

    async def _change_write_perm(self, request: Request) -> RemotingCommand:
        command = request.command
        count = "wipeTopicCount" if command.code == RequestCode.WIPE_WRITE_PERM_OF_BROKER else "addTopicCount"
        event = self._event(request)
        if event is None:
            return response(ext_fields={count: "0"})
        receipt = effective(await self._gateway.propose(event, request.sender))
        changed = (receipt.result or {}).get(count)
        if changed is None:
            changed = self._gateway.live_view.view.topic_count(command.ext("brokerName") or "")
        return response(ext_fields={count: str(changed)})

    async def _register_topic(self, request: Request) -> RemotingCommand:
        registration = commands.read_topic_registration(request.command)
        if registration is None:
            return response()
        topic, rows = registration
        gateway, view = self._gateway, self._gateway.live_view.view
        brokers = [(None, row.broker_name) for row in rows]
        sender = gateway.admission.authorize_brokers(request.sender, brokers, view)  # all brokers or none
        rows = commands.rows_to_register(rows, view.groups, topic_exists=topic in view.topics)
        events = [RegisterTopic(actor=sender.actor, topic=topic, queue_data=row) for row in rows]
        for receipt in await asyncio.gather(*(gateway.propose(event, sender) for event in events)):
            effective(receipt)
        return response()

    async def _get_topics_by_cluster(self, request: Request) -> RemotingCommand:
        if not self._gateway.settings.enable_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        view, cluster = self._gateway.view, request.command.ext("cluster") or ""
        return response(body=await self._topic_lists.get(view, "cluster", lambda: view.topics_in(cluster), cluster))

    async def _get_system_topic_list(self, _request: Request) -> RemotingCommand:
        view = self._gateway.view

        def encode() -> bytes:
            found = view.system_topics()
            return encode_topic_list(found.topics, found.broker_addr)

        return response(body=self._bodies.get("system", "", (view.groups, view.clusters), encode))

    async def _get_unit_topic_list(self, request: Request) -> RemotingCommand:
        if not self._gateway.settings.enable_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        view, code = self._gateway.view, request.command.code
        if code == RequestCode.GET_UNIT_TOPIC_LIST:
            topics = view.unit_topics
        elif code == RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST:
            topics = view.unit_sub_topics
        else:
            topics = view.unit_sub_un_unit_topics
        return response(body=await self._topic_lists.get(view, str(code), topics))

    # --- KV configuration ---

    async def _get_kv_config(self, request: Request) -> RemotingCommand:
        namespace, key = request.command.ext("namespace"), request.command.ext("key")
        value = self._gateway.view.kv_get(namespace or "", key or "")
        if value is not None and namespace is not None and key is not None:
            return response(ext_fields={"value": value})
        return response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}", {})

    async def _get_kv_list(self, request: Request) -> RemotingCommand:
        namespace = request.command.ext("namespace")
        body = None if namespace is None else self._kv_body(namespace, self._gateway.view.kv_table(namespace))
        if body is None:
            return response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return response(body=body)

    # --- configuration of the NameServer ---

    async def _get_config(self, _request: Request) -> RemotingCommand:
        return response(body=config_commands.encode_config(self._gateway.settings))

    async def _update_config(self, request: Request) -> RemotingCommand:
        peer, sender = request.connection.peer, request.sender
        try:
            switches = config_commands.read_update(request.command.body, self._gateway.settings)
        except commands.RefusedError as error:
            log.warning("UPDATE_NAMESRV_CONFIG refused", peer=peer, reason=str(error)[:200])
            raise
        for name, value in switches.items():
            text = to_text(value)
            log.warning("configuration changed", key=name, value=text, peer=peer)
            put = PutKvConfig(actor=sender.actor, namespace=NAMESRV_CONFIG, key=name, value=text)
            effective(await self._gateway.propose(put, sender))
        return response()

    # --- shared ---

    async def _command(self, request: Request) -> RemotingCommand:
        """Do a write that is answered with OK alone."""
        event = self._event(request)
        if event is not None:
            began = time.perf_counter()
            receipt = await self._gateway.propose(event, request.sender)
            if isinstance(event, PutKvConfig | DeleteKvConfig):
                self._metrics.kv_latency.observe(time.perf_counter() - began)
            log.debug("command", command=request.command.code, offset=receipt.offset, visible=receipt.visible)
            effective(receipt)
            if isinstance(event, UnregisterBroker):
                broker = (event.cluster_name, event.broker_name, event.broker_addr)
                if self._bound.get(request.connection.id, {}).pop(broker, True) is None:
                    self._count_binding(event.broker_name, event.broker_addr, -1)
        return response()

    def _event(self, request: Request) -> AnyEvent | None:
        return commands.to_event(request.command, commands.RequestContext(request.sender.actor))

    def _channel(self, connection: Connection) -> Channel:
        return Channel(self._gateway.settings.gateway_id, connection.id)


def effective(receipt: Receipt) -> Receipt:
    """Return a receipt. If the rules refused the event, or a rule failed on it, raise: it is on the log without effect.

    Raises:
        RefusedError: The answer is SYSTEM_ERROR.
    """
    if receipt.reason == KV_TABLE_FULL:
        raise commands.RefusedError(KV_FULL)
    if receipt.is_quarantined:
        raise commands.RefusedError(f"quarantined by the fold, see offset {receipt.offset} in quarantineTable")
    return receipt


def topic_not_exist(topic: str | None) -> RemotingCommand:
    """Return RocketMQ's own text, which its clients log (ClientRequestProcessor, FAQUrl.suggestTodo)."""
    return response(
        ResponseCode.TOPIC_NOT_EXIST,
        f"No topic route info in name server for the topic: {'null' if topic is None else topic}\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
    )


_TOPIC_NOT_EXIST: Final = RemarkTemplate(topic_not_exist)
_OK: Final = EncodedReply(response())
