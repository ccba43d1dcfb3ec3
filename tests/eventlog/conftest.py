# SPDX-License-Identifier: Apache-2.0
"""The same log in several shapes: every contract test runs over each of them."""

from __future__ import annotations

import gc
import importlib.util
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.peers.java import wait_until
from dev.peers.kafka import Kafka
from dev.support.secured_kafka import fixtures
from eventlog import EventLog
from tests.eventlog.backends import Backend


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """kafka-python leaves the sockets of failed connections to the garbage collector, which may run in any test."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <(socket|ssl.SSLSocket):ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings(
                    "ignore:Exception ignored in. <(socket|ssl.SSLSocket):pytest.PytestUnraisableExceptionWarning"
                )
            )


@pytest.fixture(scope="module", autouse=True)
def collect_sockets() -> Iterator[None]:
    """Within these tests, that is, so that no other directory's tests are blamed.

    What kafka-python logs of a failure holds its socket, and pytest the log.
    """
    logger = logging.getLogger("kafka")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
    wait_until(lambda: not any(thread.name.startswith("kafka") for thread in threading.enumerate()), 60, "its threads")
    gc.collect()


@pytest.fixture(params=["memory", "sqlite", pytest.param("kafka", marks=pytest.mark.jvm)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """One new, empty log."""
    yield from make_backend(request, tmp_path)


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.deep)])
def stream_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """The same, of the kinds that Spark can read. Kafka's is deep, as Spark's tests would start a Kafka of their own."""
    yield from make_backend(request, tmp_path)


def make_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "memory":
        url = ""
    elif request.param == "sqlite":
        url = f"sqlite://{tmp_path}/log.db"
    else:
        new_topic: Callable[[], str] = request.getfixturevalue("new_topic")
        url = new_topic()
    made = Backend(request.param, url)
    yield made
    made.close_all()


@pytest.fixture
def log(backend: Backend) -> EventLog:
    """One new, empty, open log."""
    return backend.open()


@pytest.fixture
def new_topic(kafka_address: str) -> Callable[[], str]:
    """Makes URLs of topics that do not exist yet."""
    return lambda: f"kafka://{kafka_address}/t-{uuid.uuid4().hex}"


authority, kafka = fixtures("session")  # one for all tests; each has topics of its own


@pytest.fixture
def kafka_address(kafka: Kafka) -> str:
    """Host:port of the session's Kafka."""
    return kafka.address


@pytest.fixture
def fast_crc(request: pytest.FixtureRequest) -> None:
    """For 64 MiB through Kafka: kafka-python's own CRC-32C takes 8 s for them."""
    if "kafka" in request.node.name and importlib.util.find_spec("crc32c") is None:
        pytest.skip("the crc32c package is not installed")
