# SPDX-License-Identifier: Apache-2.0
"""route-read: GET_ROUTEINFO_BY_TOPIC over remoting, one broker group with 100 topics, against RocketMQ's NameServer."""

from __future__ import annotations

from contextlib import ExitStack

from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.comparison import (
    Shape,
    builtins,
    ceiling,
    figures,
    measure_in_turn,
    route_frames,
    same_answers,
)
from dev.benchmarks.harness.frames import Link, brokers, register_all, topic_name
from dev.benchmarks.harness.loadgen import OPAQUE, Load
from dev.benchmarks.harness.peers import entered, nameserver, routelake
from dev.benchmarks.harness.report import Result
from dev.benchmarks.harness.tls import certificate
from remoting.codec.frame import RemotingCommand, encode_frame

TOPICS = 100
TARGETS = {Shape(64, 1): 2.0, Shape(64, 4): 2.0, Shape(8, 16): 3.0}
"""Times the NameServer; p99 lower at each."""


def run(bench: Bench) -> Result:
    """Measure."""
    return compare(bench, "route-read", groups=1, topics=TOPICS, targets=TARGETS, p99_target=1.0)


def compare(
    bench: Bench,
    name: str,
    *,
    groups: int,
    topics: int,
    targets: dict[Shape, float],
    p99_target: float | None,
    tls: bool = False,
) -> Result:
    """Register the same groups with both servers, check that they answer alike, measure in turns.

    With ``tls`` both take plain connections, too: over these the groups are registered.
    """
    fleet = brokers(groups, topics)
    names = [topic_name(number) for number in range(topics)]
    with ExitStack() as stack:
        pair = certificate(bench.folder) if tls else None
        options = () if pair is None else ("--tls-cert", str(pair[0]), "--tls-key", str(pair[1]))
        servers = entered(stack, nameserver(pair), routelake(bench.folder / "data", (*bench.serve_options, *options)))
        for server in servers:
            links = [stack.enter_context(Link(server.port)) for _ in fleet]
            register_all(links, fleet)
        body_bytes = same_answers([server.port for server in servers], names)
        load = Load(port=0, frames=route_frames(bench.folder / "route.frames", names), tls=tls)
        answer = encode_frame(RemotingCommand(0, flag=1, opaque=OPAQUE, body=bytes(body_bytes)))
        ceilings = {str(shape): ceiling(bench, load, shape, answer, pair) for shape in targets}
        samples = measure_in_turn(bench, servers, load, list(targets))
    found = [
        figure
        for shape, target in targets.items()
        for figure in figures(str(shape), samples[str(shape)], target, p99_target, ceilings[str(shape)])
    ]
    details = {"bodyBytes": body_bytes, "generatorCeiling": ceilings, "samples": builtins(samples)}
    return Result(name, found, details=details)
