# SPDX-License-Identifier: Apache-2.0
"""Requests that came before, byte for byte, and the short way to their answers: past parser, task and scope.

Who asks for routes over a kept connection says the same again and again. `KnownRequests` holds such requests whole,
with what they ask; `KnownLane` answers them from `RouteLane`, as bytes for the socket. Neither does I/O;
`GuardedProtocol` looks up what arrives and writes what is found.

A request becomes known only after the long way parsed exactly these bytes, let them pass and answered from `RouteLane`,
whose answer depends on path and If-None-Match alone. What is kept of a request is the question, never the answer:
that is looked up in the view of the moment. With protected reads `RouteLane` answers nothing, so nothing becomes known.

Nobody can drive out what others use: when the memory is full, nothing more becomes known until requests that nobody
repeated for a while are dropped. Those that find no room are answered the long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from api.http.encoded import RouteLane, header_lines, if_none_match
from api.http.etag import matches

REQUEST: Final = "routelake.request"
"""Key in an ASGI scope: the bytes of the request, where they came whole, alone, and on a connection that goes on."""
MAX_REQUEST_BYTES: Final = 2048
"""Longer requests never become known."""

_MAX_REQUESTS: Final = 16_384
_MAX_BYTES: Final = 8 * 1024 * 1024
_ENTRY_BYTES: Final = 400
"""What a known request costs beside its bytes, roughly."""
_IDLE_S: Final = 60.0
_END: Final = b"\r\n\r\n"
_NEVER: Final = frozenset(
    {
        *(b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"proxy-connection"),
        *(b"authorization", b"proxy-authorization", b"cookie"),  # nobody's secrets are kept
    }
)


class Question:
    """What a known request asks.

    Attributes:
        path: As sent.
        if_none_match: The header, its lines joined; None without one.
        used: Whether it was asked again since somebody last looked for room.
    """

    __slots__ = ("_print", "_same", "if_none_match", "path", "used")

    def __init__(self, path: bytes, if_none_match: str | None) -> None:
        self.path = path
        self.if_none_match = if_none_match
        self.used = False
        self._print: str | None = None
        self._same = False

    def has(self, print_: str) -> bool:
        """Whether the client has the content with this fingerprint."""
        if self.if_none_match is None:
            return False
        if self._print is not print_:
            self._same = matches(self.if_none_match, print_)
            self._print = print_
        return self._same


def question_of(scope: Scope) -> Question | None:
    """What a request that `RouteLane` answered asks; None if its kind must be parsed each time."""
    headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
    if scope["http_version"] != "1.1":
        return None
    for name, value in headers:
        if name in _NEVER or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
    return Question(scope["raw_path"], if_none_match(headers))


def is_whole(data: bytes) -> bool:
    """Whether bytes may be one whole request that can become known: a GET without a body, and nothing behind it."""
    return (
        len(data) <= MAX_REQUEST_BYTES and data.startswith(b"GET ") and data.find(_END) == len(data) - len(_END) != -1
    )


class KnownRequests:
    """Request to question, bounded in number and bytes."""

    def __init__(self, max_requests: int = _MAX_REQUESTS, max_bytes: int = _MAX_BYTES, idle_s: float = _IDLE_S) -> None:
        """Start empty.

        Args:
            max_requests: How many are kept.
            max_bytes: What they may take, all in all.
            idle_s: Room is looked for once in so many seconds at most; what was not asked again since goes.
        """
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._idle_s = idle_s
        self._cleared_s = float("-inf")
        self._questions: dict[bytes, Question] = {}
        self.get = self._questions.get
        """The question of a request, or None; whoever answers it sets ``used``."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._questions)

    def learn(self, request: bytes, question: Question, now_s: float) -> None:
        """Keep a request, if there is room.

        Args:
            request: Its bytes, all of them.
            question: What it asks.
            now_s: Any clock that only goes forward.
        """
        if request in self._questions or len(request) > MAX_REQUEST_BYTES:
            return
        size = _size(request, question)
        if not self._fits(size):
            if now_s - self._cleared_s < self._idle_s:
                return
            self._cleared_s = now_s
            self._drop_idle()
            if not self._fits(size):
                return
        self._questions[request] = question
        self.bytes += size

    def _fits(self, size: int) -> bool:
        return len(self._questions) < self._max_requests and self.bytes + size <= self._max_bytes

    def _drop_idle(self) -> None:
        for request, question in list(self._questions.items()):
            if question.used:
                question.used = False
            else:
                del self._questions[request]
                self.bytes -= _size(request, question)


class KnownLane:
    """Answers known requests. One thread: the event loop's."""

    def __init__(self, lane: RouteLane, known: KnownRequests | None = None) -> None:
        """Know nothing yet."""
        self._lane = lane
        self.known = KnownRequests() if known is None else known
        self._defaults: object = None
        self._ok = self._not_modified = b""
        self.answered = lane.answered

    def answer(self, request: bytes, defaults: list[tuple[bytes, bytes]]) -> tuple[bytes, ...] | None:
        """The answer in pieces, ready for the socket; None where the long way must be taken.

        Args:
            request: Whatever arrived.
            defaults: uvicorn's default headers, such as the date; a new list whenever one of them is another.
        """
        question = self.known.get(request)
        if question is None:
            return None
        ready = self._lane.ready(question.path)
        if ready is None:
            return None
        question.used = True
        if defaults is not self._defaults:
            self._defaults = defaults
            lines = header_lines(defaults)
            self._ok, self._not_modified = STATUS_LINE[200] + lines, STATUS_LINE[304] + lines
        if question.has(ready.print):
            return (self._not_modified + ready.not_modified_lines,)
        return self._ok + ready.lines, ready.body

    def learn(self, scope: Scope, now_s: float) -> None:
        """Take in a request that `RouteLane` has just answered the long way."""
        request = scope.get(REQUEST)
        if request is not None and self.known.get(request) is None:
            question = question_of(scope)
            if question is not None:
                self.known.learn(request, question, now_s)


def _size(request: bytes, question: Question) -> int:
    return len(request) + len(question.path) + len(question.if_none_match or "") + _ENTRY_BYTES
