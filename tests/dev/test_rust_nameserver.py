# SPDX-License-Identifier: Apache-2.0
"""RocketMQ-Rust's NameServer as the benchmarks start it: it takes their registrations and answers as RocketMQ does."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from dev.benchmarks.harness.comparison import same_answers
from dev.benchmarks.harness.frames import Link, brokers, register_all, topic_name
from dev.peers.built_program import NoProgramError
from dev.peers.rocketmq import StockNameServer
from dev.peers.rust_nameserver import RustNameServer

TOPICS = 5


@pytest.mark.jvm
@pytest.mark.timeout(3_600)  # a deep run may build it
def test_both_nameservers_give_the_same_routes(is_deep: bool) -> None:
    """Building takes ten minutes or more, so only --deep builds it."""
    try:
        rust = RustNameServer(build=is_deep)
    except NoProgramError as error:
        pytest.skip(str(error))
    fleet = brokers(2, TOPICS)
    with ExitStack() as stack:
        ports = [stack.enter_context(rust).port, stack.enter_context(StockNameServer()).port]
        for port in ports:
            register_all([stack.enter_context(Link(port)) for _ in fleet], fleet)
        assert same_answers(ports, [*map(topic_name, range(TOPICS)), "none"])
