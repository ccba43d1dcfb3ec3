# SPDX-License-Identifier: Apache-2.0
"""Clients: each plays its operations one after another, whatever becomes of the server, and records every one."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from dev.fault_injection.operations import WRITES, Operation
from dev.fault_injection.plan import SHORT_MS, Worker, operations
from dev.fault_injection.record import Ended, Entry, Recorder
from dev.model.client import ConnectionClosed, RemotingClient

TIMEOUT_S: Final = 20.0
_KEPT_EVERY: Final = 10
"""Interval between the epochs that are read again as long as the run lasts, of those that were seen."""
_AGAIN_S: Final = 0.1
"""After a refused connection, or an answer that never came."""
_SILENT_S: Final = SHORT_MS / 1000 + 9
"""Time without heartbeats of a broker that is to expire: past its timeout by more than a CLOCK."""


SMUGGLED: Final = b"DELETE /v1/topics/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""The body of a list of topics over HTTP, which asks for an upgrade: no client sends that request."""
_APART_S: Final = 0.01
"""Between a head and its body, so that they come one after the other."""

_TOGETHER: Final = 0.1
"""Probability that several requests are sent at once over one connection."""
_MANY: Final = 4


class Address(Protocol):
    """Address of a server."""

    host: str
    remoting_port: int
    http_port: int


class Question(NamedTuple):
    """Request to send: ``query`` and ``tag``, an ETag to compare with, over HTTP alone."""

    operation: Operation
    query: dict[str, str]
    tag: str = ""


@dataclass
class Answer:
    """Answer, and the connection that it came over; ``code`` is None for a one-way request."""

    peer: str
    code: int | None = None
    body: str = ""
    ext: dict[str, str] | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Client(Protocol):
    """A connection that is made when it is needed."""

    peer: str

    def ask(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        """Send these; their places and answers, as they come."""
        ...

    def close(self) -> bool:
        """Lose the connection; False without one."""
        ...

    def cut(self) -> bool:
        """The same from another thread, in the middle of whatever is under way; the peer sees a reset. False without one."""
        ...


class Remoting:
    """Port 9876: all requests are under way at once."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._client: RemotingClient | None = None
        self.peer = ""

    def ask(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        """See `Client`."""
        if self._client is None:
            self.peer = ""
            self._client = RemotingClient(self._server.host, self._server.remoting_port)
            self.peer = _peer(self._client._socket)
        waiting: dict[int, int] = {}
        for place, question in enumerate(questions):
            opaque = self._client.send(question.operation.request())
            if question.operation.one_way:
                yield place, Answer(self.peer)
            else:
                waiting[opaque] = place
        deadline_s = time.monotonic() + TIMEOUT_S
        while waiting:
            frame = self._client.receive_frame(max(0.0, deadline_s - time.monotonic()))
            if frame.is_response and frame.opaque in waiting:
                response = frame.response()
                answer = Answer(self.peer, response.code, response.body.decode(), response.ext)
                yield waiting.pop(frame.opaque), answer

    def close(self) -> bool:
        """See `Client`."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        return client is not None

    def cut(self) -> bool:
        """See `Client`."""
        client = self._client
        return client is not None and cut_connection(client._socket)


class Http:
    """The HTTP API, over a connection that is kept: one request after the other."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._connection: HTTPConnection | None = None
        self.peer = ""

    def ask(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer]]:
        """See `Client`."""
        for place, question in enumerate(questions):
            yield place, self._ask(question)

    def _ask(self, question: Question) -> Answer:
        if self._connection is None:
            self.peer = ""
            self._connection = HTTPConnection(self._server.host, self._server.http_port, timeout=TIMEOUT_S)
            self._connection.connect()
            self.peer = _peer(self._connection.sock)
        method, path, body = question.operation.http()
        query = "&".join(f"{name}={value}" for name, value in question.query.items())
        headers = {"content-type": "application/json"} if body is not None else {}
        sent: bytes | Iterator[bytes] | None = body
        if question.operation.kind == "topics":
            sent = _later(SMUGGLED)
            headers |= {"content-length": str(len(SMUGGLED)), "connection": "Upgrade", "upgrade": "h2c"}
        if question.tag:
            headers["if-none-match"] = question.tag
        self._connection.request(method, f"{path}?{query}" if query else path, sent, headers)
        with self._connection.getresponse() as response:
            text = response.read().decode()
            found = {name.lower(): value for name, value in response.getheaders()}
            if found.get("connection", "").lower() == "close":
                self.close()
            return Answer(self.peer, response.status, text, None, found)

    def close(self) -> bool:
        """See `Client`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        return connection is not None

    def cut(self) -> bool:
        """See `Client`."""
        connection = self._connection
        return connection is not None and connection.sock is not None and cut_connection(connection.sock)


def _later(body: bytes) -> Iterator[bytes]:
    """In a packet of its own."""
    time.sleep(_APART_S)
    yield body


def _peer(connection: socket.socket) -> str:
    host, port = connection.getsockname()
    return f"{host}:{port}"


def cut_connection(connection: socket.socket) -> bool:
    """Cut a connection; False if it is cut already.

    Its owner reads the end of the stream and closes it, which is a reset without linger.
    """
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)
    except OSError:
        return False
    return True


class Playing(threading.Thread):
    """One worker of a plan, on a thread of its own.

    Attributes:
        defect: what ended it early, if anything did: a defect of the kit.
    """

    def __init__(
        self,
        worker: Worker,
        server: Address,
        recorder: Recorder,
        others: Mapping[int, Address] = MappingProxyType({}),
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """Not yet started.

        Args:
            worker: of the plan.
            server: its gateway.
            recorder: told of everything.
            others: gateways that its brokers speak to as well, by number.
            begin: called first on its thread.
        """
        super().__init__(name=worker.name, daemon=True)
        self._worker, self._recorder, self._begin = worker, recorder, begin
        servers = {worker.gateway: server, **others}
        self._clients: dict[int, Client] = {
            number: Http(address) if worker.via == "http" else Remoting(address) for number, address in servers.items()
        }
        self._stopping = threading.Event()
        self._chance = random.Random(worker.seed + 1)
        self._silent: dict[str, float] = {}
        self._tags: dict[tuple[str, ...], str] = {}
        self._epochs: deque[int] = deque(maxlen=20)
        self._old_epochs: list[int] = []
        self.defect: BaseException | None = None

    def stop(self) -> None:
        """End after the operation under way."""
        self._stopping.set()

    def cut(self) -> int:
        """Cut its connections; how many there were."""
        return sum(client.cut() for client in self._clients.values())

    def run(self) -> None:
        """Play until told to stop."""
        try:
            self._begin()
            plays = operations(self._worker)
            for operation in plays:
                if self._stopping.wait(operation.pause_ms * self._worker.pace / 1000):
                    return
                together = self._worker.via == "remoting" and self._chance.random() < _TOGETHER
                self._play([operation, *islice(plays, self._chance.randrange(1, _MANY) if together else 0)])
        except BaseException as error:
            self.defect = error
            raise
        finally:
            for gateway in self._clients:
                self._close(gateway, "over")

    def _play(self, operations: Sequence[Operation]) -> None:
        """These at once: what takes no request, and then requests to each gateway."""
        requests = [operation for operation in operations if not self._is_done(operation)]
        for gateway in self._clients:
            mine = [
                Question(operation, *self._asked(operation))
                for operation in requests
                if gateway == self._worker.gateway or operation.broker is not None
            ]
            mine = [question for question in mine if question.operation.kind != "as-of" or question.query]
            if mine:
                self._ask(gateway, mine)

    def _is_done(self, operation: Operation) -> bool:
        """Return whether nothing more is to be sent for it."""
        now_s = time.monotonic()
        broker = operation.broker
        if operation.kind == "close":
            self._close(self._chance.choice([*self._clients]), "asked")
            return True
        if operation.kind == "silence":
            assert broker is not None
            if broker.timeout_ms == SHORT_MS:
                self._silent[broker.addr] = now_s + _SILENT_S
            return True
        return broker is not None and self._silent.get(broker.addr, 0.0) > now_s

    def _close(self, gateway: int, why: str) -> None:
        client, now_s = self._clients[gateway], time.monotonic()
        if client.close() and self._worker.via == "remoting":
            self._recorder.ended(Ended(self._worker.name, gateway, client.peer, now_s, why))

    def _ask(self, gateway: int, questions: Sequence[Question]) -> None:
        client = self._clients[gateway]
        left = dict(enumerate(questions))
        sent_s = time.monotonic()
        try:
            for place, answer in client.ask(questions):
                self._recorder.entry(self._noted(gateway, left.pop(place), answer, sent_s, time.monotonic()))
        except (OSError, ConnectionClosed, HTTPException, TimeoutError) as error:
            said = f"{type(error).__name__}: {error}"
            for question in left.values():
                self._recorder.entry(
                    Entry(
                        *(self._worker.name, self._worker.via, client.peer, question.operation, sent_s),
                        time.monotonic(),
                        asked=_of(question),
                        gateway=gateway,
                        error=said,
                    )
                )
            self._close(gateway, said)
            self._stopping.wait(_AGAIN_S)

    def _asked(self, operation: Operation) -> tuple[dict[str, str], str]:
        """Parameters, and an ETag to compare with."""
        asked = {}
        if operation.committed:
            asked["reads"] = "committed"
        if operation.wait_for and self._recorder.newest_offset >= 0:
            asked |= {"wait_for": str(self._recorder.newest_offset), "wait_timeout": "10000"}
        if operation.kind == "as-of":
            of_old = self._chance.random() < 0.5
            moments = [*map(str, self._old_epochs if of_old else self._epochs)]
            if operation.by_time:
                moments = self._recorder.past_times(of_old)
            if moments:
                asked["as_of"] = self._chance.choice(moments)
        tag = self._tags.get(operation.subject, "") if operation.poll_s else ""
        if tag:
            asked["wait"] = str(operation.poll_s)
        return asked, tag

    def _noted(self, gateway: int, question: Question, answer: Answer, sent_s: float, done_s: float) -> Entry:
        operation = question.operation
        headers, offset, visible = answer.headers, None, False
        if self._worker.via == "http":
            if operation.kind in WRITES:
                with suppress(ValueError):
                    said = json.loads(answer.body)
                    offset, visible = said.get("offset"), bool(said.get("visible"))
            elif "x-routelake-offset" in headers:
                offset = int(headers["x-routelake-offset"])
        epoch = int(headers["x-routelake-epoch"]) if "x-routelake-epoch" in headers else None
        if epoch and (not self._epochs or self._epochs[-1] != epoch):
            self._epochs.append(epoch)
            if epoch % _KEPT_EVERY == 0:
                self._old_epochs.append(epoch)
        if "etag" in headers and operation.kind == "route":
            self._tags[operation.subject] = headers["etag"]
        return Entry(
            *(self._worker.name, self._worker.via, answer.peer, operation, sent_s, done_s),
            code=answer.code,
            body=answer.body,
            ext=answer.ext,
            offset=offset,
            epoch=epoch,
            visible=visible,
            asked=_of(question),
            tag=headers.get("etag", ""),
            gateway=gateway,
        )


def _of(question: Question) -> dict[str, str]:
    """Return the recorded part of a question without the operation."""
    return {**question.query, **({"if_none_match": question.tag} if question.tag else {})}
