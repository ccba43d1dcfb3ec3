# SPDX-License-Identifier: Apache-2.0
"""Gateway: writes to the event log and reads of the two views, for remoting and HTTP alike.

A write is appended to the event log, and answered with its result in the live view. A read is answered from the live
view or the committed view.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from api.gateway.fold_status import FoldStatusReader
from api.gateway.follower import Follower
from api.gateway.self_preservation import SelfPreservation
from api.gateway.watched_view import WatchedView
from api.live_view.check_results import evidence_file
from api.live_view.replica import LiveReplica
from api.settings.gateway import GatewaySettings, Reads, with_stored
from eventlog.base import Appended, LogReader, check_end
from eventlog.group_commit import GroupCommit, LogClient, Then
from lake.delta.log import DamagedTableError, check_names
from lake.write.synced import unsynced_damage
from nameserver.view.snapshot import RouteView
from runtime.supervised_tasks import critical_task
from runtime.version import PROGRAM
from schemas.errors import InDoubtError, SetupError, UnavailableError, one_line
from schemas.events import AnyEvent, BrokerHeartbeat, EventEncoder, RegisterBroker, routing_key
from schemas.limits import MAX_KV_BYTES
from schemas.outcomes import ACCEPTED, QUARANTINED, UNCHANGED
from schemas.route_commit import CommandOutcome
from schemas.tables import ROUTE_COMMIT_TABLE
from security.admission.admission import Admission, Sender
from security.admission.quotas import FREE, Charge, GatewayQuotas

P = ParamSpec("P")
T = TypeVar("T")

KV_FULL: Final = f"the KV configuration would take more than {MAX_KV_BYTES} bytes: delete entries first"
"""Answer to a KV entry that does not fit."""

_OUTCOMES_KEPT: Final = 20_000
_OUTCOMES_S: Final = 1.0
"""Minimum time that outcomes are kept, in seconds, also if one view brings more than `_OUTCOMES_KEPT`. The writer of an
event asks for its outcome shortly after the view has moved."""

_FALLBACK_WAIT_S: Final = 2.0
"""Wait for an outcome in fallback mode, in seconds. Only an epoch brings outcomes, and an event that changes nothing
may cause no epoch."""


class Receipt(NamedTuple):
    """Receipt of a write.

    Attributes:
        offset: Its log offset, the token that a read can wait for.
        event_time_ms: Its event time, in milliseconds.
        verdict: Applied, unchanged or rejected. Accepted: the live view did not have the event in time. The event is
            durable and will be applied.
        reason: Reason why the write was rejected. None if it was not rejected.
        result: Numbers that the state machine has counted. None without numbers.
    """

    offset: int
    event_time_ms: int
    verdict: str = ACCEPTED
    reason: str | None = None
    result: dict[str, Any] | None = None

    @property
    def visible(self) -> bool:
        """Return whether the live view of this gateway shows the write."""
        return self.verdict != ACCEPTED

    @property
    def is_quarantined(self) -> bool:
        """Return whether a rule failed on the event. Then the event is in quarantineTable and has changed nothing."""
        return self.reason == QUARANTINED


class Written(NamedTuple):
    """An event that was admitted.

    Attributes:
        event: The event. A registration may lack its topics.
        appended: Place of the event on the event log. None: a heartbeat that is answered without being written.
        charge: Charge of its sender.
    """

    event: AnyEvent
    appended: Appended | None
    charge: Charge = FREE


class Gateway:
    """Writes to the event log and reads from the views. Used on one event loop, also for `start` and `stop`.

    Attributes:
        live_view: The latest epoch and the events after it. In fallback mode, the latest epoch
            alone (`api.live_view.replica`).
        committed: View of the latest epoch.
        shown: View that answers requests that name none.
        replica: Thread that makes `live_view`.
        follower: Thread that makes `committed`.
        fold: Status and last failure of the fold.
        preservation: Decides whether expiry pauses.
        admission: Decides which requests and events are accepted.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        log_client: LogClient,
        open_reader: Callable[[], LogReader],
        admission: Admission | None = None,
    ) -> None:
        """Prepare the gateway, and open nothing before `start`.

        Args:
            settings: Settings of the gateway.
            log_client: Writer of its events.
            open_reader: Opens the log for reading.
            admission: Admission of requests and events. None: the default quotas, and no accounts.
        """
        self.settings = settings
        self.admission = admission or Admission()
        self._started_with = settings
        self._followers: list[Callable[[GatewaySettings], None]] = []
        self._endings: list[Callable[[], None]] = []
        self._gate_opens_s = 0.0
        self.live_view, self.committed = WatchedView(), WatchedView()
        self.shown = self.reads(settings.reads)
        self._log_client = log_client
        evidence = evidence_file(settings.lake_dir, settings.gateway_id)
        self.replica = LiveReplica(
            open_reader,
            self._on_live_view_thread,
            evidence=evidence,
            gateway_id=settings.gateway_id,
        )
        self._writer = GroupCommit(
            log_client, settings.gateway_id, clock_interval_s=settings.clock_interval_s, on_written=self.replica.feed
        )
        self.follower = Follower(settings.lake, self._on_epoch_thread, settings.poll_s, begin_exact=True)
        self._outcomes: OrderedDict[int, CommandOutcome] = OrderedDict()
        """Outcomes of the newest events by log offset."""
        self._forgetting: asyncio.TimerHandle | None = None
        self.fold = FoldStatusReader(settings.lake)
        self.preservation = SelfPreservation(
            lambda: self.settings,
            lambda: None if self.replica.fallback_reason else self.live_view.view,
            partial(self.propose, sender=None),
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fold_task: asyncio.Task[None] | None = None
        self._offload = ThreadPoolExecutor(1, thread_name_prefix="offload")
        self._encoder = EventEncoder()
        """For the event loop's thread."""
        self.lineage = ""
        """Eight digits that identify the log (`EventLog.lineage`). Tokens of another log have other digits."""
        self.started_offset = -1
        self.started_s = time.monotonic()

    # --- life ---

    async def start(self) -> None:
        """Load the latest epoch, apply the events after it, then open the event log for writing.

        Raises:
            UnavailableError: The log cannot be used, or the tables cannot be read.
            SetupError: The log or the tables are not of routelake, or they do not belong together.
        """
        self._loop = asyncio.get_running_loop()
        opened, base = await asyncio.gather(
            self._log_client.open(), asyncio.to_thread(self._first_view), return_exceptions=True
        )
        try:
            if isinstance(opened, BaseException):
                raise opened
            if opened:
                self.lineage = hashlib.sha256(opened.encode()).hexdigest()[:8]
            if isinstance(base, BaseException):
                raise base
            # In this order, because another gateway may append, and the fold may commit, at any time.
            folded_offset = self.follower.newest_offset
            check_end(await self._log_client.end(), folded_offset)
            view = await asyncio.to_thread(self.replica.begin, base)
            self._on_live_view(view, view.log_offset, [])
            self.replica.start()
            self._take_settings()
            if self.settings.need_wait_for_service and not self.view.groups:
                self._gate_opens_s = time.monotonic() + self.settings.wait_seconds_for_service
            self.started_offset = await self._writer.start()
        except BaseException:
            await asyncio.to_thread(self.follower.stop)
            await asyncio.to_thread(self.replica.stop)
            raise
        self._fold_task = critical_task(asyncio.create_task(self.fold.follow(self._fold_moved)), "status of the fold")
        self.preservation.start()

    async def stop(self) -> None:
        """Write what is queued, and stop following."""
        if self._fold_task is not None:
            self._fold_task.cancel()
        self.preservation.stop()
        await self._writer.stop()
        await asyncio.to_thread(self.replica.stop)
        await asyncio.to_thread(self.follower.stop)
        self._offload.shutdown(wait=False, cancel_futures=True)
        for end in self._endings:
            await asyncio.to_thread(end)

    def on_stop(self, end: Callable[[], None]) -> None:
        """Call back at the end of `stop`, in a thread of its own."""
        self._endings.append(end)

    @property
    def view(self) -> RouteView:
        """View that answers requests that name none."""
        return self.shown.view

    def reads(self, chosen: Reads) -> WatchedView:
        """Return the view that a request asks for."""
        return self.live_view if chosen is Reads.LIVE else self.committed

    @property
    def quotas(self) -> GatewayQuotas:
        """The quotas of `admission`."""
        return self.admission.quotas

    @property
    def log_failing(self) -> bool:
        """Return whether the event log refuses appends now."""
        return self._writer.failing

    @property
    def clock_problem(self) -> str | None:
        """Reason why event times are refused. None while this machine's clock is trusted."""
        return self._writer.clock_problem

    # --- settings ---

    @property
    def is_ready_for_service(self) -> bool:
        """Return whether routes are answered (NamesrvConfig.needWaitForService, waitSecondsForService).

        A NameServer starts without routes, and an operator may configure it to wait for registrations. A gateway waits
        only if the lake has no broker at the start. Otherwise it has the routes already.
        """
        return not self._gate_opens_s or time.monotonic() >= self._gate_opens_s

    def follow_settings(self, apply: Callable[[GatewaySettings], None]) -> None:
        """Call back with the settings now, and after each change by UPDATE_NAMESRV_CONFIG."""
        self._followers.append(apply)
        apply(self.settings)

    def _take_settings(self) -> None:
        self.settings = with_stored(self._started_with, self.live_view.view.namesrv_config)
        for apply in self._followers:
            apply(self.settings)

    # --- writes ---

    async def offload(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do long work off the event loop, one call at a time. More threads would only take the processor from it."""
        return await asyncio.get_running_loop().run_in_executor(self._offload, partial(work, *args, **kwargs))

    async def propose(
        self,
        event: AnyEvent,
        sender: Sender | None,
        encoded: tuple[str, bytes] | None = None,
    ) -> Receipt:
        """Admit an event, write it, and wait for its result. A heartbeat has its result when it is durable.

        Args:
            event: Event. A registration without topics may be rejected because the state machine needs them.
            sender: Sender admitted for this request. None: the event is the gateway's own.
            encoded: The event's routing key and payload, if they are known.

        Raises:
            AccessDeniedError: Not accepted. The sender's account is bound to other brokers.
            QuotaError: Not accepted. A quota is used up.
            RefusedError: Not accepted. The group of the broker is full.
            UnavailableError: Not accepted.
            InDoubtError: It is unknown whether the event was accepted.
            TooLargeError: The event is too large for the event log.
        """
        then = asyncio.Future.set_result if isinstance(event, BrokerHeartbeat) else self._finish_when_shown
        written = await self.write(event, sender, encoded, then=then)
        self.quotas.settle(written.charge)
        return self._receipt(written)

    async def write(
        self,
        event: AnyEvent,
        sender: Sender | None,
        encoded: tuple[str, bytes] | None = None,
        topics: Collection[str] | None = None,
        then: Then = asyncio.Future.set_result,
    ) -> Written:
        """Admit an event and write it. Return when it is durable. The charge is refunded if nothing is written.

        Args:
            event: As in `propose`.
            sender: As in `propose`.
            encoded: As in `propose`.
            topics: Names of the topics of a registration, if the event itself lacks them.
            then: As in `GroupCommit.submit`, to return later.

        Raises:
            As `propose`.
        """
        key, payload = encoded or (routing_key(event), self._encoder.encode(event))
        now_ms = self.live_view.event.now_ms
        charge = self.admission.event(sender, event, payload, self.live_view.view, now_ms, topics)
        if charge is None:
            return Written(event, None)
        try:
            return Written(event, await self.append_encoded(key, payload, then), charge)
        except BaseException as error:
            self.quotas.settle(charge)
            if isinstance(error, Exception) and not isinstance(error, InDoubtError):  # a cancelled append continues
                self.quotas.refund(charge, is_written=False)
            raise

    def append_encoded(self, key: str, payload: bytes, then: Then = asyncio.Future.set_result) -> Awaitable[Appended]:
        """Append a payload to the event log. The result is there when the payload is durable.

        Args:
            key: Routing key of the event.
            payload: The encoded event.
            then: As in `GroupCommit.submit`.

        Raises:
            UnavailableError: Not accepted.
            InDoubtError: It is unknown whether the payload was accepted.
            TooLargeError: The payload is too large for the event log.
        """
        return self._writer.submit(key, payload, then)

    async def result(self, written: Written, *, may_wait: bool = True) -> Receipt:
        """Return the result of an event that is durable, when the live view has it, or does not have it in time."""
        try:
            if may_wait and written.appended is not None:
                await self.live_view.wait_for(written.appended.offset, self._live_view_wait_s)
        finally:
            self.quotas.settle(written.charge)
        return self._receipt(written)

    @property
    def _live_view_wait_s(self) -> float:
        return self.settings.live_view_wait_s if self.replica.fallback_reason is None else _FALLBACK_WAIT_S

    def _finish_when_shown(self, done: asyncio.Future[Appended], appended: Appended) -> None:
        """Complete the future of a durable event when the live view has the event, or does not have it in time."""
        self.live_view.finish(done, appended.offset, self._live_view_wait_s, shown=appended, late=appended)

    def _receipt(self, written: Written) -> Receipt:
        event, appended, charge = written
        if appended is None:
            return self._receipt_of_nothing()
        if isinstance(event, BrokerHeartbeat):
            return Receipt(*appended, UNCHANGED)
        known = self._outcomes.get(appended.offset)
        receipt = Receipt(*appended) if known is None else Receipt(*appended, known.outcome, known.reason, known.result)
        if isinstance(event, RegisterBroker) and receipt.verdict == UNCHANGED:
            self.quotas.refund(charge, is_written=True)
        return receipt

    def _receipt_of_nothing(self) -> Receipt:
        """Make the receipt of a heartbeat that was not written."""
        view = self.live_view.view
        event_time_ms = int(view.event_time.timestamp() * 1000) if view.log_offset >= 0 else 0
        return Receipt(view.log_offset, event_time_ms, UNCHANGED)

    # --- the views move ---

    def _first_view(self) -> RouteView:
        """Load the last committed routes before the first connection is accepted. Return the base of the live view.

        Without these routes every topic would be answered as missing. So a lake that exists but cannot be read keeps a
        gateway from starting. A lake that does not exist yet is empty.
        """
        try:
            if not self.settings.lake_url:
                # Checked once, because the follower takes a missing commit for the end of the log.
                check_names(self.settings.lake_dir / ROUTE_COMMIT_TABLE.name)
            self.follower.poll()
            base = self.follower.view
            while self.follower.poll():  # from the newest epoch with exact deadlines to the newest
                pass
        except SetupError:
            raise
        except DamagedTableError as error:
            if not self.settings.lake_url and unsynced_damage(self.settings.lake_dir):
                raise UnavailableError(f"the tables cannot be read yet: {error}. The fold repairs them.") from error
            raise SetupError(
                f"the tables cannot be read: {error}. See what `{PROGRAM} doctor` says, or restore the lake from a "
                "backup."
            ) from error
        except BaseException as error:  # deltalake's panics do not derive from Exception
            message = (
                f"the tables in {self.settings.lake} cannot be read: {one_line(error)}. If this does not pass, see "
                f"what `{PROGRAM} doctor` says."
            )
            raise UnavailableError(message) from error
        self.follower.start()
        return base

    def _on_epoch_thread(self, view: RouteView, outcomes: list[CommandOutcome]) -> None:
        assert self._loop is not None
        self.replica.epoch_moved(view, self.follower.changes, outcomes)
        self._loop.call_soon_threadsafe(self._on_epoch, view)

    def _on_live_view_thread(self, view: RouteView, offset: int, outcomes: list[CommandOutcome]) -> None:
        assert self._loop is not None
        if view.serial != self.live_view.view.serial:
            self.follower.expect(view.log_offset)  # the tables will have the changes of the live view soon
        self._loop.call_soon_threadsafe(self._on_live_view, view, offset, outcomes)

    def _on_epoch(self, view: RouteView) -> None:
        self.committed.move(view, self._committed_offset(view))

    def _fold_moved(self) -> None:
        for shown in (self.committed, *([] if self.replica.fallback_reason is None else [self.live_view])):
            # A status may come before its epoch. Until then, the offset stays that of the status before.
            shown.reach(max(shown.offset, self._committed_offset(shown.view)))

    def _committed_offset(self, view: RouteView) -> int:
        """Return the offset up to which the tables have all changes. Events that change nothing make no epoch."""
        status = self.fold.status
        if status is not None and view.epoch >= status.epoch:
            return max(view.log_offset, status.log_offset)
        return view.log_offset

    def _forget_later(self) -> None:
        if len(self._outcomes) > _OUTCOMES_KEPT and self._forgetting is None and self._loop is not None:
            self._forgetting = self._loop.call_later(_OUTCOMES_S, self._forget, next(reversed(self._outcomes)))

    def _forget(self, offset: int) -> None:
        """Forget outcomes up to an offset, except the newest `_OUTCOMES_KEPT`."""
        while len(self._outcomes) > _OUTCOMES_KEPT and next(iter(self._outcomes)) <= offset:
            self._outcomes.popitem(last=False)
        self._forgetting = None
        self._forget_later()

    def _on_live_view(self, view: RouteView, offset: int, outcomes: list[CommandOutcome]) -> None:
        for outcome in outcomes:
            self._outcomes[outcome.offset] = outcome
        self._forget_later()
        config = self.live_view.view.namesrv_config
        self.live_view.move(view, offset if self.replica.fallback_reason is None else self._committed_offset(view))
        if view.namesrv_config != config:
            self._take_settings()
