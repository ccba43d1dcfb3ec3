# SPDX-License-Identifier: Apache-2.0
"""What a hostile peer makes of disk and memory, by all that it may write: never more than it was charged for.

A second of each kind would prove little and an hour of all of them is long. So each writes as fast as it can for a
while, and two things are shown: what log and tables grew by is not more than what was charged, and (in
`tests/security/test_quotas.py`, `tests/security/test_buckets.py`) that in an hour no more is charged than the sum of
three rates and their bursts, which is less than 1 GB.
"""

from __future__ import annotations

import itertools
import os
import random
import string
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.histories.steps import Send
from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.peers.java import wait_until
from dev.support.local import LocalGateway, LocalLake
from security.admission.usage import EPOCH_BYTES
from security.quotas import MB, Quotas
from tests.examples.parts import put, register, register_topic, row, unregister, version, who

pytestmark = [pytest.mark.deep, pytest.mark.timeout(900)]

DURING_S = 20.0
SETTLE_S = 1.0
SYSTEM_BUSY = 2
HOUR_BYTES = 1_000_000_000
IDLE_BYTES_PER_S = 20_000
CONNECTIONS = {"heartbeats": 32}
"""Each waits for its answer; of one heartbeat after the other there would be few."""
Attack = Iterator[Send]


def name(length: int = 60) -> str:
    """A name that nothing compresses."""
    return "".join(random.choices(string.ascii_letters + string.digits, k=length))


def many(topics: list[str], perm: int = 6) -> list[dict[str, object]]:
    return [
        {"topicName": topic, "readQueueNums": 8, "writeQueueNums": 8, "perm": perm, "topicSysFlag": 0}
        for topic in topics
    ]


def new_brokers(topics: int) -> Attack:
    for number in itertools.count():
        addr = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:10911"
        yield register(f"b-{name(20)}", addr, topics=many([name() for _ in range(topics)]))


def changed_topics(topics: int) -> Attack:
    names = [name() for _ in range(topics)]
    for number in itertools.count(1):
        yield register(
            "hostile", "10.0.0.1:10911", topics=many(names, 4 + 2 * (number % 2)), at=version(counter=number)
        )


def other_topics(topics: int) -> Attack:
    for number in itertools.count(1):
        yield register(
            "hostile", "10.0.0.1:10911", topics=many([name() for _ in range(topics)]), at=version(counter=number)
        )


def registered_and_gone(topics: int) -> Attack:
    names = [name() for _ in range(topics)]
    for _ in itertools.count():
        yield register("hostile", "10.0.0.1:10911", topics=many(names))
        yield unregister("hostile", "10.0.0.1:10911")


def single_topics(topics: int) -> Attack:
    yield register("hostile", "10.0.0.1:10911", topics=many([name() for _ in range(topics)]))
    for _ in itertools.count():
        yield register_topic(name(), row("hostile"))


def permissions(topics: int) -> Attack:
    yield register("hostile", "10.0.0.1:10911", topics=many([name() for _ in range(topics)]))
    for code in itertools.cycle((codes.WIPE_WRITE_PERM_OF_BROKER, codes.ADD_WRITE_PERM_OF_BROKER)):
        yield Send(code, {"brokerName": "hostile"})


def deleted_topics(topics: int) -> Attack:
    names = [name() for _ in range(topics)]
    for group in range(10):
        yield register(f"hostile-{group}", f"10.0.0.{group}:10911", topics=many(names))
    for number in itertools.count(1):
        for topic in names[:: max(1, topics // 20)]:
            yield Send(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
        yield register("hostile-0", "10.0.0.0:10911", topics=many(names), at=version(counter=number + 1))


def unknown_topics() -> Attack:
    for _ in itertools.count():
        yield Send(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": name(100)})


def kv(value_bytes: int, keys: int) -> Attack:
    for number in itertools.count():
        yield put("n", f"k{number % keys}", os.urandom(value_bytes // 2).hex())


def kv_come_and_go() -> Attack:
    for _ in itertools.count():
        key = name(200)
        yield put("n", key, "v")
        yield Send(codes.DELETE_KV_CONFIG, {"namespace": "n", "key": key})


def heartbeats(brokers: int) -> Attack:
    for number in range(brokers):
        yield register(f"b{number}", f"10.0.{number >> 8}.{number & 255}:10911", heartbeatTimeoutMillis="9000")
    for number in itertools.cycle(range(brokers)):
        yield Send(codes.BROKER_HEARTBEAT, who(f"b{number}", f"10.0.{number >> 8}.{number & 255}:10911"))


ATTACKS: dict[str, Callable[[], Attack]] = {
    "new brokers": lambda: new_brokers(3),
    "new brokers of a thousand topics": lambda: new_brokers(1_000),
    "a thousand topics that change": lambda: changed_topics(1_000),
    "a broker with other topics each time": lambda: other_topics(200),
    "a broker that comes and goes": lambda: registered_and_gone(500),
    "topics one by one": lambda: single_topics(5_000),
    "write permissions": lambda: permissions(2_000),
    "topics deleted": lambda: deleted_topics(500),
    "topics deleted that never were": unknown_topics,
    "large KV values": lambda: kv(100_000, 20),
    "small KV values": lambda: kv(100, 3_000),
    "KV keys that come and go": kv_come_and_go,
    "heartbeats": lambda: heartbeats(20),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_growth_of_log_and_lake_is_within_the_charged_cost(tmp_path: Path, attack: str) -> None:
    random.seed(attack)
    url = f"sqlite://{tmp_path}/events.db"
    with (
        LocalLake(tmp_path, log_url=url, liveness_interval_s=10.0) as lake,
        lake.gateway(quotas=Quotas(), clock_interval_s=5.0) as gateway,
        ThreadPoolExecutor(CONNECTIONS.get(attack, 1)) as pool,
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(gateway.connect()) for _ in range(CONNECTIONS.get(attack, 1))]
        settle(gateway)
        before = grown(tmp_path)
        began, first_epoch = time.monotonic(), gateway.gateway.committed.view.epoch
        asked = refused = 0
        sends = ATTACKS[attack]()
        while (now := time.monotonic()) < began + DURING_S:
            second = int(gateway.gateway.quotas._clock()) + 1
            # A burst at the beginning of each second, as it costs least.
            while gateway.gateway.quotas._clock() < second - 0.5:
                answers = list(pool.map(ask, clients, [next(sends) for _ in clients]))
                asked, refused = asked + len(answers), refused + answers.count(SYSTEM_BUSY)
            time.sleep(max(0.0, second - gateway.gateway.quotas._clock()))
        settle(gateway)
        took_s = now - began
        after, epochs = grown(tmp_path), gateway.gateway.committed.view.epoch - first_epoch
        charged = sum(gateway.gateway.quotas.charged_bytes.values())
    size = after - before
    # An idle gateway writes, too; and `serve` makes an epoch a second, while here one follows the other.
    size -= round(IDLE_BYTES_PER_S * took_s + EPOCH_BYTES / 2 * max(0.0, epochs - took_s))
    hour = size / max(1, charged) * sum_of_rates()
    print(
        f"{attack}: {asked} asked, {refused} refused in {took_s:.0f} s; {epochs} epochs; grew {size / MB:.1f} MB, charged "
        f"{charged / MB:.1f} MB ({size / max(1, charged):.2f}); an hour: at most {hour / MB:.0f} MB"
    )
    assert hour < HOUR_BYTES
    assert asked > refused


def ask(client: RemotingClient, send: Send) -> int:
    request = send.request()
    return client.call(Request(request.code, request.ext, request.body, version=request.version)).code


def settle(gateway: LocalGateway) -> None:
    """Wait until the tables have everything."""
    end = gateway.gateway.live_view.offset
    wait_until(lambda: gateway.gateway.committed.offset >= end, 120, "the tables to have everything")
    time.sleep(SETTLE_S)


def grown(folder: Path) -> int:
    """Bytes of log and tables. A file with two names counts once, and SQLite's -wal does not, as it is used again."""
    files = {
        (status.st_ino, status.st_size)
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
        for status in (path.stat(),)
    }
    return sum(size for _, size in files)


def sum_of_rates() -> float:
    quotas = Quotas()
    rates = (quotas.heartbeat_mb_per_h, quotas.broker_mb_per_h, quotas.admin_mb_per_h)
    return MB * sum(rate.per_period + rate.burst for rate in rates if rate is not None)
