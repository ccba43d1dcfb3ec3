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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Final, Protocol

from tests.model.client import ConnectionClosed, RemotingClient
from tests.robustness.operations import WRITES, Broker, Operation
from tests.robustness.plan import SHORT_MS, Worker, operations
from tests.robustness.record import Entry, Recorder

TIMEOUT_S: Final = 20.0
_KEPT_EVERY: Final = 10
"""Of the epochs that were seen, so many are asked for as long as the run lasts."""
_AGAIN_S: Final = 0.1
"""After a refused connection, or an answer that never came."""
_SILENT_S: Final = SHORT_MS / 1000 + 9
"""A broker that falls silent says nothing for so long: it is past its timeout by more than a CLOCK."""


class Address(Protocol):
    """Where a server listens."""

    host: str
    remoting_port: int
    http_port: int


@dataclass
class Answer:
    """What came back, and over which connection."""

    peer: str
    code: int
    body: str = ""
    ext: dict[str, str] | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Client(Protocol):
    """A connection that is made when it is needed."""

    peer: str

    def call(self, operation: Operation, asked: dict[str, str], tag: str) -> Answer:
        """Send one request and wait for its answer."""
        ...

    def close(self) -> None:
        """Lose the connection."""
        ...

    def cut(self) -> bool:
        """The same from another thread, in the middle of whatever is under way; the peer sees a reset. False without one."""
        ...


class Remoting:
    """Port 9876."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._client: RemotingClient | None = None
        self.peer = ""

    def call(self, operation: Operation, asked: dict[str, str], tag: str) -> Answer:
        """See `Client`."""
        if self._client is None:
            self.peer = ""
            self._client = RemotingClient(self._server.host, self._server.remoting_port)
            self.peer = _peer(self._client._socket)
        response = self._client.call(operation.request(), TIMEOUT_S)
        self._client.unsolicited.clear()
        return Answer(self.peer, response.code, response.body.decode(), response.ext)

    def close(self) -> None:
        """See `Client`."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def cut(self) -> bool:
        """See `Client`."""
        client = self._client
        return client is not None and cut_connection(client._socket)


class Http:
    """The HTTP API, over a connection that is kept."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._connection: HTTPConnection | None = None
        self.peer = ""

    def call(self, operation: Operation, asked: dict[str, str], tag: str) -> Answer:
        """See `Client`."""
        if self._connection is None:
            self.peer = ""
            self._connection = HTTPConnection(self._server.host, self._server.http_port, timeout=TIMEOUT_S)
            self._connection.connect()
            self.peer = _peer(self._connection.sock)
        method, path, body = operation.http()
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        headers = {"content-type": "application/json"} if body is not None else {}
        if tag:
            headers["if-none-match"] = tag
        self._connection.request(method, f"{path}?{query}" if query else path, body, headers)
        with self._connection.getresponse() as response:
            text = response.read().decode()
            found = {name.lower(): value for name, value in response.getheaders()}
            if found.get("connection", "").lower() == "close":
                self.close()
            return Answer(self.peer, response.status, text, None, found)

    def close(self) -> None:
        """See `Client`."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def cut(self) -> bool:
        """See `Client`."""
        connection = self._connection
        return connection is not None and connection.sock is not None and cut_connection(connection.sock)


def _peer(connection: socket.socket) -> str:
    host, port = connection.getsockname()
    return f"{host}:{port}"


def cut_connection(connection: socket.socket) -> bool:
    """Cut it, whoever reads from it; False if it is cut already. Its owner reads the end of the stream and closes it: without linger that is a reset."""
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
        self, worker: Worker, server: Address, recorder: Recorder, begin: Callable[[], None] = lambda: None
    ) -> None:
        """Not yet started; ``begin`` is called first on its thread."""
        super().__init__(name=worker.name, daemon=True)
        self._worker, self._recorder, self._begin = worker, recorder, begin
        self._client: Client = Http(server) if worker.via == "http" else Remoting(server)
        self._stopping = threading.Event()
        self._chance = random.Random(worker.seed + 1)
        self._silent: dict[Broker, float] = {}
        self._tags: dict[tuple[str, ...], str] = {}
        self._epochs: deque[int] = deque(maxlen=20)
        self._old_epochs: list[int] = []
        self.defect: BaseException | None = None

    def stop(self) -> None:
        """End after the operation under way."""
        self._stopping.set()

    def cut(self) -> bool:
        """Cut its connection; False if it has none."""
        return self._client.cut()

    def run(self) -> None:
        """Play until told to stop."""
        try:
            self._begin()
            for operation in operations(self._worker):
                if self._stopping.wait(operation.pause_ms * self._worker.pace / 1000):
                    return
                self._play(operation)
        except BaseException as error:
            self.defect = error
            raise
        finally:
            self._client.close()

    def _play(self, operation: Operation) -> None:
        now_s = time.monotonic()
        match operation.kind:
            case "close":
                self._client.close()
                return
            case "silence":
                assert operation.broker is not None
                if operation.broker.timeout_ms == SHORT_MS:
                    self._silent[operation.broker] = now_s + _SILENT_S
                return
        if operation.broker is not None and self._silent.get(operation.broker, 0.0) > now_s:
            return
        asked = self._asked(operation)
        if operation.kind == "as-of" and not asked:
            return
        tag = self._tags.get(operation.subject, "") if operation.poll_s else ""
        if tag:
            asked["wait"] = str(operation.poll_s)
        sent_s = time.monotonic()
        try:
            answer = self._client.call(operation, asked, tag)
        except (OSError, ConnectionClosed, HTTPException, TimeoutError) as error:
            peer = self._client.peer
            self._client.close()
            self._recorder.entry(
                Entry(
                    *(self._worker.name, self._worker.via, peer, operation, sent_s, time.monotonic()),
                    asked=asked,
                    gateway=self._worker.gateway,
                    error=f"{type(error).__name__}: {error}",
                )
            )
            self._stopping.wait(_AGAIN_S)
            return
        self._recorder.entry(self._noted(operation, asked, answer, sent_s, time.monotonic()))

    def _asked(self, operation: Operation) -> dict[str, str]:
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
        return asked

    def _noted(
        self, operation: Operation, asked: dict[str, str], answer: Answer, sent_s: float, done_s: float
    ) -> Entry:
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
            asked=asked,
            tag=headers.get("etag", ""),
            gateway=self._worker.gateway,
        )
