# SPDX-License-Identifier: Apache-2.0
"""Followers: each subscribes to `GET /v1/events`, continues after its last epoch, and records every epoch.

Now and then one continues at an earlier epoch, and asks `GET /v1/diff` for the changes of an epoch.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Final

from dev.fault_injection.plan import Worker
from dev.fault_injection.record import Heard, Recorder
from dev.fault_injection.workers import Address, cut_connection

SILENT_S: Final = 40.0
"""A subscriber receives something every 15 s; a gateway may stand still."""
_AGAIN_S: Final = 0.1
_BACK: Final = 12
"""Maximum number of epochs that a follower goes back."""


class Follower(threading.Thread):
    """One follower of a plan, on a thread of its own.

    Attributes:
        defect: what ended it early, if anything did: a defect of the kit.
    """

    def __init__(self, worker: Worker, server: Address, recorder: Recorder) -> None:
        super().__init__(name=worker.name, daemon=True)
        self._worker, self._server, self._recorder = worker, server, recorder
        self._chance = random.Random(worker.seed)
        self._stopping = threading.Event()
        self._socket: socket.socket | None = None
        self._stream = 0
        self._last: int | None = None
        self._last_id = ""
        self.defect: BaseException | None = None

    def stop(self) -> None:
        """End now: nothing may come for a while."""
        self._stopping.set()
        self.cut()

    def cut(self) -> bool:
        """Cut its connection; False if it has none."""
        found = self._socket
        return found is not None and cut_connection(found)

    def run(self) -> None:
        """Listen until told to stop."""
        try:
            while not self._stopping.is_set():
                try:
                    self._listen()
                except (OSError, HTTPException, TimeoutError, ValueError) as error:
                    self._note("end", data={"error": f"{type(error).__name__}: {error}"})
                self._stopping.wait(_AGAIN_S)
        except BaseException as error:
            self.defect = error
            raise

    def _listen(self) -> None:
        connection = HTTPConnection(self._server.host, self._server.http_port, timeout=SILENT_S)
        self._stream += 1  # a refusal is not the end of the one before
        try:
            connection.connect()
            self._socket = connection.sock
            path, headers, after = self._asked()
            self._note("begin", after=after)
            connection.request("GET", path, headers=headers)
            with connection.getresponse() as response:
                if response.status != 200:
                    self._note("end", data={"error": f"status {response.status}"})
                    return
                self._hear(response)
            self._note("end", data={"error": "the gateway ended it"})
        finally:
            self._socket = None
            connection.close()

    def _asked(self) -> tuple[str, dict[str, str], int | None]:
        """Path, header fields, and the epoch after which it wants to hear."""
        query = [f"topic={self._worker.topic}"] if self._worker.topic else []
        headers: dict[str, str] = {}
        after = self._last
        if after is not None and self._chance.random() < 0.5:
            after = max(0, after - self._chance.randrange(_BACK))
            query.append(f"from={after}")
        elif after is not None:
            headers["last-event-id"] = self._last_id
        return f"/v1/events?{'&'.join(query)}", headers, after

    def _hear(self, response: HTTPResponse) -> None:
        """Until the stream ends, or this follower has heard enough of it."""
        left = self._chance.randrange(10, 80)
        fields: dict[str, str] = {}
        while left > 0 and (line := response.readline()):
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(": ")
                fields[name] = value
                continue
            self._last_id = fields["id"]
            epoch = int(self._last_id.partition("-")[0])
            if "data" in fields:
                left -= 1
                self._note(fields.get("event", ""), epoch, data=json.loads(fields["data"]))
                if fields.get("event") == "epoch" and self._chance.random() < 0.25:
                    self._ask_what_is_different(epoch)
            else:
                self._note("id", epoch)
            self._last = epoch
            fields.clear()

    def _ask_what_is_different(self, epoch: int) -> None:
        asked_s = time.monotonic()
        before = max(1, epoch - self._chance.choice((1, 1, 2, 5)))  # before the first there is no history
        connection = HTTPConnection(self._server.host, self._server.http_port, timeout=SILENT_S)
        try:
            connection.request("GET", f"/v1/diff?from={before}&to={epoch}")
            with connection.getresponse() as response:
                text = response.read()
            if response.status == 200:
                self._note("diff", epoch, before, json.loads(text), asked_s)
            else:
                refusal = {"status": response.status, "body": text.decode()}
                self._note("refused", epoch, before, refusal, asked_s)
        except (OSError, HTTPException):
            self._note("unanswered", epoch, before, asked_s=asked_s)
        finally:
            connection.close()

    def _note(
        self,
        kind: str,
        epoch: int | None = None,
        after: int | None = None,
        data: Any = None,
        asked_s: float | None = None,
    ) -> None:
        name, gateway, topic = self._worker.name, self._worker.gateway, self._worker.topic
        self._recorder.heard(
            Heard(name, gateway, topic, self._stream, kind, time.monotonic(), epoch, after, data or {}, asked_s)
        )
