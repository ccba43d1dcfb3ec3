# SPDX-License-Identifier: Apache-2.0
"""Self-preservation: once a second a gateway counts silent brokers, and starts or ends a pause of expiry (ADR 14).

`nameserver.state_machine.preservation` has the rule. The decision is an event on the event log, which the state machine
follows. While the setting is off and there is no pause, nothing is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from api.settings.gateway import GatewaySettings
from api.settings.keys import SELF_PRESERVATION
from nameserver.state_machine.preservation import Census, Switch, census, superseded, to_begin, to_end
from nameserver.state_machine.state import LiveKey
from nameserver.view.snapshot import RouteView
from runtime.supervised_tasks import critical_task
from schemas.broker import MASTER_ID
from schemas.errors import RoutelakeError, one_line
from schemas.events import Actor, Preserve, PreserveEnd, UnregisterBroker
from schemas.route_commit import to_ms

log = structlog.get_logger("routelake.gateway")


class SelfPreservation:
    """Decision on self-preservation for one gateway. Used on its event loop.

    Args:
        settings: Returns the gateway's current settings.
        view: Returns the live view. None in fallback mode, in which nothing is decided.
        command: Writes an event, and returns when the view shows it.

    Attributes:
        counted: Last count of silent brokers. None while it does not count.
    """

    def __init__(
        self,
        settings: Callable[[], GatewaySettings],
        view: Callable[[], RouteView | None],
        command: Callable[[Preserve | PreserveEnd | UnregisterBroker], Awaitable[object]],
    ) -> None:
        self._settings, self._view, self._command = settings, view, command
        self._task: asyncio.Task[None] | None = None
        self.counted: Census | None = None
        self._seen_ms = 0
        self._seen_s = 0.0
        self._was_on = False
        self._waits = False
        """A command has ended a pause while brokers were silent. No other pause starts until they are back or gone."""

    def start(self) -> None:
        """Start to decide once a second."""
        self._task = critical_task(asyncio.create_task(self._run()), "self-preservation check")

    def stop(self) -> None:
        """Stop. A pause that is on stays on."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self.decide()
            except RoutelakeError as error:
                log.warning("cannot append the self-preservation event", error=one_line(error))
            except Exception:
                log.exception("unexpected error in the self-preservation check")
            await asyncio.sleep(self._settings().preservation_interval_s)

    async def decide(self) -> None:
        """Count once, and write an event if it is needed."""
        view, settings = self._view(), self._settings()
        self.counted = None
        if view is None:
            return
        switch, preserved_ms = switch_of(settings, view), view.commit.preserved_ms
        now_ms = self._log_time_ms(view, settings.gap_s)
        if now_ms is None or not (switch.percent or preserved_ms):
            return
        rows = dict(view.all_live_rows())
        counted = self.counted = census(rows, now_ms)
        actor = Actor(gateway=settings.gateway_id, via="routelake")
        event = self._event(switch, counted, preserved_ms, now_ms, actor)
        if event is not None:
            _say(event, counted)
            await self._command(event)
            self._was_on = self._was_on or isinstance(event, Preserve)  # an end may come before the next look
        elif preserved_ms:
            await self._expire([key for key in superseded(rows, now_ms) if rows[key].expire_ms < now_ms], actor)

    async def _expire(self, gone: list[LiveKey], actor: Actor) -> None:
        """Expire only the given brokers, because other brokers have their addresses."""
        for name, cluster, addr in gone:
            log.warning("broker expired: another broker has its address", broker=name, addr=addr)
            await self._command(
                UnregisterBroker(
                    actor=actor,
                    cluster_name=cluster,
                    broker_name=name,
                    broker_addr=addr,
                    broker_id=MASTER_ID,  # not used here
                    if_overdue=True,
                )
            )

    def _event(
        self, switch: Switch, counted: Census, preserved_ms: int, now_ms: int, actor: Actor
    ) -> Preserve | PreserveEnd | None:
        if preserved_ms:
            self._was_on = True
            return to_end(switch, counted, preserved_ms, now_ms, actor)
        self._waits = (self._waits or self._was_on) and counted.exceeds(switch.percent)
        self._was_on = False
        return None if self._waits else to_begin(switch, counted, actor)

    def _log_time_ms(self, view: RouteView, gap_s: float) -> int | None:
        """Return the time of the log's newest event, plus the time since it arrived here.

        None if no event has arrived for ``gap_s``, the gap of a RESUME. Then this gateway does not receive the log, and
        the brokers are not silent.
        """
        now_s, event_ms = asyncio.get_running_loop().time(), to_ms(view.event_time)
        if event_ms != self._seen_ms:
            self._seen_ms, self._seen_s = event_ms, now_s
        passed_s = now_s - self._seen_s
        return None if passed_s > gap_s else event_ms + int(passed_s * 1000)


def switch_of(settings: GatewaySettings, view: RouteView) -> Switch:
    """Return the switch. The live setting takes precedence over the gateway's option."""
    return Switch(
        settings.self_preservation_percent,
        round(settings.self_preservation_limit_s * 1000),
        is_ordered=view.namesrv_config.get(SELF_PRESERVATION) is not None,
    )


def _say(event: Preserve | PreserveEnd, counted: Census) -> None:
    if isinstance(event, Preserve):
        log.error("self-preservation is active: no broker expires", **counted._asdict(), percent=event.percent)
    else:
        log.warning("self-preservation ended", reason=event.reason, **counted._asdict())
