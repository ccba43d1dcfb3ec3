# SPDX-License-Identifier: Apache-2.0
"""One /metrics for several worker processes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.gateway.metrics import Metrics
from api.gateway.worker_metrics import WorkerMetrics, merged


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: the path of a Unix socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="routelake-") as name:
        yield Path(name)


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def counted(routes: int) -> Metrics:
    metrics = Metrics()
    metrics.requests.labels("http", 'a "quoted{" \\ name', "0").inc(routes)
    for _ in range(routes):
        metrics.route_latency.observe(0.0002)
    return metrics


def test_all_samples_of_all_workers_each_with_its_label() -> None:
    texts = {str(number): counted(number).text() for number in (1, 2, 10)}
    found = samples(merged(texts))
    wanted = {
        (name, tuple(sorted((*labels, ("worker", worker))))): value
        for worker, text in texts.items()
        for (name, labels), value in samples(text).items()
    }
    assert found == wanted


def test_every_family_comes_once() -> None:
    lines = merged({"1": counted(1).text(), "2": counted(2).text()}).decode().splitlines()
    types = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(types) == len(set(types)) > 5
    current = ""
    for line in lines:
        if line.startswith("# "):
            current = line.split()[2]
        else:
            assert line.startswith(current.removesuffix("_total")), (current, line)


TEXTS = {name: counted(number).text() for number, name in enumerate(("1", "2", "2 again"), 1)}
"""Once: they hold the time at which they were made."""


def worker(folder: Path, number: str, text: str) -> WorkerMetrics:
    return WorkerMetrics(folder / number, lambda: TEXTS[text])


async def _scraped(folder: Path) -> list[bytes]:
    workers = [worker(folder, name, name) for name in ("1", "2")]
    for one in workers:
        await one.start()
    both = [await one.text() for one in workers]
    await workers[1].stop()
    alone = await workers[0].text()
    (folder / "2").touch()  # as after SIGKILL: the socket file is there, and no process listens
    dead = await workers[0].text()
    again = worker(folder, "2", "2 again")
    await again.start()
    restarted = await workers[0].text()
    for one in (workers[0], again):
        await one.stop()
    return [*both, alone, dead, restarted]


def test_each_worker_returns_the_metrics_of_all(folder: Path) -> None:
    one, other, alone, dead, restarted = asyncio.run(_scraped(folder))
    assert one == other == merged({"1": TEXTS["1"], "2": TEXTS["2"]})
    assert alone == dead == merged({"1": TEXTS["1"]})
    assert restarted == merged({"1": TEXTS["1"], "2": TEXTS["2 again"]})
