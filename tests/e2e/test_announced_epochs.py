# SPDX-License-Identifier: Apache-2.0
"""A gateway in another region: the store and Kafka are a round trip of 20 ms away. What it asks, and how late it is.

The fold is the tests' own, without Spark; Kafka, the gateway's process and both ends of the topic are the real ones.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from urllib.error import HTTPError

import pytest

from benchmarks.harness.far import far
from lake.store import open_store
from peers.java import free_port, wait_until
from peers.kafka import Kafka
from peers.routelake import Routelake
from pipelines.log.epochs import Announcer
from pipelines.log.open import open_log
from schemas.events import encode, routing_key
from tests.support import events as make
from tests.support.copy_fold import CopyFold
from tests.support.s3 import fake_s3

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(900)]

IDLE_S = 130.0
"""Two of its seldom looks, and a dozen at the fold's status."""
EPOCHS = 20
ROUND_TRIP_MS = 20.0


def test_it_asks_little_and_follows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        log.append([(routing_key(event), encode(event)) for event in [make.register(table=make.topics("t"))]])
        fold = CopyFold(log, open_store(url), tmp_path / "copy")
        fold.mirror.on_published = announce
        fold.fold()
        options = ("--log", log_url, "--lake", url)
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
                event = make.put("n", "k", str(number))
                log.append([(routing_key(event), encode(event))])
                appended_s = time.monotonic()
                wait_until(lambda number=number: shows(str(number), "head"), 60, "the head to move", 0.002)
                head_ms.append((time.monotonic() - appended_s) * 1000)
                fold.fold()
                wait_until(lambda number=number: shows(str(number), "committed"), 60, "the epoch to be shown", 0.005)
                late_ms.append((time.monotonic() - published_s[-1]) * 1000)
            print(f"shown {statistics.median(late_ms):.0f} ms after it was published, at most {max(late_ms):.0f} ms")
            print(f"the head {statistics.median(head_ms):.0f} ms after the append, at most {max(head_ms):.0f} ms")
            s3.requests()
            time.sleep(IDLE_S)
            asked = s3.requests()
            hourly = sum(asked.values()) * 3600 / IDLE_S
            print(f"{dict(asked)} in {IDLE_S:.0f} s: {hourly:.0f} an hour")
            assert asked.keys() == {"GET"}
            assert hourly < 1_000
            assert gateway.stop() == 0
        finally:
            gateway.kill()
            print(gateway.log_tail())
            announcer.stop()
            log.close()
        assert statistics.median(late_ms) < 300
        assert statistics.median(head_ms) < 200
