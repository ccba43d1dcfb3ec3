# SPDX-License-Identifier: Apache-2.0
"""What one event may carry over remoting: refused with the limit, and nothing is written."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest

from remoting.codec.commands import RefusedError, RequestContext, read_topic_registration, to_event
from remoting.codec.frame import RemotingCommand
from schemas import limits
from schemas.codes import V5_5_0, RequestCode
from schemas.errors import BadRequestError
from schemas.events import Actor, AnyEvent, EventEncoder, RegisterBroker

BROKER = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c1", "brokerId": "0"}


def event(code: int, fields: dict[str, str], body: bytes = b"") -> AnyEvent | None:
    command = RemotingCommand(code, fields, version=V5_5_0, body=body)
    return to_event(command, RequestContext(Actor("g", "remoting", "192.0.2.1:5")))


def register(wrapper: dict[str, Any], **more: Any) -> RegisterBroker:
    body = {"topicConfigSerializeWrapper": wrapper, **more}
    found = event(RequestCode.REGISTER_BROKER, BROKER, json.dumps(body).encode())
    assert isinstance(found, RegisterBroker)
    return found


def put(value: str) -> AnyEvent | None:
    return event(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": value})


@pytest.mark.parametrize("letter", ["v", "\N{SNOWMAN}"])
def test_a_kv_value(letter: str) -> None:
    largest = letter * (limits.MAX_KV_VALUE_BYTES // len(letter.encode()))
    assert put(largest) is not None
    with pytest.raises(RefusedError, match=str(limits.MAX_KV_VALUE_BYTES)):
        put(largest + letter)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.REGISTER_BROKER, BROKER),
        (RequestCode.BROKER_HEARTBEAT, BROKER),
        (RequestCode.UNREGISTER_BROKER, BROKER),
        (RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v" * 100_000}),
    ],
)
def test_header_fields_that_nobody_has_a_use_for(code: int, fields: dict[str, str]) -> None:
    assert event(code, {**fields, "Signature": "s" * 4096}) is not None
    for junk in ({"junk": "j" * 40_000}, {"j" * 40_000: ""}, {f"junk-{number}": "j" for number in range(5_000)}):
        with pytest.raises(RefusedError, match=str(limits.MAX_HEADER_FIELDS_BYTES)):
            event(code, {**fields, **junk})


def test_topics_of_a_registration() -> None:
    table = {str(number): {"topicName": str(number)} for number in range(limits.MAX_TOPICS)}
    assert len(register({"topicConfigTable": table}).topic_config_table or ()) == limits.MAX_TOPICS
    table["more"] = {"topicName": "more"}
    with pytest.raises(RefusedError, match=f"{limits.MAX_TOPICS} are accepted"):
        register({"topicConfigTable": table})


def test_topics_of_a_compressed_registration() -> None:
    def block(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    count = limits.MAX_TOPICS + 1
    lines = block(b"t 8 8 6 SINGLE_TAG") * count
    body = zlib.compress(block(b"{}") + struct.pack(">i", count) + lines + block(b"[]") + struct.pack(">i", 0))
    with pytest.raises(RefusedError, match=f"{limits.MAX_TOPICS} are accepted"):
        event(RequestCode.REGISTER_BROKER, {**BROKER, "compressed": "true"}, body)


def test_queue_ids_of_static_topics() -> None:
    ids = {str(number): number for number in range(limits.MAX_MAPPINGS - 1)}
    mappings = {"t": {"topic": "t", "bname": "b", "currIdMap": ids}}
    assert register({"topicQueueMappingInfoMap": mappings}).topic_queue_mapping_info_map.keys() == {"t"}
    mappings["u"] = {"topic": "u", "bname": "b", "currIdMap": {}}
    with pytest.raises(RefusedError, match=f"{limits.MAX_MAPPINGS} are accepted"):
        register({"topicQueueMappingInfoMap": mappings})


@pytest.mark.parametrize("field", ["topic", "scope"])
def test_texts_of_static_topics(field: str) -> None:
    mapping = {"topic": "t", "bname": "b", field: "x" * (limits.MAX_NAME_BYTES + 1)}
    with pytest.raises(RefusedError, match=f"{field} is longer than {limits.MAX_NAME_BYTES} bytes"):
        register({"topicQueueMappingInfoMap": {"t": mapping}})


def test_filter_servers() -> None:
    servers = [f"10.0.0.1:{number}" for number in range(limits.MAX_FILTER_SERVERS + 1)]
    assert register({}, filterServerList=servers[1:]).filter_server_list == servers[1:]
    with pytest.raises(RefusedError, match=f"{limits.MAX_FILTER_SERVERS} are accepted"):
        register({}, filterServerList=servers)


def test_rows_of_a_topic_registration() -> None:
    def read(count: int) -> object:
        body = json.dumps({"queueDatas": [{"brokerName": "b"}] * count}).encode()
        return read_topic_registration(
            RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "t"}, body=body)
        )

    assert read(limits.MAX_TOPIC_QUEUES) is not None
    with pytest.raises(RefusedError, match=f"{limits.MAX_TOPIC_QUEUES} are accepted"):
        read(limits.MAX_TOPIC_QUEUES + 1)


def test_an_event_of_all_that_together() -> None:
    """What stays within each bound may still be too much."""
    names = [f"{number:06}{'t' * 1000}" for number in range(33_000)]
    large = register({"topicConfigTable": {name: {"topicName": name} for name in names}})
    with pytest.raises(BadRequestError, match=f"{limits.MAX_EVENT_BYTES} bytes") as refused:
        EventEncoder().encode(large)
    assert refused.value.fields["limit_bytes"] == limits.MAX_EVENT_BYTES
