"""Large registrations are read in a process of their own.

Ten thousand topics are work that holds the interpreter for many milliseconds; when hundreds of brokers bring them at
once, route requests would wait for it again and again. So the gateway passes the request on and gets back what it
needs: the event without its topics, and the payload for the log. The process starts with the first such registration,
and ends with the gateway, however that ends: it reads from a socket of which the gateway holds the other end.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Connection, Pipe
from typing import Final, NamedTuple

import msgspec

from api.remoting.commands import to_event
from api.remoting.frame import RemotingCommand
from deploy.children import give_way
from schemas.errors import BadRequestError, UnavailableError
from schemas.events import Actor, Channel, EventEncoder, RegisterBroker

LARGE_BODY_BYTES: Final = 128 * 1024
"""A registration with a larger body is not read on the event loop."""

_STDIN: Final = 0
_MAIN: Final = f"from {__name__} import main; main()"


class Circumstances(NamedTuple):
    """What a registration's event says beside the request: see `to_event`."""

    actor: Actor
    channel: Channel
    now_ms: int
    delete_absent_topics: bool


class ReadRegistration(NamedTuple):
    """What a registration says.

    Attributes:
        event: It, without its topics.
        payload: It with its topics, as the log takes it.
    """

    event: RegisterBroker
    payload: bytes


class LargeRegistrations:
    """The gateway's end of the process."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def read(self, command: RemotingCommand, circumstances: Circumstances) -> ReadRegistration | None:
        """`to_event` of a REGISTER_BROKER, and its encoding. Blocks; one at a time.

        Raises:
            RefusedError: The answer is an error.
            UnavailableError: The process has died, or cannot be started. The next call starts another.
        """
        with self._busy:
            try:
                pipe = self._pipe or self._start()
                pipe.send((command, circumstances))
                answer: ReadRegistration | BadRequestError | None = pipe.recv()
            except (OSError, EOFError) as error:
                self._drop()
                raise UnavailableError(
                    "the process that reads large registrations has died or cannot be started "
                    f"({type(error).__name__}: {error}). Is there memory left? The next registration starts it anew."
                ) from error
        if isinstance(answer, BadRequestError):
            raise answer
        return answer

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
        with self._busy:
            self._drop()

    def _start(self) -> Connection:
        self._pipe, theirs = Pipe()
        with theirs:
            # A session of its own: its work does not count as that of the thread that answers (`give_way`).
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN], stdin=theirs.fileno(), start_new_session=True
            )
        return self._pipe

    def _drop(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._pipe = self._process = None


def read_registration(
    encoder: EventEncoder, command: RemotingCommand, circumstances: Circumstances
) -> ReadRegistration | None:
    """`LargeRegistrations.read`, here and now. None where nothing happens.

    Raises:
        RefusedError: The answer is an error.
    """
    event = to_event(command, **circumstances._asdict())
    if event is None:
        return None
    assert isinstance(event, RegisterBroker)
    return ReadRegistration(msgspec.structs.replace(event, topic_config_table=None), encoder.encode(event))


def main() -> None:
    """Read until the gateway is gone. What nobody foresaw ends this process, with a traceback in the gateway's log."""
    # A stop of all processes at once is the gateway's to hear: it finishes what it has begun, and this ends with it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    give_way()
    with contextlib.suppress(EOFError, ConnectionError):
        _serve(Connection(_STDIN))


def _serve(pipe: Connection) -> None:
    encoder = EventEncoder()
    while True:
        command, circumstances = pipe.recv()
        try:
            answer: ReadRegistration | BadRequestError | None = read_registration(encoder, command, circumstances)
        except BadRequestError as error:
            answer = error
        pipe.send(answer)
