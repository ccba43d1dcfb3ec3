# SPDX-License-Identifier: Apache-2.0
"""Speed of the remoting codec, without a socket: ``python -m dev.benchmarks.remoting_codec [--json FILE]``.

*route requests*: stock frames of 100 topics are cut out of what arrives, recognised, and answered with pre-encoded
bodies, with 1, 4, 16 and 200 requests per piece of data; also the long way, which a request of an unknown kind takes.
*registration*: the body of a broker with 10,000 and 100,000 topics, decoded, and turned into an event.

Each figure is the median of several rounds, in CPU time, so that a busy machine does not blur it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from api.remoting.route_requests import RouteRequests
from clients.broker.config import BrokerConfig
from clients.broker.registration import full, register_request
from clients.broker.topic_config import TopicConfig, TopicTable
from dev.support.frames import decode_frame
from remoting.codec.commands import RequestContext, to_event
from remoting.codec.connection import RemotingConnection
from remoting.codec.frame import RemotingCommand, encode_frame
from remoting.codec.registration import decode_registration
from remoting.codec.reply import EncodedReply, response
from schemas.broker import DataVersion
from schemas.codes import SerializeType
from schemas.events import Actor
from schemas.rocketmq_json import encode_topic_route, quote_numeric_keys
from schemas.route import BrokerData, QueueData, TopicRouteData

ROUNDS = 7
TOPICS = 100


def median_s(work: Callable[[], object], repeat: int) -> float:
    """Median time of one call, over rounds of several."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(repeat):
            work()
        times.append((time.process_time() - start) / repeat)
    return statistics.median(times)


def route_body(brokers: int) -> bytes:
    """A route answer of this many broker groups."""
    names = [f"broker-{number}" for number in range(brokers)]
    return encode_topic_route(
        TopicRouteData(
            broker_datas=[
                BrokerData(
                    broker_addrs={0: "10.0.0.1:10911"}, broker_name=name, cluster="c1", enable_acting_master=False
                )
                for name in names
            ],
            filter_server_table={},
            queue_datas=[
                QueueData(broker_name=name, perm=6, read_queue_nums=8, topic_sys_flag=0, write_queue_nums=8)
                for name in names
            ],
        ),
        numeric_keys=False,
    )


def route_requests(depth: int, brokers: int, kind: SerializeType = SerializeType.JSON) -> float:
    """Requests a second: bytes in, bytes out."""
    body = route_body(brokers)
    replies = {f"topic-{number}": EncodedReply(response(body=body)) for number in range(TOPICS)}
    frames = [
        encode_frame(RemotingCommand(105, {"topic": f"topic-{number % TOPICS}"}, opaque=number), kind)
        for number in range(2000)
    ]
    pieces = [b"".join(frames[at : at + depth]) for at in range(0, len(frames), depth)]
    requests = RouteRequests(lambda query: replies[query.topic or ""])
    connection = RemotingConnection(inline=requests)

    def answer_all() -> None:
        for piece in pieces:
            out: list[bytes] = []
            for request in connection.receive_data(piece):
                assert isinstance(request, tuple)
                query, digits = request
                out += query.answer().pieces(digits)
            b"".join(out)

    return len(frames) / median_s(answer_all, 20)


def long_way() -> float:
    """Requests a second that are decoded in full and answered with an encoded reply."""
    frames = [encode_frame(RemotingCommand(106, opaque=number)) for number in range(1000)]

    def answer_all() -> None:
        for frame in frames:
            command = decode_frame(frame)
            reply = response(body=b"x" * 300)
            reply.opaque = command.opaque
            encode_frame(reply)

    return len(frames) / median_s(answer_all, 20)


def registration_body(topics: int, *, compressed: bool = False) -> bytes:
    """Return the body that a stock 5.5.0 broker sends, or a 4.x broker with compressedRegister."""
    names = (f"topic-of-an-ordinary-length-{number:06d}" for number in range(topics))
    table = {name: TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8) for name in names}
    config = BrokerConfig(compressed_register=compressed)
    (whole,) = full(config, TopicTable(DataVersion(0, 1_700_000_000_000, 3), table))
    return register_request(config, whole).body


def measure() -> dict[str, float]:
    """Every figure by name."""
    figures = {f"route requests/s, {depth} a piece": route_requests(depth, 1) for depth in (1, 4, 16, 200)}
    figures["route requests/s, 16 a piece, ROCKETMQ header"] = route_requests(16, 1, SerializeType.ROCKETMQ)
    figures["route requests/s, 16 a piece, 300 brokers"] = route_requests(16, 300)
    figures["other requests/s, decode and encode"] = long_way()
    context = RequestContext(Actor("gateway", "remoting"))
    ext = {"brokerName": "a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c", "brokerId": "0"}
    for topics in (10_000, 100_000):
        body = registration_body(topics)
        repeat = 100_000 // topics
        figures[f"registration of {topics:,}, MB"] = len(body) / 1e6
        figures[f"registration of {topics:,}, decode ms"] = 1e3 * median_s(
            partial(decode_registration, body, 513), repeat
        )
        command = RemotingCommand(103, {**ext, "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}, body)
        figures[f"registration of {topics:,}, to event ms"] = 1e3 * median_s(
            partial(to_event, command, context), repeat
        )
        packed = registration_body(topics, compressed=True)
        figures[f"registration of {topics:,}, compressed, decode ms"] = 1e3 * median_s(
            partial(decode_registration, packed, 409, compressed=True), repeat
        )
    bare = b"{" + b",".join(b'"topic-%d":{"currIdMap":{0:0,1:1,2:2,3:3}}' % number for number in range(10_000)) + b"}"
    figures["quoting 40,000 bare keys, ms"] = 1e3 * median_s(lambda: quote_numeric_keys(bare), 5)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    figures = measure()
    for name, value in figures.items():
        print(f"{name:52} {value:14,.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
