# SPDX-License-Identifier: Apache-2.0
"""Frames of stock peers, as recorded (golden/README.md): each is read in full, and written again byte by byte."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest

from dev.support.frames import decode_frame
from remoting.codec.commands import EVENT_CODES, RequestContext, to_event
from remoting.codec.connection import RemotingConnection
from remoting.codec.frame import RemotingCommand, encode_frame
from remoting.codec.reply import encode_reply
from schemas.codes import SerializeType
from schemas.events import Actor, RegisterBroker, topic_config_digest
from schemas.rocketmq_json import decode_cluster_info, decode_topic_route, encode_cluster_info, encode_topic_route
from tests.remoting.test_connection import in_full

EXCHANGES: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "golden" / "recorded.json").read_text())
REQUESTS = {name: exchange["request"].encode("latin-1") for name, exchange in EXCHANGES.items()}
ANSWERS = {name: exchange["answer"].encode("latin-1") for name, exchange in EXCHANGES.items()}
ROUTES = [name for name in EXCHANGES if name.startswith("105") and decode_frame(ANSWERS[name]).code == 0]


def test_the_recording_holds_what_the_main_job_needs() -> None:
    codes = {int(name.split("-")[0]) for name in EXCHANGES}
    assert codes >= {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 319, 322, 327}


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_recorded_request_is_read(name: str) -> None:
    command = decode_frame(REQUESTS[name])
    assert command.code == int(name.split("-")[0])
    assert command.version == (407 if "4.9.7" in name else 513)
    assert in_full(RemotingConnection().receive_data(REQUESTS[name])) == [command]


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_recorded_answer_is_written_byte_by_byte(name: str) -> None:
    request, answer = decode_frame(REQUESTS[name]), decode_frame(ANSWERS[name])
    reply = RemotingCommand(answer.code, answer.ext_fields, answer.body, answer.remark)
    assert b"".join(encode_reply(request, reply)) == ANSWERS[name]


@pytest.mark.parametrize("name", [name for name in EXCHANGES if "broker" not in name])
def test_a_recorded_request_is_written_byte_by_byte(name: str) -> None:
    # A broker's header class has several fields; stock peers write extFields in hash order.
    command = decode_frame(REQUESTS[name])
    if len(command.ext_fields or {}) < 2:
        assert encode_frame(command) == REQUESTS[name]


@pytest.mark.parametrize("name", [name for name in EXCHANGES if int(name.split("-")[0]) in EVENT_CODES])
def test_a_recorded_write_becomes_an_event(name: str) -> None:
    event = to_event(decode_frame(REQUESTS[name]), RequestContext(Actor("g", "remoting")))
    assert event is not None
    if isinstance(event, RegisterBroker):
        assert event.topic_config_table
        assert event.enable_acting_master is False
        assert event.topic_config_digest == topic_config_digest(event.topic_config_table)
        if "static" in name:
            assert event.topic_queue_mapping_info_map["fixed"].curr_id_map == {0: 0, 1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("name", ROUTES)
def test_a_recorded_route_is_written_byte_by_byte(name: str) -> None:
    body = decode_frame(ANSWERS[name]).body
    assert encode_topic_route(decode_topic_route(body), numeric_keys=False) == body


@pytest.mark.parametrize("name", [name for name in EXCHANGES if name.startswith("106")])
def test_a_recorded_cluster_info_is_written_byte_by_byte(name: str) -> None:
    body = decode_frame(ANSWERS[name]).body
    assert encode_cluster_info(decode_cluster_info(body)) == body


def test_every_header_type_and_dialect_was_recorded() -> None:
    assert {decode_frame(data).serialize_type for data in REQUESTS.values()} == set(SerializeType)
    assert any(b'"currIdMap":{0:0' in data for data in REQUESTS.values())
    assert all(struct.unpack_from(">I", data, 4)[0] >> 24 == 0 for data in ANSWERS.values())


@pytest.mark.parametrize("name", [name for name in EXCHANGES if name.startswith("103")])
def test_a_recorded_checksum_is_zlib_s(name: str) -> None:
    command = decode_frame(REQUESTS[name])
    assert command.ext("bodyCrc32") == str(zlib.crc32(command.body) & 0x7FFFFFFF)
