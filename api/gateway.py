"""The gateway: one face for every door (remoting, HTTP).

Writes: an event is appended to the log; what changes something is answered when its outcome is visible in this
gateway's own view, or after a bounded wait as durable. Reads: from the view, which the follower moves.

A registration that would change nothing is recognised here by the view (`reflected`), answered as soon as it is
durable, and written without its topics: they are what the fold already has.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final, ParamSpec, TypeVar

import msgspec

from api.log_writer import Appender, LogWriter
from api.settings.gateway import GatewaySettings, with_stored
from api.view.answers import RouteAnswers
from api.view.follower import Follower
from api.view.reflected import reflected
from api.view.rows import Outcome
from api.view.snapshot import RouteView
from pipelines.log.base import LOST_LOG, Appended, LogEnd
from schemas.errors import SetupError, UnavailableError
from schemas.events import AnyEvent, EventEncoder, RegisterBroker, encode, routing_key
from schemas.outcomes import ACCEPTED, APPLIED, QUARANTINED, UNCHANGED
from schemas.tables import FOLD_STATUS_FILE

P = ParamSpec("P")
T = TypeVar("T")

_OUTCOMES_KEPT: Final = 20_000
_REGISTERED_KEPT: Final = 100_000
_PRUNE_WAITERS: Final = 1_000
"""From here on, waiters that have given up are dropped before another is added."""
_BIG_REGISTRATION_TOPICS: Final = 500
"""From here on, encoding takes long enough to be done off the event loop."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a write.

    ``offset`` is its log offset, the token a read can wait for. ``visible`` tells whether this gateway's view holds
    its effect; False after the bounded wait means durable, not yet folded. ``outcome`` is the fold's word on admin
    commands and refusals, when visible. ``unchanged``: a registration that said what the view showed before.
    """

    offset: int
    event_time_ms: int
    visible: bool
    outcome: Outcome | None = None
    unchanged: bool = False

    @property
    def is_quarantined(self) -> bool:
        """Whether a rule of the fold failed on it: quarantineTable has it, and nothing was changed."""
        return self.outcome is not None and self.outcome.reason == QUARANTINED

    def verdict(self, otherwise: str | None = None) -> str:
        """What became of the write: the fold's word; if it is visible without one, ``otherwise``; else accepted.

        Without ``otherwise`` that is applied, or unchanged.
        """
        if not self.visible:
            return ACCEPTED
        if self.outcome is not None:
            return self.outcome.outcome
        return otherwise or (UNCHANGED if self.unchanged else APPLIED)


@dataclass(frozen=True, slots=True)
class FoldStatus:
    """What the fold last said of itself (its status file)."""

    epoch: int
    log_offset: int
    time_ms: int


class Gateway:
    """Writes to the log, reads from the view. Lives on one event loop; `start` and `stop` run there."""

    def __init__(self, settings: GatewaySettings, appender: Appender) -> None:
        self.settings = settings
        self._started_with = settings
        self._followers: list[Callable[[GatewaySettings], None]] = []
        self._view_followers: list[Callable[[RouteView, RouteView], None]] = []
        self._endings: list[Callable[[], None]] = []
        self._gate_opens_s = 0.0
        self._registered: dict[tuple[str, str, str], str] = {}
        self._appender = appender
        self._writer = LogWriter(appender, settings.gateway_id, clock_interval_s=settings.clock_interval_s)
        self._follower = Follower(str(settings.lake_dir), self._on_view_thread, settings.poll_s)
        self._view = RouteView.empty()
        self._outcomes: OrderedDict[int, Outcome] = OrderedDict()
        self._waiters: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._predicates: dict[int, tuple[Callable[[RouteView], bool], asyncio.Future[bool]]] = {}
        self._waiting = asyncio.Event()
        self._serial = count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._status_task: asyncio.Task[None] | None = None
        self._fold_status: FoldStatus | None = None
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="aside")
        self._encoder = EventEncoder()
        """For the event loop's thread."""
        self.started_offset = -1
        self.started_s = time.monotonic()

    # --- life ---

    async def start(self) -> None:
        """Load the view, then open the log for writing.

        Raises:
            UnavailableError: the log cannot be written, or the tables cannot be read.
            SetupError: neither is ours, or they do not belong together.
        """
        self._loop = asyncio.get_running_loop()
        end, failed = await asyncio.gather(
            self._appender.open(), asyncio.to_thread(self._first_view), return_exceptions=True
        )
        if isinstance(end, BaseException):
            raise end
        if failed is not None:
            raise failed
        self._check_log(end)
        self._take_settings()
        if self.settings.need_wait_for_service and not self._view.groups:
            self._gate_opens_s = time.monotonic() + self.settings.wait_seconds_for_service
        self.started_offset = await self._writer.start()
        self._status_task = asyncio.create_task(self._watch_fold())

    async def stop(self) -> None:
        """Write what is queued and stop following."""
        if self._status_task is not None:
            self._status_task.cancel()
        await self._writer.stop()
        await asyncio.to_thread(self._follower.stop)
        self._aside.shutdown(wait=False, cancel_futures=True)
        for end in self._endings:
            await asyncio.to_thread(end)

    def on_stop(self, end: Callable[[], None]) -> None:
        """Call back at the end of `stop`, in some thread."""
        self._endings.append(end)

    @property
    def view(self) -> RouteView:
        """The newest view."""
        return self._view

    @property
    def follower(self) -> Follower:
        """For its status."""
        return self._follower

    @property
    def log_failing(self) -> bool:
        """Whether the event log refuses appends at the moment."""
        return self._writer.failing

    @property
    def fold_status(self) -> FoldStatus | None:
        """What the fold last said of itself; None before it ever ran on this lake."""
        return self._fold_status

    @property
    def folded_offset(self) -> int:
        """Every effect up to this log offset is in the view; quiet stretches without an epoch count."""
        status = self._fold_status
        if status is not None and self._view.epoch >= status.epoch:
            return max(self._view.log_offset, status.log_offset)
        return self._view.log_offset

    # --- settings ---

    @property
    def is_ready_for_service(self) -> bool:
        """Whether routes are answered (NamesrvConfig.needWaitForService, waitSecondsForService).

        A NameServer that starts knows nothing and may be told to wait for the brokers' registrations. A gateway waits
        only if the lake holds no broker when it starts; otherwise the routes are there.
        """
        return not self._gate_opens_s or time.monotonic() >= self._gate_opens_s

    def follow_settings(self, apply: Callable[[GatewaySettings], None]) -> None:
        """Call back with the settings: now, and whenever UPDATE_NAMESRV_CONFIG changed one."""
        self._followers.append(apply)
        apply(self.settings)

    def follow_views(self, moved: Callable[[RouteView, RouteView], None]) -> None:
        """Call back with the view before and after, on the event loop, whenever it has moved."""
        self._view_followers.append(moved)

    def _take_settings(self) -> None:
        self.settings = with_stored(self._started_with, self._view.namesrv_config)
        for apply in self._followers:
            apply(self.settings)

    # --- writes ---

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do long work off the event loop. One at a time: more threads would only take the processor from the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._aside, partial(work, *args, **kwargs))

    async def append(self, event: AnyEvent) -> Appended:
        """Append one event; returns when it is durable.

        Raises:
            UnavailableError: not accepted.
            BadRequestError: too large for the log.
        """
        if isinstance(event, RegisterBroker) and len(event.topic_config_table or ()) > _BIG_REGISTRATION_TOPICS:
            payload = await self.aside(encode, event)
        else:
            payload = self._encoder.encode(event)
        return await self.append_encoded(routing_key(event), payload)

    async def append_encoded(self, key: str, payload: bytes) -> Appended:
        """`append` for an event that was encoded before.

        Raises:
            UnavailableError: not accepted.
            BadRequestError: too large for the log.
        """
        return await self._writer.submit(key, payload)

    async def register(self, event: RegisterBroker, payload: bytes | None = None) -> Receipt:
        """REGISTER_BROKER: durable when it changes nothing, else visible (or durable after the bounded wait).

        Args:
            event: The registration.
            payload: It, encoded with its topics, if that was done before. The event may lack them then.

        Topics are left out only if this broker's last registration here brought the same ones. The view alone cannot
        tell: the parts of a split registration take turns, and what the fold last saw is in the view seconds later.
        With deleteTopicWithBrokerRegistration each registration goes down in full and is answered when it is folded:
        it deletes what it leaves out, be it the same as before, and the fold needs its topics for that.
        """
        assert payload is not None or event.topic_config_table is not None
        broker = (event.cluster_name, event.broker_name, event.broker_addr)
        repeated = self._registered.get(broker) == event.topic_config_digest
        if len(self._registered) >= _REGISTERED_KEPT:
            self._registered.clear()
        self._registered[broker] = event.topic_config_digest
        unchanged = reflected(self._view, event)
        if unchanged and repeated:
            appended = await self.append(msgspec.structs.replace(event, topic_config_table=None))
        elif payload is None:
            appended = await self.append(event)
        else:
            appended = await self.append_encoded(routing_key(event), payload)
        if unchanged:
            return Receipt(appended.offset, appended.event_time_ms, visible=True, unchanged=True)
        # Another gateway may have brought the same registration: then no epoch of our own need come.
        return await self._visible(appended, lambda view: reflected(view, event))

    async def repeat(self, event: RegisterBroker, key: str, payload: bytes) -> Receipt | None:
        """`register` for one that this gateway has had before, word for word.

        Args:
            event: The registration, without its topics.
            key: Its routing key.
            payload: It, encoded.

        Returns:
            None when it may change something: then it has to come in full.

        Raises:
            UnavailableError: not accepted.
        """
        broker = (event.cluster_name, event.broker_name, event.broker_addr)
        if self._registered.get(broker) != event.topic_config_digest or not reflected(self._view, event):
            return None
        appended = await self.append_encoded(key, payload)
        return Receipt(appended.offset, appended.event_time_ms, visible=True, unchanged=True)

    async def command(self, event: AnyEvent) -> Receipt:
        """An admin command, or an unregistration: answered when its outcome is visible."""
        return await self._visible(await self.append(event), None)

    async def heartbeat(self, event: AnyEvent) -> Receipt:
        """An event without an outcome of its own: answered when durable."""
        appended = await self.append(event)
        return Receipt(appended.offset, appended.event_time_ms, visible=True)

    async def wait_for(self, offset: int, timeout_s: float) -> bool:
        """Wait until the view holds everything up to a log offset. False when it does not in time."""
        if self.folded_offset >= offset:
            return True
        assert self._loop is not None
        self._writer.nudge()
        return await _bounded(self._waiter(offset, next(self._serial)), timeout_s)

    async def _visible(self, appended: Appended, reflects: Callable[[RouteView], bool] | None) -> Receipt:
        assert self._loop is not None
        offset = appended.offset
        if self.folded_offset < offset:
            serial = next(self._serial)
            future = self._waiter(offset, serial)
            if reflects is not None:
                self._predicates[serial] = (reflects, future)
            try:
                visible = await _bounded(future, self.settings.visible_wait_s)
            finally:
                self._predicates.pop(serial, None)
            if not visible:
                return Receipt(offset, appended.event_time_ms, visible=False)
        return Receipt(offset, appended.event_time_ms, visible=True, outcome=self._outcomes.get(offset))

    def _waiter(self, offset: int, serial: int) -> asyncio.Future[bool]:
        """A future that is done when everything up to a log offset is visible."""
        assert self._loop is not None
        if len(self._waiters) >= _PRUNE_WAITERS:
            self._waiters = [waiter for waiter in self._waiters if not waiter[2].done()]
            heapq.heapify(self._waiters)
        future: asyncio.Future[bool] = self._loop.create_future()
        heapq.heappush(self._waiters, (offset, serial, future))
        self._waiting.set()
        return future

    # --- the view moves ---

    def _first_view(self) -> None:
        """Show the last committed routes before the first connection is accepted.

        Without them every topic would be answered as one that does not exist, so a lake that is there but cannot be
        read keeps a gateway from starting. One that is not there yet is empty.
        """
        try:
            self._follower.poll()
        except SetupError:
            raise
        except Exception as error:
            raise UnavailableError(f"the tables in {self.settings.lake_dir} cannot be read: {error}") from error
        self._view = self._follower.view
        self._follower.start()

    def _check_log(self, end: LogEnd) -> None:
        """Refuse a log that ends before the tables do: a write to it would count as visible before it is folded."""
        last_offset = end.next_offset - 1
        if last_offset < self._view.log_offset:
            raise SetupError(
                f"the event log ends at offset {last_offset}, but the tables in {self.settings.lake_dir} hold what "
                f"came up to offset {self._view.log_offset}: records were cut off, or it is another log. {LOST_LOG}",
                last_offset=last_offset,
                folded_offset=self._view.log_offset,
            )

    def _on_view_thread(self, view: RouteView, outcomes: list[Outcome]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._on_view, view, outcomes)

    def _on_view(self, view: RouteView, outcomes: list[Outcome]) -> None:
        previous, self._view = self._view, view
        if view.namesrv_config != previous.namesrv_config:
            self._take_settings()
        for outcome in outcomes:
            self._outcomes[outcome.offset] = outcome
        while len(self._outcomes) > _OUTCOMES_KEPT:
            self._outcomes.popitem(last=False)
        self._wake_waiters()
        for reflects, future in list(self._predicates.values()):
            if not future.done() and reflects(view):
                future.set_result(True)
        for moved in self._view_followers:
            moved(previous, view)

    def _wake_waiters(self) -> None:
        folded = self.folded_offset
        while self._waiters and (self._waiters[0][0] <= folded or self._waiters[0][2].done()):
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(True)

    async def _watch_fold(self) -> None:
        """Read the fold's status file: how far it got when nothing changed."""
        path = self.settings.lake_dir / FOLD_STATUS_FILE
        seen: int | None = None
        while True:
            try:
                stamp = path.stat().st_mtime_ns
                if stamp != seen:
                    found = json.loads(path.read_bytes())
                    self._fold_status = FoldStatus(found["epoch"], found["logOffset"], found["timeMillis"])
                    seen = stamp
                    self._wake_waiters()
            except (OSError, ValueError, KeyError):
                pass
            if self._waiters:
                await asyncio.sleep(0.02)
                continue
            self._waiting.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._waiting.wait(), 0.5)


def follow_switches(gateway: Gateway, answers: RouteAnswers) -> None:
    """Let encoded answers follow the switches they depend on."""
    gateway.follow_settings(
        lambda settings: answers.switch(
            support_acting_master=settings.support_acting_master, order_message_enable=settings.order_message_enable
        )
    )


async def _bounded(future: asyncio.Future[bool], timeout_s: float) -> bool:
    try:
        return await asyncio.wait_for(future, timeout_s)
    except TimeoutError:
        return False


__all__ = ["Gateway", "GatewaySettings", "Receipt", "follow_switches"]
