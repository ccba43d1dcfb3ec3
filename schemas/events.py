# SPDX-License-Identifier: Apache-2.0
"""Event types of the event log.

An event is recorded as it was received, without a decision. The log adds its offset and its event time (time of
receipt, never decreasing). `nameserver.state_machine` decides its effect. `encode` and `decode` convert to the payload
on the log: one format byte, then zstd-compressed JSON with RocketMQ's field names. So a log can be read with ``zstd``
and ``jq`` if everything else is down. The frame ends with zstd's checksum of the content, which detects a page that the
disk has changed.

The *routing key* next to a payload names the state that an event touches (`routing_key`), without decoding the payload.
"""

from __future__ import annotations

import hashlib
from operator import itemgetter
from typing import Final

import msgspec
import zstandard

from schemas.broker import DataVersion, Int, Long, QueueRow, TopicQueueMappingInfo
from schemas.errors import EventDecodeError, TooLargeError
from schemas.limits import MAX_EVENT_BYTES, MAX_READABLE_EVENT_BYTES

IMMEDIATE: Final = b"\x01"
"""First byte of a payload that may change something for which a client waits."""
DEFERRABLE: Final = b"\x02"
"""First byte of a payload, usually a heartbeat, for which no client waits. It can be folded with the next immediate
one, at the latest after some seconds. A reader must not interpret a payload with a higher first byte."""

EVENT_LEVEL: Final = 2
"""Version of the format that a reader of the log must know. It rises with a new first byte, a new command, or a new
meaning of a field, but not with a field that may be ignored. A lake states the level of its log (docs/adr/0019)."""

HEAD_BYTES: Final = 1 + 18
"""Size of a payload's first byte and of the longest header of a zstd frame (RFC 8878, 3.1.1.1), in bytes."""

KEY_EVERYTHING: Final = "*"
KEY_KV: Final = "kv"
_KEY_BROKER_PREFIX: Final = "b:"


class Actor(msgspec.Struct, frozen=True, rename="camel"):
    """Sender of an event: ``via`` remoting, http or routelake itself, ``peer`` host:port, receiving ``gateway``."""

    gateway: str
    via: str
    peer: str | None = None
    user: str | None = None


class Channel(msgspec.Struct, frozen=True, rename="camel"):
    """Connection over which a broker registered. It is unique within its gateway for ever."""

    gateway: str
    connection: str


class Event(msgspec.Struct, frozen=True, rename="camel", tag_field="command", kw_only=True):
    """Common part. ``command`` (the tag) is RocketMQ's RequestCode name, or routelake's own for other events."""

    actor: Actor


class RegisterBroker(Event, frozen=True, tag="REGISTER_BROKER"):
    """A broker registers itself and its topics (request code 103), or repeats its registration.

    ``topic_config_table`` is null in a topicless registration: ``topic_config_digest`` names topics that are already
    applied. An empty object is a registration without topics.

    ``delete_absent_topics`` is the gateway's deleteTopicWithBrokerRegistration at the time of receipt.
    ``heartbeat_timeout_millis`` and ``enable_acting_master`` are null if the request does not have them, because the
    rules distinguish this.
    """

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: Long
    data_version: DataVersion
    topic_config_digest: str
    topic_config_table: dict[str, QueueRow] | None = None
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}
    filter_server_list: list[str] | None = None
    ha_server_addr: str | None = None
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    zone_name: str | None = None
    delete_absent_topics: bool = False
    channel: Channel | None = None

    @property
    def speaks_for(self) -> list[str]:
        """brokerNames of the registration: its own, then those of its static topics (the same in stock brokers)."""
        mapped = {mapping.bname or "" for mapping in self.topic_queue_mapping_info_map.values()}
        return [self.broker_name, *sorted(mapped - {self.broker_name})]


class UnregisterBroker(Event, frozen=True, tag="UNREGISTER_BROKER"):
    """A broker unregisters (request code 104). A request without a usable brokerId has a part of this effect.

    With ``if_overdue`` the sender is a gateway that found another broker at the address. The broker then expires, also
    during self-preservation, unless it sent a heartbeat meanwhile.
    """

    cluster_name: str
    broker_name: str
    broker_addr: str
    broker_id: Long | None
    if_overdue: bool = False


class BrokerHeartbeat(Event, frozen=True, tag="BROKER_HEARTBEAT"):
    """A broker sends a heartbeat (request code 904), or a QUERY_DATA_VERSION (322), which has the same effect."""

    cluster_name: str
    broker_name: str
    broker_addr: str


class ChannelClosed(Event, frozen=True, tag="CHANNEL_CLOSED"):
    """A broker's connection to a gateway was closed (BrokerHousekeepingService). Each of its brokers gets an event.

    ``grace_ms`` is the gateway's setting at the time of receipt. With 0 the broker leaves at once. Otherwise it has so
    much time to send a heartbeat.
    """

    cluster_name: str
    broker_name: str
    broker_addr: str
    channel: Channel
    grace_ms: Long = 0


class DeleteTopic(Event, frozen=True, tag="DELETE_TOPIC_IN_NAMESRV"):
    """A topic is deleted (request code 216), with a cluster on its brokers only."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicQueue(msgspec.Struct, frozen=True, rename="camel"):
    """One queueDatas entry of a 217."""

    broker_name: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_sys_flag: Int


class RegisterTopic(Event, frozen=True, tag="REGISTER_TOPIC_IN_NAMESRV"):
    """A topic is registered for one broker group (request code 217). Each accepted queueDatas entry is one event."""

    topic: str
    queue_data: RegisterTopicQueue


class WipeWritePerm(Event, frozen=True, tag="WIPE_WRITE_PERM_OF_BROKER"):
    """The write permission of a broker's topics is removed (request code 205)."""

    broker_name: str


class AddWritePerm(Event, frozen=True, tag="ADD_WRITE_PERM_OF_BROKER"):
    """The write permission of a broker's topics is restored (request code 327)."""

    broker_name: str


class PutKvConfig(Event, frozen=True, tag="PUT_KV_CONFIG"):
    """A KV entry is set (request code 100). A missing value is accepted, and reads as "not found"."""

    namespace: str
    key: str
    value: str | None = None


class DeleteKvConfig(Event, frozen=True, tag="DELETE_KV_CONFIG"):
    """A KV entry is deleted (request code 102)."""

    namespace: str
    key: str


class AccessRefused(Event, frozen=True, tag="ACCESS_REFUSED"):
    """A request was refused for want of a role. One event represents all of its kind within a minute. No state changes.

    ``actor.user`` is the authenticated user, ``claimed_user`` the account that a wrong proof named.

    ``request`` is the name of the RequestCode or of the HTTP operation. ``role`` is the actor's, ``needed`` the least
    role that is allowed, null if no role is. ``reason`` is one of `security.policy.REASONS`, ``remark`` a sentence for
    a person. ``is_refused`` is false if the mode accepts the request. ``times`` counts those of its kind since the last
    one that was written. ``topic`` and ``broker_name`` are those of the request, if it names any.
    """

    request: str
    needed: str | None
    role: str | None
    reason: str
    remark: str
    is_refused: bool
    times: Long = 1
    claimed_user: str | None = None
    topic: str | None = None
    broker_name: str | None = None


class Clock(Event, frozen=True, tag="CLOCK"):
    """Event time advances. A gateway writes this event every few seconds, so that brokers expire if nothing arrives."""


class Resume(Event, frozen=True, tag="RESUME"):
    """The first event after a time in which no gateway wrote. All deadlines move by that time.

    With ``after_ms`` it has an effect only if the event log stamped it later than that. Kafka may accept a record long
    after it was sent, so a gateway sends this event before all others.
    """

    after_ms: Long | None = None


class Preserve(Event, frozen=True, tag="PRESERVE"):
    """Self-preservation begins: too many live brokers missed heartbeats at once. No broker expires until PRESERVE_END.

    ``live`` and ``silent`` are the numbers that the gateway counted, ``percent`` is its threshold. They are for the
    history, and no rule reads them.
    """

    live: Int
    silent: Int
    percent: Int


class PreserveEnd(Event, frozen=True, tag="PRESERVE_END"):
    """Self-preservation ends, and brokers expire again.

    ``grace_ms`` is the time that overdue brokers have to send a heartbeat. With 0 they expire at once. ``reason`` is
    for the history: RECOVERED, LIMIT, SWITCHED_OFF or REQUESTED.
    """

    grace_ms: Long
    reason: str


AnyEvent = (
    RegisterBroker
    | UnregisterBroker
    | BrokerHeartbeat
    | ChannelClosed
    | DeleteTopic
    | RegisterTopic
    | WipeWritePerm
    | AddWritePerm
    | PutKvConfig
    | DeleteKvConfig
    | AccessRefused
    | Clock
    | Resume
    | Preserve
    | PreserveEnd
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def routing_key(event: AnyEvent) -> str:
    """Name the state that an event touches: ``b:<brokerName>``, ``kv``, or ``*`` for every broker group."""
    match event:
        case DeleteTopic() | Clock() | Resume() | Preserve() | PreserveEnd():
            return KEY_EVERYTHING
        case PutKvConfig() | DeleteKvConfig() | AccessRefused():
            return KEY_KV
        case RegisterTopic():
            return broker_key(event.queue_data.broker_name)
        case _:
            return broker_key(event.broker_name)


def broker_key(broker_name: str) -> str:
    """Return the routing key of a broker group."""
    return _KEY_BROKER_PREFIX + broker_name


class EventEncoder:
    """`encode` for one thread with many events. It reuses a compressor, which costs more to make than to use."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)

    def encode(self, event: AnyEvent) -> bytes:
        """Encode an event as a payload: a byte for immediate or deferrable, then a zstd frame of JSON.

        The frame states the size of its content (`inflated_bytes`).

        Raises:
            TooLargeError: The event exceeds the size limit.
        """
        data = _encoder.encode(event)
        if len(data) > MAX_EVENT_BYTES:
            raise TooLargeError(
                f"an event of {len(data)} bytes, uncompressed, is larger than one may be ({MAX_EVENT_BYTES} bytes)",
                size_bytes=len(data),
                limit_bytes=MAX_EVENT_BYTES,
            )
        return (DEFERRABLE if _is_deferrable(event) else IMMEDIATE) + self._compressor.compress(data)


def _is_deferrable(event: AnyEvent) -> bool:
    """Return True if no client waits until the event is in the tables.

    Heartbeats are deferrable, because their gateway expects them to change only a heartbeat time. CLOCK is, too. So are
    refusals, because repeated refused requests should not make an epoch each second.
    """
    return (
        isinstance(event, BrokerHeartbeat | AccessRefused | Clock)
        or (isinstance(event, RegisterBroker) and event.topic_config_table is None)
        or (isinstance(event, Resume) and event.after_ms is not None)
    )


def encode(event: AnyEvent) -> bytes:
    """Encode an event as a payload, in any thread.

    Raises:
        TooLargeError: The event exceeds the size limit.
    """
    return EventEncoder().encode(event)


def inflated_bytes(payload: bytes) -> int | None:
    """Return the size that a payload's frame states for its content. None without such a frame.

    Args:
        payload: Payload, or its first `HEAD_BYTES`.
    """
    try:
        size = zstandard.frame_content_size(payload[1:])
    except zstandard.ZstdError:
        return None
    return size if size >= 0 else None


_idle: Final[list[zstandard.ZstdDecompressor]] = []
"""Decompressors that no thread uses now. One costs more to make than to use."""


def read_json(payload: bytes) -> bytes:
    """Return the JSON in a payload. It is never larger than the frame states, nor than MAX_READABLE_EVENT_BYTES.

    Raises:
        EventDecodeError: The payload is empty, torn, too large, of an unknown format, or not what its frame states.
    """
    if not payload:
        raise EventDecodeError(reason="empty payload")
    if payload[:1] not in (IMMEDIATE, DEFERRABLE):
        raise EventDecodeError(reason=f"payload format {payload[0]} is unknown here. Upgrade the fold first.")
    size = inflated_bytes(payload)
    if size is None:
        raise EventDecodeError(reason="no zstd frame that states the size of its content")
    if size > MAX_READABLE_EVENT_BYTES:
        raise EventDecodeError(
            reason=f"an event of {size} bytes, uncompressed; the fold reads up to {MAX_READABLE_EVENT_BYTES}"
        )
    try:
        decompressor = _idle.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor()
    try:
        # zstd fails if the content has another size than the frame states, before it writes beyond that size.
        return decompressor.decompress(payload[1:], allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise EventDecodeError(reason=str(error)) from error
    finally:
        _idle.append(decompressor)


def decode(payload: bytes) -> AnyEvent:
    """Decode a payload to an event.

    Raises:
        EventDecodeError: The payload is empty, torn, too large, of an unknown format, or not an event. The fold puts
            such a record into quarantineTable and continues.
    """
    try:
        return _decoder.decode(read_json(payload))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EventDecodeError(reason=str(error)) from error


def topic_config_digest(topic_config_table: dict[str, QueueRow]) -> str:
    """Return a digest of a registration's topics that does not depend on their order. Equal digests: equal tables."""
    rows = sorted(topic_config_table.items(), key=itemgetter(0))  # without a key, sorting compares names twice
    return hashlib.blake2b(_encoder.encode(rows), digest_size=12).hexdigest()
