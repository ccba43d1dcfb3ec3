# SPDX-License-Identifier: Apache-2.0
"""The gateway, which both listeners (remoting, HTTP) share.

Writes: an event is appended to the log; what changes something is answered when its outcome is visible in this
gateway's own view, or after a bounded wait as durable. Reads: from the view, which the follower moves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, ParamSpec, TypeVar

from api.fold_status import FoldReports
from api.group_commit import GroupCommit, LogClient
from api.head.checks import evidence_file
from api.head.head import Head
from api.settings.gateway import GatewaySettings, with_stored
from api.view.follower import Follower
from api.view.rows import Changes
from api.view.snapshot import RouteView
from api.visibility import Visibility
from lake.commits import CommandOutcome
from lake.damage import DamagedTableError, check_names
from pipelines.log.base import Appended, LogReader, check_end
from schemas.errors import SetupError, TooLargeError, UnavailableError, one_line
from schemas.events import AnyEvent, EventEncoder, PutKvConfig, routing_key
from schemas.kv import entry_bytes, table_bytes
from schemas.limits import MAX_KV_BYTES
from schemas.outcomes import ACCEPTED, APPLIED, QUARANTINED, UNCHANGED
from schemas.tables import ROUTE_COMMIT_TABLE

P = ParamSpec("P")
T = TypeVar("T")

KV_FULL: Final = f"the KV configuration would take more than {MAX_KV_BYTES} bytes: delete entries first"
"""For whoever put an entry."""


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
    outcome: CommandOutcome | None = None
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


class Gateway:
    """Writes to the log, reads from the view. Lives on one event loop; `start` and `stop` run there."""

    def __init__(
        self, settings: GatewaySettings, log_client: LogClient, open_reader: Callable[[], LogReader] | None = None
    ) -> None:
        """Nothing is opened before `start`.

        Args:
            settings: Its own.
            log_client: Writes its events.
            open_reader: Opens the log for reading: then answers are from its head, else from the latest epoch.
        """
        self.settings = settings
        self._started_with = settings
        self._followers: list[Callable[[GatewaySettings], None]] = []
        self._view_followers: list[Callable[[RouteView, RouteView], None]] = []
        self._endings: list[Callable[[], None]] = []
        self._gate_opens_s = 0.0
        self._log_client = log_client
        evidence = evidence_file(settings.lake_dir, settings.gateway_id)
        self._head = None if open_reader is None else Head(open_reader, self._on_view_thread, evidence=evidence)
        self._writer = GroupCommit(
            log_client,
            settings.gateway_id,
            clock_interval_s=settings.clock_interval_s,
            on_written=None if self._head is None else self._head.feed,
        )
        self._follower = Follower(
            str(settings.lake_dir),
            self._on_view_thread if self._head is None else self._on_epoch_thread,
            settings.poll_s,
            begin_exact=self._head is not None,
            on_changes=self._on_changes_thread,
        )
        self._view = RouteView.empty()
        self._kv_counted: tuple[object, int] = (None, 0)
        """The KV configuration of a view, and what it counts."""
        self._visibility = Visibility()
        self.fold = FoldReports(settings.lake_dir)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fold_task: asyncio.Task[None] | None = None
        self._offload = ThreadPoolExecutor(1, thread_name_prefix="offload")
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
            self._log_client.open(), asyncio.to_thread(self._first_view), return_exceptions=True
        )
        try:
            if isinstance(end, BaseException):
                raise end
            if failed is not None:
                raise failed
            check_end(end, self._follower.newest_offset)
            if self._head is not None:
                self._view = await asyncio.to_thread(self._head.begin, self._view)
                self._head.start()
            self._take_settings()
            if self.settings.need_wait_for_service and not self._view.groups:
                self._gate_opens_s = time.monotonic() + self.settings.wait_seconds_for_service
            self.started_offset = await self._writer.start()
        except BaseException:
            await asyncio.to_thread(self._follower.stop)
            raise
        self._fold_task = asyncio.create_task(self.fold.follow(self._fold_moved, self._visibility.awaited))

    async def stop(self) -> None:
        """Write what is queued and stop following."""
        if self._fold_task is not None:
            self._fold_task.cancel()
        await self._writer.stop()
        if self._head is not None:
            await asyncio.to_thread(self._head.stop)
        await asyncio.to_thread(self._follower.stop)
        self._offload.shutdown(wait=False, cancel_futures=True)
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
    def reads_head(self) -> bool:
        """Whether answers are from the head of the log, and not from the latest epoch."""
        return self._head is not None

    @property
    def head(self) -> Head | None:
        """For its status; None where answers are from the latest epoch alone."""
        return self._head

    @property
    def is_at_head(self) -> bool:
        """Whether answers are from the head at the moment; else they follow the tables alone."""
        return self._head is not None and self._head.aside is None

    @property
    def folded_offset(self) -> int:
        """Every effect up to this log offset is in the view; quiet stretches without an epoch count."""
        status = None if self.is_at_head else self.fold.status
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

    async def offload(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do long work off the event loop. One at a time: more threads would only take the processor from the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._offload, partial(work, *args, **kwargs))

    async def append(self, event: AnyEvent) -> Appended:
        """Append one event; returns when it is durable.

        Raises:
            UnavailableError: not accepted.
            InDoubtError: accepted or not, nobody knows.
            TooLargeError: too large for the log.
        """
        return await self.append_encoded(routing_key(event), self._encoder.encode(event))

    async def append_encoded(self, key: str, payload: bytes) -> Appended:
        """`append` for an event that was encoded before.

        Raises:
            UnavailableError: not accepted.
            InDoubtError: accepted or not, nobody knows.
            TooLargeError: too large for the log.
        """
        return await self._writer.submit(key, payload)

    async def command(self, event: AnyEvent) -> Receipt:
        """An admin command, or an unregistration: answered when its outcome is visible.

        Raises:
            UnavailableError: not accepted.
            InDoubtError: accepted or not, nobody knows.
            TooLargeError: too large for the log, or for the KV configuration.
        """
        if isinstance(event, PutKvConfig):
            self._check_kv_room(event)
        return await self.visible(await self.append(event))

    def _check_kv_room(self, event: PutKvConfig) -> None:
        """Refuse what the fold would reject by what is visible; what is on its way, the fold alone knows."""
        kv = self._view.kv
        if self._kv_counted[0] is not kv:
            self._kv_counted = (kv, table_bytes(kv))
        count = entry_bytes(event.namespace, event.key, event.value)
        entries = kv.get(event.namespace, {})
        if event.key in entries:
            count -= entry_bytes(event.namespace, event.key, entries[event.key])
        if count > 0 and self._kv_counted[1] + count > MAX_KV_BYTES:
            raise TooLargeError(KV_FULL, limit_bytes=MAX_KV_BYTES)

    async def heartbeat(self, event: AnyEvent) -> Receipt:
        """An event without an outcome of its own: answered when durable."""
        appended = await self.append(event)
        return Receipt(appended.offset, appended.event_time_ms, visible=True)

    async def wait_for(self, offset: int, timeout_s: float) -> bool:
        """Wait until the view holds everything up to a log offset. False when it does not in time."""
        if self.folded_offset >= offset:
            return True
        self._writer.nudge()
        return await self._visibility.wait(offset, timeout_s)

    async def visible(self, appended: Appended, shows: Callable[[RouteView], bool] | None = None) -> Receipt:
        """Wait until an event's effect is visible, for a bounded time.

        Args:
            appended: Where it is on the log.
            shows: Of a view: whether it shows the effect already, whichever event brought it.
        """
        offset, time_ms = appended.offset, appended.event_time_ms
        if self.folded_offset < offset and not await self._visibility.wait(offset, self.settings.visible_wait_s, shows):
            return Receipt(offset, time_ms, visible=False)
        return Receipt(offset, time_ms, visible=True, outcome=self._visibility.outcome(offset))

    # --- the view moves ---

    def _first_view(self) -> None:
        """Show the last committed routes before the first connection is accepted.

        Without them every topic would be answered as one that does not exist, so a lake that is there but cannot be
        read keeps a gateway from starting. One that is not there yet is empty.
        """
        commits = self.settings.lake_dir / ROUTE_COMMIT_TABLE.name
        try:
            check_names(commits)  # once: the follower takes a commit that is missing for the end
            self._follower.poll()
        except SetupError:
            raise
        except DamagedTableError as error:
            raise SetupError(f"the tables cannot be read: {error}. Restore the lake from a backup.") from error
        except BaseException as error:  # deltalake's panics are no Exception
            message = f"the tables in {self.settings.lake_dir} cannot be read: {one_line(error)}"
            raise UnavailableError(message) from error
        self._view = self._follower.view
        self._follower.start()

    def _on_epoch_thread(self, view: RouteView, outcomes: list[CommandOutcome]) -> None:
        assert self._head is not None
        self._head.epoch_moved(view, outcomes)

    def _on_changes_thread(self, changes: Changes | None) -> None:
        if self._head is not None:
            self._head.tables_change(changes)

    def _on_view_thread(self, view: RouteView, outcomes: list[CommandOutcome]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._on_view, view, outcomes)

    def _on_view(self, view: RouteView, outcomes: list[CommandOutcome]) -> None:
        previous, self._view = self._view, view
        if view.namesrv_config != previous.namesrv_config:
            self._take_settings()
        self._visibility.view_moved(view, outcomes, self.folded_offset)
        for moved in self._view_followers:
            moved(previous, view)

    def _fold_moved(self) -> None:
        self._visibility.folded(self.folded_offset)


__all__ = ["Gateway", "GatewaySettings", "Receipt"]
