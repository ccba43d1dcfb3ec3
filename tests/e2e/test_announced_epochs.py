# SPDX-License-Identifier: Apache-2.0
"""A gateway in another region: the store and Kafka are a round trip of 20 ms away. What it asks, and how late it is.

The fold is the tests' own, without Spark; Kafka, the gateway's process and both ends of the topic are the real ones.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dev.benchmarks.harness.far import far
from dev.peers.java import free_port, wait_until
from dev.peers.kafka import Kafka
from dev.peers.routelake import Routelake
from dev.support import events as make
from dev.support.fold import Fold
from dev.support.s3 import fake_s3
from eventlog.open import open_log
from lake.announce import Announcer
from lake.store import open_store
from schemas.events import AnyEvent, encode, routing_key

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(900)]

IDLE_S = 130.0
"""Two of its seldom looks, and a dozen at the fold's status."""
EPOCHS = 20
BROKERS = 3
LIVENESS_S = 10.0
"""Each broker's heartbeat is 30 s after its last one, and each is an epoch: no fold writes more of them."""
ROUND_TRIP_MS = 20.0


def test_a_gateway_follows_announced_epochs_with_few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "s3://lake/announced"
    port = free_port()
    with (
        fake_s3(monkeypatch, delay_s=ROUND_TRIP_MS / 1000) as s3,
        far(port, ROUND_TRIP_MS) as advertised,
        Kafka(port=port, advertised=f"127.0.0.1:{advertised}"),
    ):
        log_url = f"kafka://127.0.0.1:{advertised}/events"
        log, announcer = open_log(log_url), Announcer(log_url)
        published_s: list[float] = []

        def announce(version: int) -> None:
            published_s.append(time.monotonic())
            announcer.announce(version)

        announcer.start()

        def tell(*events: AnyEvent) -> None:
            log.append([(routing_key(event), encode(event)) for event in events])

        tell(make.put("n", "k"))
        fold = Fold(log, tmp_path / "copy", store=open_store(url))
        fold.publisher.on_published = announce
        fold.fold()
        options = ("--event-log", log_url, "--lake", url)
        gateway = Routelake(tmp_path / "gateway", "gateway", options, s3.environment)
        try:
            gateway.start(wait_ready_s=None)
            gateway.wait_listening()

            def shows(value: str, reads: str) -> bool:
                try:
                    return bool(gateway.get(f"/v1/kv/n/k?reads={reads}")["value"] == value)
                except HTTPError:
                    return False

            late_ms, head_ms = [], []
            for number in range(EPOCHS):
                tell(make.put("n", "k", str(number)))
                appended_s = time.monotonic()
                wait_until(lambda number=number: shows(str(number), "live"), 60, "the head to move", 0.002)
                head_ms.append((time.monotonic() - appended_s) * 1000)
                fold.fold()
                wait_until(lambda number=number: shows(str(number), "committed"), 60, "the epoch to be shown", 0.005)
                late_ms.append((time.monotonic() - published_s[-1]) * 1000)
            print(f"shown {statistics.median(late_ms):.0f} ms after it was published, at most {max(late_ms):.0f} ms")
            print(f"the head {statistics.median(head_ms):.0f} ms after the append, at most {max(head_ms):.0f} ms")
            s3.requests()
            time.sleep(IDLE_S)
            asked = s3.requests()
            assert asked.keys() == {"GET"}
            assert _hourly("nothing happens", asked) < 1_000

            def folded() -> bool:
                fold.fold()
                return bool(gateway.get("/readyz")["epoch"] == fold.writer.epoch)

            tell(*[make.register(f"b:{one}", name=f"b-{one}") for one in range(BROKERS)])
            wait_until(folded, 60, "the brokers to be in the tables")
            s3.requests()
            before = fold.writer.epoch
            for number in range(int(IDLE_S / LIVENESS_S)):
                time.sleep(LIVENESS_S)
                tell(make.heartbeat(f"b:{number % BROKERS}", name=f"b-{number % BROKERS}"))
                fold.fold()
            wait_until(folded, 60, "the last heartbeat to be in the tables")
            assert fold.writer.epoch - before >= IDLE_S / LIVENESS_S - 1
            asked = s3.requests()
            assert asked.pop("PUT") > 0  # the fold's; it reads nothing
            assert asked.keys() == {"GET"}
            assert _hourly(f"{BROKERS} brokers are alive", asked) < 3_000
            told = _metrics(gateway)
            assert told["routelake_live_view_epochs_total", "compared"] > EPOCHS + IDLE_S / LIVENESS_S - 1
            assert not sum(
                count for (name, _), count in told.items() if name == "routelake_live_view_differences_total"
            )
            assert gateway.stop() == 0
        finally:
            gateway.kill()
            print(gateway.log_tail())
            announcer.stop()
            log.close()
        assert statistics.median(late_ms) < 300
        assert statistics.median(head_ms) < 200


def _hourly(when: str, asked: Counter[str]) -> float:
    hourly = sum(asked.values()) * 3600 / IDLE_S
    print(f"{when}: {dict(asked)} in {IDLE_S:.0f} s, {hourly:.0f} an hour")
    return hourly


def _metrics(gateway: Routelake) -> dict[tuple[str, str], float]:
    """By name and first label."""
    with urlopen(f"http://127.0.0.1:{gateway.http_port}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in families
        for sample in family.samples
    }
