"""RequestCode -> gateway: what each request of the NameServer's two processors answers.

Reads come from the view, writes become events. What a malformed request does (a missing field is null, not an error,
unless a rule says so) is decided in `api.remoting.commands`, which turns requests into events.

Sources (5.5.0): org.apache.rocketmq.namesrv.processor.DefaultRequestProcessor, ClientRequestProcessor,
org.apache.rocketmq.namesrv.routeinfo.BrokerHousekeepingService.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import takewhile
from typing import Final

import structlog

from api.gateway import Gateway, Receipt, follow_switches
from api.metrics import Metrics
from api.remoting import commands, config_commands
from api.remoting.answers import encode_data_version, encode_kv_table, encode_topic_list, not_supported
from api.remoting.channel import Connection
from api.remoting.frame import RemotingCommand
from api.remoting.large import LargeRegistrations, is_large
from api.remoting.notifier import Notifier
from api.remoting.registration import decode_data_version
from api.remoting.repeats import Heartbeats, Registrations, digest_of
from api.remoting.reply import ReplyTemplate, response
from api.remoting.route_query import RouteQuery, route_query
from api.view.answers import RouteAnswers
from api.view.snapshot import RouteView
from schemas.codes import RequestCode, ResponseCode
from schemas.errors import RoutelakeError
from schemas.events import (
    Actor,
    AnyEvent,
    Channel,
    ChannelClosed,
    DeleteKvConfig,
    PutKvConfig,
    RegisterBroker,
    RegisterTopic,
    UnregisterBroker,
)
from schemas.kv import NAMESRV_CONFIG, ORDER_TOPIC_CONFIG
from schemas.outcomes import SINGLE_TOPIC_REFUSED, STATE_VERSION_CONFLICT
from schemas.rocketmq_json import encode_member_group

log = structlog.get_logger("routelake.gateway")

MAX_TEMPLATES: Final = 32_768

Handler = Callable[[RemotingCommand, Connection], Awaitable[RemotingCommand]]


class NameServerHandler:
    """Answers requests on behalf of one gateway. Lives on the gateway's event loop."""

    def __init__(self, gateway: Gateway, answers: RouteAnswers | None = None, metrics: Metrics | None = None) -> None:
        self._gateway = gateway
        self._metrics = metrics or Metrics()
        self._answers = answers or RouteAnswers()
        follow_switches(gateway, self._answers)
        self._templates: dict[RouteQuery, tuple[bytes, ReplyTemplate]] = {}
        self._current: dict[RouteQuery, ReplyTemplate] = {}
        """Those known to be right for the view and the settings of the moment."""
        self._bound: dict[str, dict[tuple[str, str, str], None]] = {}
        """connection id -> (clusterName, brokerName, brokerAddr) registered over it, in order."""
        self._heartbeats = Heartbeats()
        self._registrations = Registrations()
        self._large = LargeRegistrations()
        self._closing: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._notifier = Notifier(self._is_bound)
        gateway.on_stop(self._large.close)
        gateway.follow_views(self._view_moved)
        gateway.follow_settings(lambda _settings: self._current.clear())
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

    def fast_route(self, query: RouteQuery) -> ReplyTemplate:
        """The answer to a GET_ROUTEINFO_BY_TOPIC, encoded; the same object while the answer is the same."""
        current = self._current.get(query)
        if current is not None:
            return current
        if not self._gateway.is_ready_for_service:
            return ReplyTemplate(response(ResponseCode.SYSTEM_ERROR, "name server not ready"))
        body = (
            None
            if query.topic is None
            else self._answers.route(
                self._gateway.view, query.topic, numeric_keys=query.numeric_keys, zone=query.zone_name
            )
        )
        if body is None:
            return ReplyTemplate(topic_not_exist(query.topic))
        known = self._templates.get(query)
        if known is None or known[0] is not body:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
                self._current.clear()
            known = self._templates[query] = (body, ReplyTemplate(response(body=body)))
        self._current[query] = known[1]
        return known[1]

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Answer one request; what is raised becomes an answer (`api.remoting.answers.failure`)."""
        handler = self._handlers.get(command.code)
        return not_supported(command.code) if handler is None else await handler(command, connection)

    def on_connect(self, connection: Connection) -> None:
        """Nothing is known of a peer before it registers."""

    def on_close(self, connection: Connection) -> None:
        """A lost connection unregisters the brokers that registered over it (BrokerHousekeepingService)."""
        self._heartbeats.forget(connection.id)
        bound = self._bound.pop(connection.id, None)
        if bound and not self._stopping:
            task = asyncio.create_task(self._unbind(connection, sorted(bound)))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _view_moved(self, before: RouteView, after: RouteView) -> None:
        self._current.clear()
        if self._gateway.settings.notify_min_broker_id_changed:
            self._notifier.view_moved(before, after)

    def _is_bound(self, broker_name: str, broker_addr: str) -> bool:
        return any(
            name == broker_name and addr == broker_addr for bound in self._bound.values() for _, name, addr in bound
        )

    def stop(self) -> None:
        """From now on a closed connection is this gateway's doing, and no broker's loss."""
        self._stopping = True

    # --- brokers ---

    async def _register_broker(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        event, receipt = await self._register(command, connection)
        if event is None or receipt is None:
            return response(ext_fields={})
        self._metrics.registrations.labels("remoting", receipt.verdict()).inc()
        reason = receipt.outcome.reason if receipt.outcome is not None else None
        if reason == SINGLE_TOPIC_REFUSED:
            return response(ResponseCode.SYSTEM_ERROR, "register broker failed", {})
        if reason == STATE_VERSION_CONFLICT:
            return response(ext_fields={}, body=self._order_topic_config())
        effective(receipt)
        if not connection.closed:
            broker = (event.cluster_name, event.broker_name, event.broker_addr)
            self._bound.setdefault(connection.id, {})[broker] = None
        else:
            # It closed before its registration was answered: what was just registered has left.
            await self._unbind(connection, [(event.cluster_name, event.broker_name, event.broker_addr)])
        view = self._gateway.view
        result = view.registration_result(event.cluster_name, event.broker_name, event.broker_id)
        fields = {"haServerAddr": result.ha_server_addr, "masterAddr": result.master_addr}
        return response(
            ext_fields={name: value for name, value in fields.items() if value is not None},
            body=self._order_topic_config(),
        )

    async def _register(
        self, command: RemotingCommand, connection: Connection
    ) -> tuple[RegisterBroker | None, Receipt | None]:
        self._metrics.registration_bytes.observe(len(command.body))
        large = is_large(command)
        body_digest = await self._gateway.aside(digest_of, command.body) if large else digest_of(command.body)
        actor, channel = self._actor(connection), self._channel(connection)
        known = self._registrations.find(command, body_digest, actor, channel)
        if known is not None and not self._gateway.settings.delete_topic_with_broker_registration:
            receipt = await self._gateway.repeat(known.event, known.key, known.payload)
            if receipt is not None:
                return known.event, receipt
        now_ms = time.time_ns() // 1_000_000
        delete_absent = self._gateway.settings.delete_topic_with_broker_registration
        circumstances = commands.Circumstances(actor, channel, now_ms, delete_absent)
        event: AnyEvent | None
        if large:
            read = await self._gateway.aside(self._large.read, command, circumstances)
            event, payload = read or (None, None)
        else:
            event, payload = commands.to_event(command, circumstances), None
        if event is None:
            return None, None
        assert isinstance(event, RegisterBroker)
        receipt = await self._gateway.register(event, payload)
        # A DataVersion without timestamp takes the time of receipt: the same bytes mean another event each time.
        if event.data_version.timestamp != now_ms:
            self._registrations.keep(command, body_digest, event)
        return event, receipt

    def _order_topic_config(self) -> bytes:
        """Body of a registration's answer: the order configuration, if brokers are to have it."""
        wanted = self._gateway.settings.return_order_topic_config_to_broker
        table = self._gateway.view.kv_list(ORDER_TOPIC_CONFIG) if wanted else None
        return b"" if table is None else encode_kv_table(table)

    async def _unbind(self, connection: Connection, brokers: list[tuple[str, str, str]]) -> None:
        for cluster_name, broker_name, broker_addr in brokers:
            event = ChannelClosed(
                actor=self._actor(connection),
                cluster_name=cluster_name,
                broker_name=broker_name,
                broker_addr=broker_addr,
                channel=Channel(self._gateway.settings.gateway_id, connection.id),
            )
            try:
                await self._gateway.append(event)
            except RoutelakeError as error:
                log.warning(
                    "lost connection not recorded; the broker will expire", broker=broker_name, error=str(error)
                )

    async def _query_data_version(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        event = self._event(command, connection)
        if event is not None:
            await self._gateway.heartbeat(event)
        header = commands.read_broker_header(command)
        live = self._gateway.view.live_row(
            header.broker_name or "", header.cluster_name or "", header.broker_addr or ""
        )
        changed = live is None or live.data_version != decode_data_version(command.body)
        return response(
            ext_fields={"changed": "true" if changed else "false"},
            body=b"" if live is None else encode_data_version(live.data_version),
        )

    async def _heartbeat(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        known = self._heartbeats.find(connection.id, command)
        if known is None:
            event = self._event(command, connection)
            if event is None:
                return response()
            known = self._heartbeats.keep(connection.id, command, event)
            if connection.closed:
                self._heartbeats.forget(connection.id)
        await self._gateway.append_encoded(known.key, known.payload)
        return response()

    async def _get_broker_member_group(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        header = commands.read_broker_header(command)
        members = self._gateway.view.broker_member_group(header.broker_name or "")
        return response(
            # RocketMQ forgets to clear the remark here, too.
            remark="not set any response code",
            body=encode_member_group(header.cluster_name, header.broker_name, members),
        )

    async def _get_cluster_info(self, _command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        return response(body=self._answers.cluster_info(self._gateway.view))

    # --- topics ---

    async def _get_route(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        return self.fast_route(route_query(command)).command

    async def _get_all_topic_list(self, _command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        if not self._gateway.settings.enable_all_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        return response(body=self._answers.all_topics(self._gateway.view))

    async def _change_write_perm(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        count = "wipeTopicCount" if command.code == RequestCode.WIPE_WRITE_PERM_OF_BROKER else "addTopicCount"
        event = self._event(command, connection)
        if event is None:
            return response(ext_fields={count: "0"})
        receipt = effective(await self._gateway.command(event))
        result = (receipt.outcome.result if receipt.outcome is not None else None) or {}
        changed = result.get(count)
        if changed is None:
            changed = self._gateway.view.topic_count(command.ext("brokerName") or "")
        return response(ext_fields={count: str(changed)})

    async def _register_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """RouteInfoManager.registerTopic: a new topic all or nothing, else row by row up to an unknown broker."""
        registration = commands.read_topic_registration(command)
        if registration is None:
            return response()
        topic, rows = registration
        view = self._gateway.view
        known = list(takewhile(lambda row: row.broker_name in view.groups, rows))
        if len(known) < len(rows) and topic not in view.topics:
            return response()
        actor = self._actor(connection)
        events = [RegisterTopic(actor=actor, topic=topic, queue_data=row) for row in known]
        for receipt in await asyncio.gather(*(self._gateway.command(event) for event in events)):
            effective(receipt)
        return response()

    async def _get_topics_by_cluster(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        if not self._gateway.settings.enable_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        topics = self._gateway.view.topics_by_cluster(command.ext("cluster") or "")
        return response(body=encode_topic_list(topics))

    async def _get_system_topic_list(self, _command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        found = self._gateway.view.system_topics()
        return response(body=encode_topic_list(found.topics, found.broker_addr))

    async def _get_unit_topic_list(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        if not self._gateway.settings.enable_topic_list:
            return response(ResponseCode.SYSTEM_ERROR, "disable")
        view = self._gateway.view
        if command.code == RequestCode.GET_UNIT_TOPIC_LIST:
            topics = view.unit_topics()
        elif command.code == RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST:
            topics = view.unit_sub_topics()
        else:
            topics = view.unit_sub_un_unit_topics()
        return response(body=encode_topic_list(topics))

    # --- KV configuration ---

    async def _get_kv_config(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        namespace, key = command.ext("namespace"), command.ext("key")
        value = self._gateway.view.kv_get(namespace or "", key or "")
        if value is not None and namespace is not None and key is not None:
            return response(ext_fields={"value": value})
        return response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}", {})

    async def _get_kv_list(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        namespace = command.ext("namespace")
        table = None if namespace is None else self._gateway.view.kv_list(namespace)
        if table is None:
            return response(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return response(body=encode_kv_table(table))

    # --- configuration of the NameServer ---

    async def _get_config(self, _command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        return response(body=config_commands.encode_config(self._gateway.settings))

    async def _update_config(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        try:
            switches = config_commands.read_update(command.body, self._gateway.settings)
        except commands.RefusedError as error:
            log.warning("UPDATE_NAMESRV_CONFIG refused", peer=connection.peer, reason=str(error))
            raise
        actor = self._actor(connection)
        for name, value in switches.items():
            text = config_commands.to_text(value)
            log.warning("the configuration is changed", key=name, value=text, peer=connection.peer)
            put = PutKvConfig(actor=actor, namespace=NAMESRV_CONFIG, key=name, value=text)
            effective(await self._gateway.command(put))
        return response()

    # --- shared ---

    async def _command(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A write whose answer is a bare OK."""
        event = self._event(command, connection)
        if event is not None:
            began = time.perf_counter()
            receipt: Receipt = await self._gateway.command(event)
            if isinstance(event, PutKvConfig | DeleteKvConfig):
                self._metrics.kv_latency.observe(time.perf_counter() - began)
            log.debug("command", command=command.code, offset=receipt.offset, visible=receipt.visible)
            effective(receipt)
            if isinstance(event, UnregisterBroker):
                self._bound.get(connection.id, {}).pop((event.cluster_name, event.broker_name, event.broker_addr), None)
        return response()

    def _event(self, command: RemotingCommand, connection: Connection) -> AnyEvent | None:
        return commands.to_event(command, commands.Circumstances(self._actor(connection)))

    def _channel(self, connection: Connection) -> Channel:
        return Channel(self._gateway.settings.gateway_id, connection.id)

    def _actor(self, connection: Connection) -> Actor:
        return Actor(gateway=self._gateway.settings.gateway_id, via="remoting", peer=connection.peer)


def effective(receipt: Receipt) -> Receipt:
    """A receipt, unless a rule of the fold failed on what was written: then it was acknowledged, and did nothing.

    Raises:
        RefusedError: Answered with SYSTEM_ERROR; quarantineTable has it.
    """
    if receipt.is_quarantined:
        raise commands.RefusedError(f"put aside by the fold, see offset {receipt.offset} in quarantineTable")
    return receipt


def topic_not_exist(topic: str | None) -> RemotingCommand:
    """Clients test only the code; people read the remark."""
    return response(
        ResponseCode.TOPIC_NOT_EXIST,
        f"No topic route info in name server for the topic: {'null' if topic is None else topic}\n"
        "See docs/operations.md, 'A topic has no route'.",
    )
