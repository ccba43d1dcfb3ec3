# SPDX-License-Identifier: Apache-2.0
"""Examples of registration bodies, and of what no stock peer sends."""

from __future__ import annotations

import json
from dataclasses import replace

from dev.histories.steps import Send
from dev.model import codes
from tests.examples.parts import (
    ADDR1,
    ADDR2,
    C1,
    DEFLATED,
    T1,
    T3,
    A,
    B,
    Example,
    Expect,
    clusters,
    config,
    deflated,
    fails,
    group,
    live,
    register,
    route,
    row,
    succeeds,
    unregister,
    version,
    who,
)


def _without(send: Send, name: str) -> Send:
    """The request without one header field."""
    return replace(send, ext={key: value for key, value in send.ext.items() if key != name})


def _body(name: str, addr: str, body: str) -> Send:
    """REGISTER_BROKER with this body."""
    return replace(register(name, addr), body=body)


BODIES = {
    "deflated": Example(
        "topicSysFlag is not in the topic line; the queue mappings' number must be there exactly from 5.0.0 on.",
        [
            succeeds(deflated(DEFLATED, 513, compressed="true")),
            route(T1, row(A)),
            fails(deflated(replace(DEFLATED, mappings=None), 513, compressed="true")),
            succeeds(deflated(replace(DEFLATED, mappings=None), 409, compressed="true")),
        ],
    ),
    "deflated_but_not_said_so": Example(
        "What a stock 5.x broker with compressedRegister sends: the header says false.",
        [fails(deflated(DEFLATED, 513, compressed="false"))],
    ),
    "deflated_line_too_short": Example(
        "Fewer than five tokens make the whole body undecodable.",
        [fails(deflated(replace(DEFLATED, topic_lines=("topic-a 4 4 6",)), 513, compressed="true")), clusters({})],
    ),
    "checksum": Example(
        "Of the body as sent; 0 switches it off.",
        [
            fails(replace(register(A, ADDR1), crc="wrong"), ext={}),
            clusters({}),
            succeeds(replace(register(A, ADDR1), crc="right")),
            succeeds(register(A, ADDR1, bodyCrc32="0")),
            succeeds(register(A, ADDR1, bodyCrc32="none")),
        ],
    ),
    "no_body": Example(
        "A registration without a body registers no topics, at a DataVersion of zeros.",
        [succeeds(Send(codes.REGISTER_BROKER, who(A, ADDR1))), live(ADDR1, version(0, 0, 0)), group(A, id0=ADDR1)],
    ),
    "bare_topic_table": Example(
        "Before 3.0.11 the body is the topic table itself, and filter servers stay as they are.",
        [
            register(A, ADDR1, filters=["10.0.0.9:31000"]),
            succeeds(
                Send(
                    codes.REGISTER_BROKER,
                    who(A, ADDR1),
                    json.dumps({"dataVersion": version(counter=2), "topicConfigTable": {T3: config(T3)}}),
                    36,
                )
            ),
            Expect(route(T3, row(A)).step, {"body.filterServerTable": {ADDR1: ["10.0.0.9:31000"]}}),
        ],
    ),
    "versions_out_of_range": Example(
        "Too large is taken for the largest, negative is an exception.",
        [succeeds(register(A, ADDR1, peer=9999)), fails(register(B, ADDR2, peer=-1)), clusters({C1: [A]})],
    ),
}


MISSING_FIELDS = {
    "registration_without_broker_id": Example(
        "An exception before anything has happened.",
        [fails(_without(register(A, ADDR1), "brokerId")), fails(register(A, ADDR1, brokerId="x")), clusters({})],
    ),
    "registration_without_cluster": Example(
        "A null pointer that is swallowed at the first step: OK, and nothing happened.",
        [succeeds(_without(register(A, ADDR1), "clusterName")), clusters({}), group(A)],
    ),
    "registration_without_address": Example(
        "Swallowed when the live row is made: the id stays, with a null for an address.",
        [
            succeeds(_without(register(A, ADDR1), "brokerAddr")),
            group(A),
            succeeds(register(A, ADDR2, 0)),
            group(A, id0=ADDR2),
        ],
    ),
    "unregistration_without_id": Example(
        "The live row goes before the null is touched; the address and the topics stay.",
        [register(A, ADDR1), _without(unregister(A, ADDR1), "brokerId"), live(ADDR1, None), route(T1, row(A))],
    ),
    "nulls_in_the_body": Example(
        "Each is found where Java first looks into it.",
        [
            succeeds(_body(A, ADDR1, '{"topicConfigSerializeWrapper":{"topicConfigTable":null}}')),
            group(A),
            fails(_body(A, ADDR1, "null")),
            fails(_body(A, ADDR1, "[]")),
        ],
    ),
    "heartbeats_and_queries_without_address": Example(
        "Exceptions.",
        [
            fails(Send(codes.BROKER_HEARTBEAT, {"clusterName": C1})),
            fails(Send(codes.QUERY_DATA_VERSION, {"clusterName": C1})),
            fails(Send(codes.PUT_KV_CONFIG, {"namespace": "namespace-a"})),
        ],
    ),
}
