# SPDX-License-Identifier: Apache-2.0
"""Read a request body within its bounds: type, size and time.

A body is bounded three times: on the wire, after decompression (against gzip bombs), and by a deadline for all of it
(against one byte a second). A budget bounds all bodies together. If the budget is used up, incomplete bodies are
evicted: first those that have held most for longest.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import zlib
from collections.abc import Callable
from email.message import Message
from typing import Final

from starlette.requests import ClientDisconnect, Request

from api.http.problems import BAD_REQUEST, TIMEOUT, TOO_LARGE, UNSUPPORTED_MEDIA, Problem, busy
from remoting.codec.bounds import Holding, address_of, to_evict

_GZIP: Final = 31  # zlib's wbits for a gzip wrapper
_STEP: Final = 64 * 1024
_SHOWN: Final = 80
_LONGEST_TYPE: Final = 400
"""Maximum number of characters of a Content-Type that are read."""


class BodyBudget:
    """Budget of the request bodies that a process holds at a time, in bytes. Safe for threads."""

    def __init__(self, max_bytes: int, on_evicted: Callable[[str], None] = lambda _: None) -> None:
        """Start empty.

        Args:
            max_bytes: Size of all bodies together, in bytes.
            on_evicted: Callback that gets the address of each body that is refused for lack of room.
        """
        self._free = max_bytes
        self._on_evicted = on_evicted
        self._held: dict[Body, int] = {}
        self._lock = threading.Lock()

    @property
    def free(self) -> int:
        """Number of bytes that are free."""
        return self._free

    def take(self, body: Body, size: int) -> None:
        """Take more bytes for a body, if necessary from other bodies that are not complete.

        Raises:
            Problem: This body is evicted, or too much is in progress (SYSTEM_BUSY).
        """
        with self._lock:
            held = self._held.get(body, 0) + size
            if size > self._free and not self._make_room(body, held, size - self._free):
                self._on_evicted(body.address)
                raise busy("too many large requests at once; try again")
            self._free -= size
            self._held[body] = held

    def give_back(self, body: Body) -> None:
        """Return all bytes that `take` took for a body."""
        with self._lock:
            self._free += self._held.pop(body, 0)

    def _make_room(self, newcomer: Body, size: int, missing: int) -> bool:
        holdings = [
            Holding(body, body.address, held, body.since_s)
            for body, held in {**self._held, newcomer: size}.items()
            if body.is_reading or body is newcomer
        ]
        chosen = to_evict(holdings, missing, time.monotonic())
        if newcomer in chosen or sum(self._held[body] for body in chosen) < missing:
            return False
        for body in chosen:
            self._free += self._held.pop(body)
            body.evict()
            self._on_evicted(body.address)
        return True


class Body:
    """A body that is being received. A context manager that returns the body's bytes to the budget at its end."""

    def __init__(self, request: Request, budget: BodyBudget, *, max_bytes: int, timeout_s: float) -> None:
        """Prepare, without reading: `read` reads."""
        self._request = request
        self._budget = budget
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._timer: asyncio.Timeout | None = None
        self._loop = asyncio.get_running_loop()
        self._is_evicted = False
        self.address = "" if request.client is None else address_of(request.client.host)
        self.since_s = time.monotonic()

    @property
    def is_reading(self) -> bool:
        """Return whether the body is still being received."""
        return self._timer is not None

    def evict(self) -> None:
        """Stop reading, because other bodies need the room. Callable from any thread."""
        self._is_evicted = True
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._timer is not None:
            with contextlib.suppress(RuntimeError):  # its deadline has passed already
                self._timer.reschedule(self._loop.time())

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.give_back(self)

    async def read(self) -> bytes:
        """Return the body, decompressed. It counts against the budget until the context ends.

        Raises:
            Problem: The body has the wrong type, is too large, too slow or interrupted, or the server stopped first.
        """
        check_media_type(self._request)
        compressed = _is_gzip(self._request)
        declared = self._request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared[:20]) > self._max_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._timeout_s) as self._timer:
                data = await self._receive()
        except TimeoutError:
            if self._is_evicted:
                raise busy("too much at once from this address; try again") from None
            raise Problem(TIMEOUT, f"the body was not complete after {self._timeout_s:g} s") from None
        except asyncio.CancelledError:  # the stopping server no longer waits for it (`serve_http`)
            raise busy("this gateway stops, and the body was not complete; try again") from None
        except ClientDisconnect:
            raise Problem(BAD_REQUEST, "the connection ended within the body") from None
        finally:
            self._timer = None
        if self._is_evicted:
            raise busy("too much at once from this address; try again")
        if not compressed:
            return data
        if len(data) <= _STEP:
            return self._inflated(data)
        return await asyncio.to_thread(self._inflated, data)

    async def _receive(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in self._request.stream():
            size += len(part)
            if size > self._max_bytes:
                raise self._too_large()
            self._hold(len(part))
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _inflated(self, data: bytes) -> bytes:
        inflater = zlib.decompressobj(_GZIP)
        parts: list[bytes] = []
        size = 0
        rest = data
        try:
            while rest and not inflater.eof:
                part = inflater.decompress(rest, _STEP)
                rest = inflater.unconsumed_tail
                size += len(part)
                if size > self._max_bytes:
                    raise self._too_large()
                self._hold(len(part))
                parts.append(part)
        except zlib.error as error:
            raise Problem(BAD_REQUEST, f"the body is not a gzip stream: {error}") from None
        if not inflater.eof:
            raise Problem(BAD_REQUEST, "the gzip stream is incomplete")
        if inflater.unused_data:
            raise Problem(BAD_REQUEST, "something follows the gzip stream")
        return b"".join(parts)

    def _hold(self, size: int) -> None:
        if self._is_evicted:  # other bodies have its bytes now
            raise busy("too much at once from this address; try again")
        self._budget.take(self, size)

    def _too_large(self) -> Problem:
        return Problem(TOO_LARGE, f"the body is larger than {self._max_bytes} bytes")


def check_media_type(request: Request) -> None:
    """Refuse a body that is not declared as JSON. A browser form cannot be, so other sites' pages cannot send one.

    Only the media type decides. JSON has no parameters (RFC 8259, 11), so they are ignored. The exception is a charset
    in which the body could not be UTF-8.

    Raises:
        Problem: 415.
    """
    declared = Message()
    declared["content-type"] = request.headers.get("content-type", "")[:_LONGEST_TYPE]
    if declared.get_content_type() != "application/json" or not _may_be_utf8(declared.get_content_charset("")):
        raise Problem(UNSUPPORTED_MEDIA, "send the body as Content-Type: application/json, in UTF-8")


def _may_be_utf8(charset: str) -> bool:
    try:
        return "{}".encode(charset or "utf-8") == b"{}"
    except (LookupError, ValueError):
        return True  # Python does not know the charset


def _is_gzip(request: Request) -> bool:
    lines = ",".join(request.headers.getlist("content-encoding"))
    encodings = [name for each in lines.split(",") if (name := each.strip().lower()) not in ("", "identity")]
    if encodings not in ([], ["gzip"], ["x-gzip"]):
        raise Problem(
            UNSUPPORTED_MEDIA,
            f"Content-Encoding {lines[:_SHOWN]!r} is not understood; use gzip, or none",
            headers={"accept-encoding": "gzip"},
        )
    return bool(encodings)
