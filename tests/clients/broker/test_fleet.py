# SPDX-License-Identifier: Apache-2.0
"""Many brokers in one process: what each registers is what a broker of its own would."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from typing import Any

import pytest

from clients.broker.config import BrokerConfig
from clients.broker.fleet import Fleet, FleetSettings, Kind
from clients.broker.fleet_topics import CHUNK_TOPICS, FleetBroker, SharedTopics, fleet_configs
from clients.broker.registration import Registration, incremental, plain_body
from clients.broker.topic_config import TopicConfig
from clients.broker.topics import built_in_topics
from dev.peers.java import free_port
from dev.peers.routelake import ROOT
from dev.support.command import command
from dev.support.loops import eventually
from remoting.codec.registration import decode_registration
from schemas.broker import DataVersion, QueueRow
from schemas.errors import SetupError
from tests.clients.broker.namesrv import Namesrv, namesrv, run

NOW = 1_700_000_000_000


def rows(part: Registration) -> dict[str, QueueRow]:
    return decode_registration(plain_body(part.data_version, part.entries), 513).topic_config_table


def test_a_members_table_is_the_table_it_would_encode_itself() -> None:
    """After any changes; whole chunks, the short last one, and none at all."""
    choose = random.Random(7)
    for count in (0, 1, CHUNK_TOPICS, 2 * CHUNK_TOPICS + 3):
        shared = SharedTopics(count, seed=1)
        one, other = (FleetBroker(config, shared, NOW) for config in fleet_configs(2, 1, BrokerConfig()))
        expected: dict[str, TopicConfig] = {topic.topic_name: topic for topic in shared.topics}
        expected |= {topic.topic_name: topic for topic in built_in_topics(one.config)}
        assert one.topic_count == len(expected)
        untouched = other.full()
        for _ in range(30 if count else 0):
            index = choose.randrange(count)
            part = one.change(index, NOW + 1)
            topic = one.topic(index)
            expected[topic.topic_name] = topic
            assert part == incremental(one.config, [topic], one.data_version)
            assert rows(one.full()) == rows(incremental(one.config, expected.values(), one.data_version))
        assert one.data_version.counter == (30 if count else 0)
        assert other.full() == untouched
        assert other.data_version == DataVersion(0, NOW, 0)


def test_a_seed_decides_everything() -> None:
    assert SharedTopics(50, 3).chunks == SharedTopics(50, 3).chunks
    assert SharedTopics(50, 3).chunks != SharedTopics(50, 4).chunks


def test_members_have_names_and_addresses_of_their_own() -> None:
    configs = fleet_configs(70_000, 3, BrokerConfig())
    assert len({config.broker_name for config in configs}) == len({config.broker_addr for config in configs}) == 70_000
    assert {config.broker_cluster_name for config in configs} == {"cluster-00", "cluster-01", "cluster-02"}
    assert configs[-1].broker_addr == "10.1.29.250:10911"


def settings(*servers: Namesrv, **more: Any) -> FleetSettings:
    return FleetSettings(**{"namesrvs": [server.address for server in servers], "brokers": 12, "topics": 120, **more})


def test_a_fleet_registers_beats_changes_and_leaves() -> None:
    async def work() -> None:
        async with namesrv() as one, namesrv() as two:
            fleet = Fleet(settings(one, two, clusters=2, period_s=0.3, changes_per_s=100.0))
            seen: list[int] = []
            await fleet.register(lambda: seen.append(1))
            assert len(seen) == fleet.registered == 12
            for server in (one, two):
                assert len(server.write_queues("topic-00119")) == 12
                assert server.codes == [103] * 12
            async with fleet.running():
                await eventually(
                    lambda: len(fleet.report.changes.took_ms) > 60 and len(fleet.report.rounds.took_ms) > 60
                )
            assert sum(member.data_version.counter for member in fleet.members) > 20
            assert not fleet.report.errors
            # one more round of everybody, and every row is as its broker has it
            await fleet.register()
            for index in range(0, 120, 17):
                for server in (one, two):
                    assert server.write_queues(f"topic-{index:05d}") == {
                        member.config.broker_name: member.topic(index).write_queue_nums for member in fleet.members
                    }
            await fleet.close()
            for server in (one, two):
                assert server.codes.count(104) == 12
                assert server.write_queues("topic-00000") == {}

    run(work())


def test_asking_first() -> None:
    async def work() -> None:
        async with namesrv() as server:
            fleet = Fleet(settings(server, period_s=0.2, force_register=False))
            await fleet.register()
            async with fleet.running():
                await eventually(lambda: server.codes.count(322) >= 24)
            assert server.codes.count(103) == 12
            await fleet.close()

    run(work())


def test_what_was_refused_at_first_comes_with_a_later_round() -> None:
    async def work() -> None:
        async with namesrv() as server:
            server.refuse = True
            fleet = Fleet(settings(server, period_s=0.2, unregister=False))
            await fleet.register()
            assert fleet.registered == 0
            assert fleet.report.first.failed == 12
            assert fleet.report.errors == {f"{server.address}: CODE: 1  DESC: told to refuse": 12}
            server.refuse = False
            async with fleet.running():
                await eventually(lambda: fleet.registered == 12)
            await fleet.close()
            assert 104 not in server.codes

    run(work())


@pytest.mark.parametrize(
    "wrong",
    [
        {"brokers": 0},
        {"topics": -1},
        {"clusters": 0},
        {"period_s": 0.0},
        {"changes_per_s": -1.0},
        {"timeout_s": 0.0},
        {"at_once": 0},
    ],
)
def test_impossible_fleets(wrong: dict[str, Any]) -> None:
    with pytest.raises(SetupError):
        Fleet(FleetSettings(namesrvs=[], **wrong))


def test_percentiles() -> None:
    kind = Kind([float(number) for number in range(100)])
    assert (kind.percentile(50), kind.percentile(99), kind.percentile(99.9)) == (50.0, 99.0, 99.0)
    assert Kind().percentile(50) == 0.0


async def routelake_fleet(*args: str, until: bytes = b"") -> tuple[int, str, str]:
    """Exit code, standard output, standard error; stopped by SIGINT when it has said a word there."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cli.main",
        "fleet",
        *args,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    seen = b""
    while until not in seen:
        line = await process.stderr.readline()
        assert line, seen
        seen += line
    if until:
        process.send_signal(signal.SIGINT)
    out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), (seen + error).decode()


def test_on_the_command_line() -> None:
    async def work() -> None:
        async with namesrv() as server:
            code, out, error = await routelake_fleet(
                "-n",
                server.address,
                "--brokers=5",
                "--topics=40",
                "--duration-s=600",
                "--heartbeat-period-s=0.2",
                "--changes-per-s=50",
                until=b"5/5 brokers registered",
            )
            assert code == 0, error
            assert "5 of 5 brokers registered, 55 topics each" in out
            assert set(server.codes) == {103, 104}
            assert server.codes.count(104) == 5

    run(work())
    one = f"127.0.0.1:{free_port()}"
    done = command("fleet", "-n", one, "--brokers=2", "--topics=1", "--duration-s=0.1")
    assert done.returncode == 1
    assert "0 of 2 brokers registered" in done.stdout
    assert "no connection" in done.stderr
    done = command("fleet", "-n", "9876")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
