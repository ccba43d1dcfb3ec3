# SPDX-License-Identifier: Apache-2.0
"""Hostile peers for `quota_peers.Peers`.

What one computes would be done on a machine of its own; here it has the lowest priority instead.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from dev.model import codes
from dev.model.client import decode_frame, encode_frame
from tests.e2e.hostile import read_answer, registration

HOSTILE: Final = "127.0.0.9"
IN_A_WRITE: Final = 8
AT_ONCE: Final = 500
"""Connections that wait for an answer."""

Frames = Iterator[bytes]


def new_brokers() -> Frames:
    for number in itertools.count():
        yield registration(f"hostile-{number}", f"10.6.{number >> 8 & 255}.{number & 255}:1", 1, 3)


def more_topics() -> Frames:
    for number in itertools.count(1):
        yield registration("hostile", "10.7.0.1:1", number, 200 * min(number, 60))


def come_and_go() -> Frames:
    who = {"brokerName": "hostile-b", "brokerAddr": "10.7.0.2:1", "clusterName": "c", "brokerId": "0"}
    for number in itertools.count(1):
        yield registration("hostile-b", "10.7.0.2:1", number, 100)
        yield encode_frame(codes.UNREGISTER_BROKER, who)


def heartbeats() -> Frames:
    who = {"brokerName": "nobody", "brokerAddr": "10.7.0.3:1", "clusterName": "c"}
    while True:
        yield encode_frame(codes.BROKER_HEARTBEAT, who)


def kv() -> Frames:
    for number in itertools.count():
        fields = {"namespace": "n", "key": f"k{number % 400}"}
        yield encode_frame(codes.PUT_KV_CONFIG, {**fields, "value": str(number) * 1000})
        yield encode_frame(codes.DELETE_KV_CONFIG, fields)


def deletions() -> Frames:
    for number in itertools.count():
        yield encode_frame(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": f"never-was-{number}"})


def single_topics() -> Frames:
    for number in itertools.count():
        queue = {"brokerName": "honest-0", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0}
        yield encode_frame(
            codes.REGISTER_TOPIC_IN_NAMESRV, {"topic": f"t-{number}"}, json.dumps({"queueDatas": [queue]}).encode()
        )


def lists() -> Frames:
    while True:
        yield encode_frame(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})


KINDS: Final = (new_brokers, more_topics, come_and_go, heartbeats, kv, deletions, single_topics, lists)


def hostile(port: int, pipe: Connection) -> None:
    """One thread for each kind, with addresses of its own, which reconnects. Reports how many got which code, by kind."""
    _give_way()
    attack = _Attack(port)
    threads = [threading.Thread(target=attack.ask, args=(kind,)) for kind in KINDS]
    threads.append(threading.Thread(target=attack.connect))
    for thread in threads:
        thread.start()
    pipe.send("all attack")
    pipe.recv()
    attack.over.set()
    for thread in threads:
        thread.join(60)
    pipe.send({name: dict(found) for name, found in attack.answers.items()})


def _give_way() -> None:
    """To everybody on this machine; where Linux schedules by sessions, niceness counts within one alone."""
    os.setsid()
    os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")


class _Attack:
    def __init__(self, port: int) -> None:
        self._port = port
        self.over = threading.Event()
        self.answers: dict[str, Counter[int]] = {kind.__name__: Counter() for kind in KINDS}

    def ask(self, kind: Callable[[], Frames]) -> None:
        frames = kind()
        while not self.over.is_set():
            with contextlib.suppress(OSError), self._connection() as connection:
                while not self.over.is_set():
                    connection.sendall(b"".join(itertools.islice(frames, IN_A_WRITE)))
                    for _ in range(IN_A_WRITE):
                        answer = read_answer(connection)
                        if not answer:
                            raise ConnectionError
                        self.answers[kind.__name__][decode_frame(answer[4:]).header["code"]] += 1

    def connect(self) -> None:
        """Connections that say nothing, more than one may have."""
        with contextlib.ExitStack() as held:
            while not self.over.wait(0.5):
                for _ in range(50):
                    with contextlib.suppress(OSError):
                        held.enter_context(self._connection())

    def _connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), 30, (HOSTILE, 0))


def shaking_hands(port: int, pipe: Connection, per_s: str) -> None:
    """From the hostile address: so many connections a second, which all send the same first message of TLS. Says how many,
    and how many were answered."""
    _give_way()
    pipe.send("it begins")
    tried = answered = 0
    began_s = time.monotonic()
    waiting: deque[socket.socket] = deque()
    while not pipe.poll(max(0.0, began_s + tried / float(per_s) - time.monotonic())):
        with contextlib.suppress(OSError):
            waiting.append(socket.create_connection(("127.0.0.1", port), 30, (HOSTILE, 0)))
            waiting[-1].sendall(_HELLO)
        tried += 1
        if len(waiting) > AT_ONCE:
            answered += _is_answered(waiting.popleft())
    pipe.send((tried, answered + sum(map(_is_answered, waiting))))


def _is_answered(connection: socket.socket) -> bool:
    with contextlib.suppress(OSError), connection:
        return bool(connection.recv(1 << 16))
    return False


def _hello() -> bytes:
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


_HELLO: Final = _hello()
