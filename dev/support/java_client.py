# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own Java producer and consumer at work: each in a JVM and on a thread of its own."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from dev.peers.java_client import JavaClient, bodies

_ROUTE_INTERVAL_MS = 1_000
"""Interval between a client's route queries, in milliseconds; RocketMQ's default is 30 s."""


class _AtWork(JavaClient):
    """A client that a thread drives until it is stopped or fails.

    Attributes:
        error: Exception that ended it.
    """

    def __init__(self, release: str) -> None:
        super().__init__(release)
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._stop = threading.Event()
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.close)
            self.start()
            self._begin()
            self._thread.start()
            self._open = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._open:
            self.stop()

    def stop(self) -> None:
        """End the thread that drives the client."""
        self._stop.set()
        self._thread.join(60)

    def _main(self) -> None:
        try:
            while not self._stop.is_set():
                self._turn()
        except BaseException as error:
            self.error = error

    def _begin(self) -> None:
        raise NotImplementedError

    def _turn(self) -> None:
        raise NotImplementedError


class JavaProducer(_AtWork):
    """DefaultMQProducer 5.5.0, without retries; sends numbered messages until it is stopped or one fails.

    Attributes:
        sent: body -> brokerName that took it; only what was acknowledged as SEND_OK.
    """

    def __init__(self, namesrv_addr: str, topic: str, pause_s: float = 0.01) -> None:
        super().__init__("5.5.0")
        self._namesrv_addr, self._topic, self._pause_s = namesrv_addr, topic, pause_s
        self.sent: dict[str, str] = {}

    def _begin(self) -> None:
        self._producer = self.producer(self._namesrv_addr, "e2e-producers", _ROUTE_INTERVAL_MS)

    def _turn(self) -> None:
        body = f"message {len(self.sent)}"
        result = self._producer.send(self.message(self._topic, body))
        status = result.getSendStatus().name()
        assert status == "SEND_OK", f"{body}: {status}"
        self.sent[body] = result.getMessageQueue().getBrokerName()
        self._stop.wait(self._pause_s)


class JavaConsumer(_AtWork):
    """DefaultLitePullConsumer, as old as its jars; takes what there is from the first offset on.

    Attributes:
        received: Every body, in the order of arrival.
    """

    def __init__(self, namesrv_addr: str, topic: str, release: str = "4.9.7") -> None:
        super().__init__(release)
        self._namesrv_addr, self._topic = namesrv_addr, topic
        self.received: list[str] = []

    def _begin(self) -> None:
        self._consumer = self.consumer(self._namesrv_addr, "e2e-consumers", self._topic, _ROUTE_INTERVAL_MS)

    def _turn(self) -> None:
        self.received += bodies(self._consumer.poll(500))
