# SPDX-License-Identifier: Apache-2.0
"""Stock producers and consumers that work all the time: Java clients 5.5.0 and 4.9.7, and the Go client.

No producer sends a message twice. A send that fails is counted, and the producer goes on.
"""

from __future__ import annotations

import gc
import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from py4j.protocol import Py4JError

from dev.peers.java import wait_until
from dev.peers.java_client import JavaClient, bodies

RELEASES: Final = ("5.5.0", "4.9.7")
_ROUTE_INTERVAL_MS: Final = 1_000
"""Interval between two route queries of a Java client, in milliseconds. RocketMQ's default is 30,000."""
_KEYS: Final = 8
"""Keys of ordered messages. All messages of a key go to one queue."""
_PAUSE_S: Final = 0.05
"""Pause of a producer between two messages, in seconds."""
_MESSAGES: Final = 10
"""Messages of each producer in each state of the NameServers, at least."""
_PATIENCE_S: Final = 90.0


class Counts(NamedTuple):
    """Result of the producers since a time.

    Attributes:
        sent: Number of acknowledged messages.
        failures: Text of each failed send of a producer that was at work.
        new_failures: Text of each failed first send of a new producer.
        longest_ms: Longest time that a send took, in milliseconds.
    """

    sent: int
    failures: list[str]
    new_failures: list[str]
    longest_ms: int


def _first_words(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


class _Worker:
    """A thread that takes turns until it is stopped."""

    def __init__(self, name: str) -> None:
        self._stopped = threading.Event()
        self.name = name
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Raises what ended it early."""
        self.end()
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(60)

    def _work(self) -> None:
        try:
            while not self._stopped.is_set():
                self.turn()
        except BaseException as error:
            self.error = error

    def turn(self) -> None:
        raise NotImplementedError


class Sender(_Worker):
    """A producer that sends numbered messages.

    Args:
        client: JVM of the producer.
        producer: The producer, started.
        topic: Topic that it sends to.
        name: Beginning of each message.
        ordered: Choose the queue by the key of the message.

    Attributes:
        sent: Acknowledged message -> name of the broker that took it.
        failures: Text of each failed send.
        durations_ms: Duration of each send, in milliseconds.
    """

    def __init__(
        self,
        client: JavaClient,
        producer: Any,
        topic: str,
        name: str,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(name)
        self._client, self._producer, self._topic, self._name = client, producer, topic, name
        selector = "org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash"
        self._selector = getattr(client.jvm, selector)() if ordered else None
        self._number = 0
        self.ordered = ordered
        self.sent: dict[str, str] = {}
        self.failures: list[str] = []
        self.durations_ms: list[int] = []

    def turn(self) -> None:
        """Send one message."""
        key = f"key {self._number % _KEYS}"
        body = f"{self._name}, {key}: {self._number}"
        self._number += 1
        message = self._client.message(self._topic, body)
        began = time.monotonic()
        try:
            result = (
                self._producer.send(message)
                if self._selector is None
                else self._producer.send(message, self._selector, key)
            )
            status = result.getSendStatus().name()
            if status == "SEND_OK":
                self.sent[body] = result.getMessageQueue().getBrokerName()
            else:
                self.failures.append(f"{body}: {status}")
        except Py4JError as error:
            self.failures.append(f"{body}: {' '.join(str(error).split())[:300]}")
        self.durations_ms.append(round((time.monotonic() - began) * 1000))
        self._stopped.wait(_PAUSE_S)


class Receiver(_Worker):
    """A consumer that takes every message of a topic.

    Attributes:
        received: Every message, in the order of its first arrival.
    """

    def __init__(self, consumer: Any, name: str, *, ordered: bool) -> None:
        super().__init__(name)
        self._consumer = consumer
        self.ordered = ordered
        self.received: dict[str, None] = {}

    def turn(self) -> None:
        """Take what has arrived."""
        for body in bodies(self._consumer.poll(500)):
            self.received.setdefault(body)


class GoClient:
    """The Go client: one process that sends and consumes."""

    def __init__(self, program: Path, namesrv_addr: str, topic: str, name: str) -> None:
        words = [str(program), "-namesrv", namesrv_addr, "-topic", topic, "-body", name, "-every", "50ms"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*words, "-within", "30s"], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )

    def end(self) -> dict[str, Any]:
        """End its work; what it counted."""
        printed, _ = self._process.communicate("", timeout=90)
        assert self._process.returncode == 0, printed
        found: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return found

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()


class Traffic:
    """All clients; `with` starts and ends them.

    Each release has a plain and an ordered producer. Its lite pull consumer asks brokers with a request code of 5.x
    (361), so the one of 5.5.0 consumes the ordered topic alone. Those of 4.9.7 and Go consume from all brokers.

    Args:
        name: Beginning of each message.
        namesrv_addr: Addresses of all NameServers, for every client.
        topic: Topic of all plain producers.
        ordered_topic: Topic of the ordered producers, on brokers 5.x.
        go_client: The program of `tests/e2e/go_client`.

    Attributes:
        go: What the Go client counted, after the end.
        lost: Acknowledged messages that have not arrived, or in another order, after the end.
    """

    def __init__(self, name: str, namesrv_addr: str, topic: str, ordered_topic: str, go_client: Path) -> None:
        self._name, self._namesrv_addr = name, namesrv_addr
        self._topic, self._ordered_topic, self._go_program = topic, ordered_topic, go_client
        self._clients = {release: JavaClient(release) for release in RELEASES}
        self._senders: list[Sender] = []
        self._receivers: list[Receiver] = []
        self._newcomers: list[str] = []
        self._newcomer_failures: list[str] = []
        self._seen: dict[Sender, tuple[int, int, int]] = {}
        self.go: dict[str, Any] = {}
        self.lost: list[str] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            with ThreadPoolExecutor() as pool:
                list(pool.map(stack.enter_context, self._clients.values()))
            for release, client in self._clients.items():
                for ordered, topic in ((False, self._topic), (True, self._ordered_topic)):
                    name = f"{self._name} {'ordered' if ordered else 'plain'} {release}"
                    group = name.replace(" ", "-").replace(".", "-")
                    if ordered or release == "4.9.7":  # the lite pull consumer 5.5.0 cannot pull from a broker 4.9.7
                        consumer = client.consumer(self._namesrv_addr, f"consumers-{group}", topic, _ROUTE_INTERVAL_MS)
                        self._receivers.append(Receiver(consumer, f"consumer {name}", ordered=ordered))
                    producer = client.producer(self._namesrv_addr, f"producers-{group}", _ROUTE_INTERVAL_MS)
                    self._senders.append(Sender(client, producer, topic, name, ordered=ordered))
            self._go = GoClient(self._go_program, self._namesrv_addr, self._topic, f"{self._name} go")
            stack.callback(self._go.kill)
            for worker in (*self._receivers, *self._senders):
                worker.start()
            self._open = stack.pop_all()
        self.go_on()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._open:
            try:
                if error is None:
                    self._end()
            finally:
                for worker in (*self._senders, *self._receivers):
                    worker.end()
                gc.collect()  # a proxy that is collected later would call a JVM that is gone

    def go_on(self, *, all_answer: bool = True) -> Counts:
        """Wait until each producer has tried more messages, and start new producers; the counts since the last call.

        A new producer has no route yet: it asks a NameServer before it can send. If a NameServer does not answer, the
        first send of a client 5.5.0 may fail.

        Args:
            all_answer: Whether all NameServers answer, so that no new producer may fail.
        """
        for sender in self._senders:
            tried = len(sender.durations_ms) + _MESSAGES
            wait_until(lambda s=sender, n=tried: len(s.durations_ms) >= n or s.error, _PATIENCE_S, "messages")
            assert sender.error is None, sender.error
        before = len(self._newcomer_failures)
        for release in RELEASES:
            self._send_as_new_producer(release)
        new_failures = self._newcomer_failures[before:]
        assert not (all_answer and new_failures), new_failures
        sent, longest = 0, 0
        failures: list[str] = []
        for sender in self._senders:
            seen = self._seen.get(sender, (0, 0, 0))
            now = self._seen[sender] = (len(sender.sent), len(sender.failures), len(sender.durations_ms))
            sent += now[0] - seen[0]
            failures += sender.failures[seen[1] : now[1]]
            longest = max([longest, *sender.durations_ms[seen[2] : now[2]]])
        return Counts(sent + len(RELEASES) - len(new_failures), failures, new_failures, longest)

    def total(self) -> Counts:
        """Counts of all producers of all languages, after the end."""
        senders = self._senders
        return Counts(
            sum(len(sender.sent) for sender in senders) + len(self._newcomers) + self.go["sent"],
            [
                *(failure for sender in senders for failure in sender.failures),
                *(self.go["failures"] or []),
            ],
            self._newcomer_failures,
            max(*(max(sender.durations_ms) for sender in senders), self.go["longestMs"]),
        )

    def brokers(self) -> set[str]:
        """Names of the brokers that took messages."""
        return {name for sender in self._senders for name in sender.sent.values()}

    def _send_as_new_producer(self, release: str) -> None:
        body = f"{self._name} new {len(self._newcomers)}"
        client = self._clients[release]
        try:
            producer = client.producer(self._namesrv_addr, "producers-new", _ROUTE_INTERVAL_MS)
            try:
                assert producer.send(client.message(self._topic, body)).getSendStatus().name() == "SEND_OK"
            finally:
                producer.shutdown()
            self._newcomers.append(body)
        except Py4JError as error:
            self._newcomer_failures.append(f"{body}: {' '.join(str(error).split())[:300]}")

    def _end(self) -> None:
        """Stop the producers, wait for all acknowledged messages, and note in `lost` what has not arrived in order."""
        for sender in self._senders:
            sender.stop()
        self.go = self._go.end()
        if self.go["notReceived"]:
            self.lost.append(f"Go: {self.go['notReceived']} messages")
        pairs = [(s, r) for s in self._senders for r in self._receivers if s.ordered == r.ordered]
        with suppress(TimeoutError):
            wait_until(lambda: all(r.received.keys() >= set(s.sent) for s, r in pairs), _PATIENCE_S, "messages", 0.5)
        for receiver in self._receivers:
            receiver.stop()
        for sender, receiver in pairs:
            if missing := set(sender.sent) - receiver.received.keys():
                at = sorted({sender.sent[body] for body in missing})
                self.lost.append(f"{receiver.name}: {len(missing)} of {len(sender.sent)} of {sender.name} from {at}")
            elif sender.ordered:
                self._check_order(sender, receiver)

    def _check_order(self, sender: Sender, receiver: Receiver) -> None:
        order: dict[str, list[int]] = {}
        for body in receiver.received:
            if body in sender.sent:
                key, _, number = body.rpartition(": ")
                order.setdefault(key, []).append(int(number))
        self.lost += [
            f"{receiver.name}: {key} in the order {numbers}"
            for key, numbers in order.items()
            if numbers != sorted(numbers)
        ]
