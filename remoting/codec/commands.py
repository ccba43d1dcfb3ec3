# SPDX-License-Identifier: Apache-2.0
"""Conversion of requests to events, and request headers, with RocketMQ's behaviour for missing fields.

A header field is read from ``extFields`` by its exact name. A field that is absent or cannot be parsed is null. As in
RocketMQ, "required" is not enforced (RemotingCommand.decodeCommandCustomHeader). Each request handles nulls its way:

==========  ==================================================================================================
request     outcome of nulls
==========  ==================================================================================================
100         namespace or key null: SYSTEM_ERROR. A null value is stored
102, 205,   OK, nothing happens: the exception is ignored, or no such row can exist
216, 327
103         no brokerId: SYSTEM_ERROR. clusterName, brokerName or brokerAddr null: OK, nothing happens
104         A name null: OK, nothing happens (RocketMQ removes the live row of (clusterName, brokerAddr)). brokerId
            null: half of it happens, and the state machine handles this
322, 904    clusterName or brokerAddr null: SYSTEM_ERROR. brokerName null: OK, nothing happens (in RocketMQ the
            live row of (clusterName, brokerAddr) is refreshed; here liveness also belongs to a brokerName)
==========  ==================================================================================================

If nothing happens, `to_event` returns None. If the answer is SYSTEM_ERROR, it raises `RefusedError`. A request that
would write a row is refused if a name cannot be stored (`remoting.codec.names`). Other requests find no such name.

Sources (5.5.0): DefaultRequestProcessor, RouteInfoManager, KVConfigManager and the header classes in
org.apache.rocketmq.remoting.protocol.header.namesrv.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Container, Sequence
from functools import partial
from itertools import takewhile
from typing import Final

import msgspec

from remoting.codec.frame import RemotingCommand, fields_problem
from remoting.codec.names import check_broker_name, check_key, check_name, existing
from remoting.codec.registration import (
    DEFAULT_INFLATED_LIMIT_BYTES,
    decode_data_version,
    decode_registration,
    decode_topic_queues,
)
from schemas.codes import MAX_INT, MAX_LONG, MIN_INT, MIN_LONG, V4_9_4, RequestCode, ResponseCode
from schemas.errors import BadRequestError
from schemas.events import (
    Actor,
    AddWritePerm,
    AnyEvent,
    BrokerHeartbeat,
    Channel,
    DeleteKvConfig,
    DeleteTopic,
    PutKvConfig,
    RegisterBroker,
    RegisterTopicQueue,
    UnregisterBroker,
    WipeWritePerm,
    topic_config_digest,
)
from schemas.kv import is_reserved
from schemas.limits import MAX_KV_VALUE_BYTES

ZONE_NAME: Final = "__ZONE_NAME"
_NO_FIELDS: Final[dict[str, str]] = {}

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


class RefusedError(BadRequestError):
    """Error: the request is answered with an error code. ``str()`` is the remark.

    Attributes:
        code: ResponseCode of the answer.
        ext_fields: {} if RocketMQ's answer has the key extFields, None if RocketMQ answers after an exception.
    """

    def __init__(
        self, message: str, /, *, code: int = ResponseCode.SYSTEM_ERROR, ext_fields: dict[str, str] | None = None
    ) -> None:
        """See the attributes."""
        self.code = code
        self.ext_fields = ext_fields
        super().__init__(message, code=code)


# --- headers ---


def read_int(command: RemotingCommand, name: str) -> int | None:
    """Read an Integer field. Return None if it is absent or not an int (Integer.parseInt)."""
    return _parse(command.ext(name), MIN_INT, MAX_INT)


def read_long(command: RemotingCommand, name: str) -> int | None:
    """Read a Long field. Return None if it is absent or not a long (Long.parseLong)."""
    return _parse(command.ext(name), MIN_LONG, MAX_LONG)


def read_bool(command: RemotingCommand, name: str) -> bool | None:
    """Read a Boolean field, or None if it is absent. Only "true" in any letter case is True (Boolean.parseBoolean)."""
    text = command.ext(name)
    return None if text is None else text.lower() == "true"


def _parse(text: str | None, lowest: int, highest: int) -> int | None:
    if text is None or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if lowest <= number <= highest else None


class BrokerHeader(msgspec.Struct, frozen=True):
    """The four fields that identify a broker in 103, 104, 322, 901 and 904."""

    cluster_name: str | None
    broker_name: str | None
    broker_addr: str | None
    broker_id: int | None


def read_route_query(command: RemotingCommand) -> tuple[str | None, bool, str | None]:
    """Read the topic, the dialect and the zone of a GET_ROUTEINFO_BY_TOPIC.

    Returns:
        The topic, whether the answer has fastjson's dialect with unquoted numeric keys, and the zone. Without a filter
        by zone, the zone is missing (None). ZoneRouteRPCHook encodes a filtered answer again, in that dialect.

    Source: GetRouteInfoRequestHeader, ClientRequestProcessor.getRouteInfoByTopic, ZoneRouteRPCHook.doAfterResponse.
    """
    fields = command.ext_fields or _NO_FIELDS
    zone = None
    if "__ZONE_MODE" in fields and read_bool(command, "__ZONE_MODE"):
        zone = fields.get(ZONE_NAME)
        if zone is not None and not zone.strip():
            zone = None
    numeric_keys = zone is not None or (command.version < V4_9_4 and not read_bool(command, "acceptStandardJsonOnly"))
    return fields.get("topic"), numeric_keys, zone


def read_broker_header(command: RemotingCommand) -> BrokerHeader:
    """Read the fields that RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader, … have in common."""
    return BrokerHeader(
        command.ext("clusterName"),
        command.ext("brokerName"),
        command.ext("brokerAddr"),
        read_long(command, "brokerId"),
    )


class RegisterBrokerHeader(msgspec.Struct, frozen=True):
    """RegisterBrokerRequestHeader without the four fields of `BrokerHeader`, and ``__ZONE_NAME``."""

    ha_server_addr: str | None
    heartbeat_timeout_millis: int | None
    enable_acting_master: bool | None
    compressed: bool
    body_crc32: int
    zone_name: str | None


def read_register_broker_header(command: RemotingCommand) -> RegisterBrokerHeader:
    """Read the fields of RegisterBrokerRequestHeader. A bodyCrc32 that is absent or not an int is 0."""
    return RegisterBrokerHeader(
        command.ext("haServerAddr"),
        read_long(command, "heartbeatTimeoutMillis"),
        read_bool(command, "enableActingMaster"),
        read_bool(command, "compressed") or False,
        read_int(command, "bodyCrc32") or 0,
        command.ext(ZONE_NAME),
    )


# --- events ---


class RequestContext(msgspec.Struct, frozen=True):
    """Data for the event in addition to the request.

    Attributes:
        actor: Sender of the request.
        channel: Connection to which a registration is bound.
        now_ms: Time for a DataVersion without timestamp, in milliseconds.
        delete_absent_topics: The gateway's setting deleteTopicWithBrokerRegistration.
        inflated_limit_bytes: Maximum size of a compressed registration after inflation, in bytes.
    """

    actor: Actor
    channel: Channel | None = None
    now_ms: int = 0
    delete_absent_topics: bool = False
    inflated_limit_bytes: int = DEFAULT_INFLATED_LIMIT_BYTES


def to_event(command: RemotingCommand, context: RequestContext) -> AnyEvent | None:
    """Convert a request to an event for the event log.

    Args:
        command: A request with one of `EVENT_CODES`.
        context: Context of this request.

    Returns:
        The event, or None if the answer is the request's ordinary OK and nothing happens.

    Raises:
        RefusedError: The answer is an error.
    """
    build = _BUILDERS[command.code]
    check_header_fields(command)
    try:
        return build(command, context)
    except RefusedError:
        raise
    except BadRequestError as error:
        raise RefusedError(str(error)) from error


def check_header_fields(command: RemotingCommand) -> None:
    """Refuse more or longer header fields than any peer needs, because parts of the gateway keep copies of requests.

    Raises:
        RefusedError: There are too many fields, or a field is too long.
    """
    problem = fields_problem(command)
    if problem is not None:
        raise RefusedError(problem)


def _register_broker(command: RemotingCommand, context: RequestContext) -> AnyEvent | None:
    """103, DefaultRequestProcessor.registerBroker: checksum, then version, then body, then brokerId."""
    header = read_register_broker_header(command)
    if header.body_crc32 != 0 and header.body_crc32 != zlib.crc32(command.body) & MAX_INT:
        raise RefusedError("crc32 not match", ext_fields={})
    body = decode_registration(
        command.body,
        command.version,
        compressed=header.compressed,
        now_ms=context.now_ms,
        inflated_limit_bytes=context.inflated_limit_bytes,
    )
    broker = read_broker_header(command)
    if broker.broker_id is None:
        raise RefusedError("brokerId is missing or not a number")
    if broker.cluster_name is None or broker.broker_name is None or broker.broker_addr is None:
        return None
    return RegisterBroker(
        actor=context.actor,
        cluster_name=check_key("clusterName", broker.cluster_name),
        broker_name=check_broker_name(broker.broker_name),
        broker_addr=check_key("brokerAddr", broker.broker_addr),
        broker_id=broker.broker_id,
        data_version=body.data_version,
        topic_config_digest=topic_config_digest(body.topic_config_table),
        topic_config_table=body.topic_config_table,
        topic_queue_mapping_info_map=body.topic_queue_mapping_info_map,
        filter_server_list=body.filter_server_list,
        ha_server_addr=None if header.ha_server_addr is None else check_name("haServerAddr", header.ha_server_addr),
        heartbeat_timeout_millis=header.heartbeat_timeout_millis,
        enable_acting_master=header.enable_acting_master,
        zone_name=None if header.zone_name is None else check_name(ZONE_NAME, header.zone_name),
        delete_absent_topics=context.delete_absent_topics,
        channel=context.channel,
    )


def _unregister_broker(command: RemotingCommand, context: RequestContext) -> AnyEvent | None:
    """104, DefaultRequestProcessor.unregisterBroker."""
    broker = read_broker_header(command)
    names = _existing_names(broker)
    if names is None:
        return None
    return UnregisterBroker(
        actor=context.actor,
        cluster_name=names[0],
        broker_name=names[1],
        broker_addr=names[2],
        broker_id=broker.broker_id,
    )


def _broker_heartbeat(command: RemotingCommand, context: RequestContext) -> AnyEvent | None:
    """904 and 322, DefaultRequestProcessor.brokerHeartbeat and queryBrokerTopicConfig."""
    broker = read_broker_header(command)
    if command.code == RequestCode.QUERY_DATA_VERSION:
        decode_data_version(command.body)
    if broker.cluster_name is None or broker.broker_addr is None:
        raise RefusedError("clusterName or brokerAddr is null")
    names = _existing_names(broker)
    if names is None:
        return None
    return BrokerHeartbeat(actor=context.actor, cluster_name=names[0], broker_name=names[1], broker_addr=names[2])


_key: Final = partial(check_key, "name")


def _existing_names(broker: BrokerHeader) -> tuple[str, str, str] | None:
    """The names of a broker, or None if no broker can have registered under these names."""
    cluster_name = existing(broker.cluster_name, _key)
    broker_name = existing(broker.broker_name, check_broker_name)
    broker_addr = existing(broker.broker_addr, _key)
    if cluster_name is None or broker_name is None or broker_addr is None:
        return None
    return cluster_name, broker_name, broker_addr


def _delete_topic(command: RemotingCommand, context: RequestContext) -> AnyEvent | None:
    """216, DefaultRequestProcessor.deleteTopicInNamesrv. An empty clusterName counts as absent."""
    topic = existing(command.ext("topic"))
    given_cluster = command.ext("clusterName") or None
    cluster_name = existing(given_cluster, _key)
    if topic is None or cluster_name != given_cluster:
        return None
    return DeleteTopic(actor=context.actor, topic=topic, cluster_name=cluster_name)


def _change_write_perm(
    command: RemotingCommand, context: RequestContext, event: type[WipeWritePerm | AddWritePerm]
) -> AnyEvent | None:
    """205 and 327, DefaultRequestProcessor.wipeWritePermOfBroker and addWritePermOfBroker."""
    broker_name = existing(command.ext("brokerName"), check_broker_name)
    return None if broker_name is None else event(actor=context.actor, broker_name=broker_name)


def _check_open(namespace: str) -> None:
    if is_reserved(namespace):
        raise RefusedError(
            f"namespace {namespace} holds settings: UPDATE_NAMESRV_CONFIG changes them", code=ResponseCode.NO_PERMISSION
        )


def _put_kv_config(command: RemotingCommand, context: RequestContext) -> AnyEvent | None:
    """100, DefaultRequestProcessor.putKVConfig."""
    namespace, key = command.ext("namespace"), command.ext("key")
    if namespace is None or key is None:
        raise RefusedError("namespace or key is null")
    _check_open(namespace)
    value = command.ext("value")
    size = len((value or "").encode("utf-8", "replace"))
    if size > MAX_KV_VALUE_BYTES:
        raise RefusedError(f"a KV value of {size} bytes: at most {MAX_KV_VALUE_BYTES} are accepted")
    return PutKvConfig(
        actor=context.actor,
        namespace=check_name("namespace", namespace),
        key=check_name("key", key),
        value=value,
    )


def _delete_kv_config(command: RemotingCommand, context: RequestContext) -> AnyEvent | None:
    """102, DefaultRequestProcessor.deleteKVConfig."""
    namespace, key = existing(command.ext("namespace")), existing(command.ext("key"))
    if namespace is None or key is None:
        return None
    _check_open(namespace)
    return DeleteKvConfig(actor=context.actor, namespace=namespace, key=key)


_BUILDERS: Final[dict[int, Callable[[RemotingCommand, RequestContext], AnyEvent | None]]] = {
    RequestCode.PUT_KV_CONFIG: _put_kv_config,
    RequestCode.DELETE_KV_CONFIG: _delete_kv_config,
    RequestCode.REGISTER_BROKER: _register_broker,
    RequestCode.UNREGISTER_BROKER: _unregister_broker,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: partial(_change_write_perm, event=WipeWritePerm),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _delete_topic,
    RequestCode.QUERY_DATA_VERSION: _broker_heartbeat,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: partial(_change_write_perm, event=AddWritePerm),
    RequestCode.BROKER_HEARTBEAT: _broker_heartbeat,
}

EVENT_CODES: Final = frozenset(_BUILDERS)
"""Codes of the requests that `to_event` converts. 217 is missing because the rows that it writes depend on the view."""


def read_topic_registration(command: RemotingCommand) -> tuple[str, list[RegisterTopicQueue]] | None:
    """217, DefaultRequestProcessor.registerTopicToNamesrv: the topic and its queueDatas, in order.

    Returns:
        The topic and its queueDatas, or None if there is nothing to register (the answer is OK).

    Raises:
        RefusedError: The body cannot be decoded, or a name cannot be stored.
    """
    topic = command.ext("topic")
    try:
        rows = decode_topic_queues(command.body)
        return (check_name("topic", topic), rows) if topic is not None and rows else None
    except BadRequestError as error:
        raise RefusedError(str(error)) from error


def rows_to_register(
    rows: Sequence[RegisterTopicQueue], brokers: Container[str], *, topic_exists: bool
) -> list[RegisterTopicQueue]:
    """Select the rows of a 217 to write: for a new topic all or none, otherwise those before the first unknown broker.

    Args:
        rows: Rows from `read_topic_registration`.
        brokers: Names of the broker groups that are registered.
        topic_exists: Whether the topic has a row already.

    Source: RouteInfoManager.registerTopic.
    """
    known = list(takewhile(lambda row: row.broker_name in brokers, rows))
    return known if topic_exists or len(known) == len(rows) else []
