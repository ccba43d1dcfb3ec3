# SPDX-License-Identifier: Apache-2.0
"""Server-sent events about epochs: read once from the tables and sent to all subscribers.

While there are subscribers, one task reads the changes of each new epoch, encodes them, and wakes the subscribers. Each
sends the events that it has not sent yet and that pass its filter. If a subscriber returns with an older epoch, it gets
the later epochs from the tables. If it missed more than `MAX_EPOCHS` of them, or comes from another lake, it gets
``reset``.

An `id` is an epoch with a digest of its commit (`lake.commits.EpochMark`). The digest shows if it belongs to another
lake.

A subscriber without news gets the `id` of the newest epoch alone every `QUIET_S`. EventSource stores it without an
event and resumes from there. Proxies see that the connection is in use.

If there are too many subscribers, one of the address that has most is evicted (`remoting.codec.bounds.FairLimit`).
EventSource reconnects by itself.

Source: WHATWG HTML, 9.2 "Server-sent events".
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.http.history_pool import HistoryPool
from api.http.problems import busy
from lake.history.as_of import rfc3339
from lake.history.epoch_events import EpochEvent, epoch_events
from lake.history.history import History
from remoting.codec.bounds import FairLimit
from schemas.errors import RoutelakeError
from schemas.route_commit import NO_MARK, EpochMark

QUIET_S: Final = 15.0
_KEPT: Final = 256
"""Number of epochs in memory. Older epochs are read again for each subscriber that needs them."""
_NAMES: Final = 1000
"""Maximum number of topics, and of brokers, in one event."""
_AT_ONCE: Final = 50
"""Subscribers that are woken before the event loop serves other requests: each takes some 50 us."""
_RETRY_MS: Final = 2000
_RETRY_S: Final = 1.0
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}

_encode = msgspec.json.Encoder().encode
_log = structlog.get_logger("routelake.http")


class EventFilter(NamedTuple):
    """Changes that an epoch must have. None is no condition."""

    topic: str | None = None
    broker_name: str | None = None

    def passes(self, event: EpochEvent) -> bool:
        """Return whether a subscriber gets the event."""
        return (self.topic is None or self.topic in event.topics) and (
            self.broker_name is None or self.broker_name in event.brokers
        )


class _Ready(NamedTuple):
    event: EpochEvent
    text: bytes


@dataclass(slots=True, eq=False)
class _Subscriber:
    """A client that waits to be woken."""

    address: str
    may_go_on: Callable[[], bool]
    ended: bool = False
    woken: asyncio.Future[None] | None = None

    def goes_on(self) -> bool:
        return not self.ended and self.may_go_on()

    def end(self) -> None:
        self.ended = True
        self.wake()

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)

    async def wait(self) -> None:
        self.woken = asyncio.get_running_loop().create_future()
        await self.woken


class EventHub:
    """All subscribers of one gateway. Used on its event loop.

    Args:
        history: Pool that reads the tables.
        newest: Function that returns the epoch of the gateway's committed view.
        max_subscribers: Maximum number of subscribers at a time.
        on_evicted: Callback that gets the address of each subscriber that is evicted or refused.
    """

    def __init__(
        self,
        history: HistoryPool,
        newest: Callable[[], EpochMark],
        max_subscribers: int,
        on_evicted: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start without subscribers."""
        self._history = history
        self._newest = newest
        self._subscribers: FairLimit[_Subscriber] = FairLimit(max_subscribers, _Subscriber.end, on_evicted)
        self._ring: deque[_Ready] = deque(maxlen=_KEPT)
        self._at = NO_MARK
        """Everything up to this epoch can be sent."""
        self._moved = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def subscribers(self) -> int:
        """Return the number of subscribers."""
        return len(self._subscribers)

    def view_moved(self) -> None:
        """Wake the task that reads newer epochs."""
        if self._subscribers:
            self._moved.set()

    def close(self) -> None:
        """End all subscriptions, because the server stops."""
        self._closed = True
        for subscriber in self._subscribers:
            subscriber.end()
        if self._pump is not None:
            self._pump.cancel()

    def stream(
        self,
        address: str,
        after: EpochMark | None,
        wanted: EventFilter,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> Response:
        """Return an answer that goes on until the client leaves.

        Args:
            address: Address of the client (`remoting.codec.bounds.address_of`).
            after: The last epoch that the client knows; None for the newest.
            wanted: Filter of the epochs that the client gets.
            may_go_on: Called before each send, and at least every `QUIET_S`. False ends the answer.

        Raises:
            Problem: There are too many subscribers.
        """
        subscriber = _Subscriber(address, may_go_on)
        # If many come together, each counts at once, before the next one is admitted.
        if self._closed or not self._subscribers.admit(subscriber, address):
            raise busy("too many subscribers: try again")
        if self._pump is None or self._pump.done():
            self._ring.clear()
            self._at = self._newest()
            self._pump = asyncio.create_task(self._run())
        stream = _Stream(self, subscriber, after, wanted)
        weakref.finalize(stream, self._forget, subscriber)  # if it is never served
        return stream

    async def serve(self, subscriber: _Subscriber, after: EpochMark | None, wanted: EventFilter, send: Send) -> None:
        """Send events until the subscriber is ended."""
        last = self._newest() if after is None else after
        is_proven = after is None or not after.digest
        try:
            await _write(send, f"retry: {_RETRY_MS}\nid: {last}\n\n".encode())
            while subscriber.goes_on():
                up_to = self._at
                # `last` is newer if another lake replaced this one. Until that is noticed, `up_to` is of the old lake.
                if (
                    last.epoch < up_to.epoch
                    or (last.epoch == up_to.epoch and not last.may_be(up_to))
                    or last.epoch > max(up_to.epoch, self._newest().epoch)
                ):
                    text = await self._between(last, up_to, wanted, subscriber.address, is_proven=is_proven)
                    last, is_proven = up_to, True
                    if text:
                        await _write(send, text)
                    continue
                await subscriber.wait()
                if last.may_be(self._at) and subscriber.goes_on():
                    last, is_proven = self._at, True
                    await _write(send, f"id: {last}\n\n".encode())
        finally:
            self._forget(subscriber)

    def _forget(self, subscriber: _Subscriber) -> None:
        self._subscribers.discard(subscriber)
        if not self._subscribers and self._pump is not None:
            self._pump.cancel()
            self._pump = None

    async def _between(
        self, last: EpochMark, up_to: EpochMark, wanted: EventFilter, address: str, *, is_proven: bool
    ) -> bytes:
        """Return the text for a subscriber that knows all up to an epoch. Empty if nothing passes its filter."""
        ready: list[_Ready] | None
        if last.epoch >= up_to.epoch:
            ready = None  # it is of a lake that was replaced
        elif is_proven and self._ring and self._ring[0].event.epoch <= last.epoch + 1:
            newest = takewhile(lambda each: each.event.epoch > last.epoch, reversed(self._ring))
            ready = [each for each in newest if each.event.epoch <= up_to.epoch][::-1]
        else:
            ready = await self._read(last, up_to, address)
        if ready is None:
            body = _encode({"epoch": up_to.epoch, "after": last.epoch})
            return b"event: reset\nid: %b\ndata: %b\n\n" % (str(up_to).encode(), body)
        return b"".join(each.text for each in ready if wanted.passes(each.event))

    async def _read(self, last: EpochMark, up_to: EpochMark, address: str = "") -> list[_Ready] | None:
        if last.epoch == up_to.epoch:
            return [] if last.may_be(up_to) else None
        return await self._history.read(lambda history: _ready(history, last, up_to.epoch), (address, "events"))

    async def _run(self) -> None:
        """Read each new epoch once and wake all subscribers. Without news, wake them every `QUIET_S`."""
        loop = asyncio.get_running_loop()
        while True:
            timer = loop.call_later(QUIET_S, self._moved.set)
            try:
                await self._moved.wait()
            finally:
                timer.cancel()
            self._moved.clear()
            newest = self._newest()
            if newest != self._at:
                try:
                    found = None if newest.epoch < self._at.epoch else await self._read(self._at, newest)
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # deltalake's panics do not derive from Exception
                    is_defect = not isinstance(error, RoutelakeError)
                    _log.warning(
                        "cannot read epochs for event subscribers; retrying", error=str(error), exc_info=is_defect
                    )
                    loop.call_later(_RETRY_S, self._moved.set)
                    continue
                if found is None:
                    self._ring.clear()
                else:
                    self._ring.extend(found)
                self._at = newest
            for number, subscriber in enumerate(list(self._subscribers), 1):
                subscriber.wake()
                if not number % _AT_ONCE:
                    await asyncio.sleep(0)


class _Stream(Response):
    """Answer that sends by itself: a generator and a task group for each of a thousand subscribers cost too much."""

    def __init__(self, hub: EventHub, subscriber: _Subscriber, after: EpochMark | None, wanted: EventFilter) -> None:
        super().__init__(None, 200, _HEADERS, "text/event-stream")
        del self.headers["content-length"]
        self._serve: Callable[[Send], Awaitable[None]] = partial(hub.serve, subscriber, after, wanted)
        self._subscriber = subscriber

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head, the events and the end."""

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._subscriber.end()

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        gone = asyncio.create_task(until_gone())
        try:
            await self._serve(send)
        except RoutelakeError as error:  # the status line is sent already, and the client will reconnect
            _log.info("event stream closed", error=str(error))
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b""})


async def _write(send: Send, text: bytes) -> None:
    await send({"type": "http.response.body", "body": text, "more_body": True})


def _ready(history: History, last: EpochMark, up_to: int) -> list[_Ready] | None:
    """Do the work of `epoch_events`, and encode the events. The names of 100,000 topics take a tenth of a second."""
    found = epoch_events(history, last, up_to)
    return None if found is None else [_Ready(event, _text(event)) for event in found]


def _text(event: EpochEvent) -> bytes:
    data: dict[str, Any] = {
        "epoch": event.epoch,
        "eventTime": rfc3339(event.event_time),
        "offset": event.offset,
        "topicCount": len(event.topics),
        "topics": sorted(event.topics)[:_NAMES],
        "brokerCount": len(event.brokers),
        "brokers": sorted(event.brokers)[:_NAMES],
    }
    return b"event: epoch\nid: %b\ndata: %b\n\n" % (str(event.mark).encode(), _encode(data))
