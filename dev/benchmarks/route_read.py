# SPDX-License-Identifier: Apache-2.0
"""route-read: GET_ROUTEINFO_BY_TOPIC over remoting, one broker group with 100 topics, against RocketMQ's NameServer.

Also for unknown topics: consumer groups poll %RETRY% topics, and producers ask for a topic before they make it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import msgspec

from api.remoting.handlers import topic_not_exist
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.comparison import (
    Sample,
    Samples,
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
from dev.benchmarks.harness.peers import ROUTELAKE, Server, entered, nameserver, routelake, rust_nameserver
from dev.benchmarks.harness.report import Figure, Result, median
from dev.benchmarks.harness.tls import certificate
from remoting.codec.frame import RemotingCommand, encode_frame
from schemas.codes import ResponseCode

TOPICS = 100
TARGETS = {Shape(64, 1): 2.0, Shape(64, 4): 2.0, Shape(8, 16): 3.0}
"""Times the NameServer; p99 lower at each."""

UNKNOWN_NAMES = (1, 100_000)
UNKNOWN_SHAPES = (Shape(64, 1), Shape(8, 16))
UNKNOWN_TARGET = 2.0
"""Times the NameServer."""
OF_KNOWN_TARGET = 1 / 1.5
"""Target for unknown topics, as part of the rate that routelake has for known topics."""


def run(bench: Bench) -> Result:
    """Measure."""
    return compare(bench, "route-read", groups=1, topics=TOPICS, targets=TARGETS, p99_target=1.0, unknown=UNKNOWN_NAMES)


def compare(
    bench: Bench,
    name: str,
    *,
    groups: int,
    topics: int,
    targets: dict[Shape, float],
    p99_target: float | None,
    tls: bool = False,
    unknown: tuple[int, ...] = (),
) -> Result:
    """Register the same groups with both servers, check that they answer alike, measure in turns.

    With ``tls`` both take plain connections, too: over these the groups are registered. ``unknown`` are the numbers of
    unknown topics, to be asked for as well.
    """
    fleet = brokers(groups, topics)
    names = [topic_name(number) for number in range(topics)]
    with ExitStack() as stack:
        pair = certificate(bench.folder) if tls else None
        options = () if pair is None else ("--tls-cert", str(pair[0]), "--tls-key", str(pair[1]))
        ours = routelake(bench.folder / "data", (*bench.serve_options, *options))
        rust = () if tls else (rust_nameserver(bench.say),)  # it is compared over plain connections
        servers = entered(stack, nameserver(pair), *rust, ours)
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
        for count in unknown:
            found += _unknown(bench, servers, count, samples)
    details = {"bodyBytes": body_bytes, "generatorCeiling": ceilings, "samples": builtins(samples)}
    return Result(name, found, details=details)


def _unknown(bench: Bench, servers: list[Server], count: int, samples: Samples) -> list[Figure]:
    """Measure unknown topics, and add the samples to those of the known ones."""
    names = [f"%RETRY%group-{number:06d}" for number in range(bench.size(count, min(count, 1_000)))]
    same_answers([server.port for server in servers], names[:100])
    load = Load(
        port=0, frames=route_frames(bench.folder / "unknown.frames", names), code=int(ResponseCode.TOPIC_NOT_EXIST)
    )
    answer = encode_frame(msgspec.structs.replace(topic_not_exist(names[0]), opaque=OPAQUE))
    found: list[Figure] = []
    measured = measure_in_turn(bench, servers, load, list(UNKNOWN_SHAPES))
    for shape in UNKNOWN_SHAPES:
        label = f"{count:,} unknown {shape}"
        own = samples[label] = measured[str(shape)]
        found += figures(label, own, UNKNOWN_TARGET, None, ceiling(bench, load, shape, answer))
        rate, known = (_median_rate(of[ROUTELAKE]) for of in (own, samples[str(shape)]))
        note = f"{rate:,.0f} against {known:,.0f} req/s for known topics"
        found.append(Figure(f"{label} of known", rate / known, "x", OF_KNOWN_TARGET, note=note))
    return found


def _median_rate(samples: Sequence[Sample]) -> float:
    return median([taken.load.per_second for taken in samples])
