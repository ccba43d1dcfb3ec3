# SPDX-License-Identifier: Apache-2.0
"""Self-preservation: once a second a gateway counts silent brokers, and begins or ends a pause of expiry (ADR 14).

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
    """Decides on self-preservation for one gateway. Lives on its event loop.

    Args:
        settings: The gateway's, as they are now.
        view: The live view. None in fallback mode: then it does not decide.
        command: Writes an event, and returns when the view shows it.

    Attributes:
        counted: Last count of silent brokers; None while it does not count.
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
        """Flag of a pause ended by command while brokers were silent: no other one before they are back, or gone."""

    def start(self) -> None:
        """Begin to decide once a second."""
        self._task = critical_task(asyncio.create_task(self._run()), "self-preservation check")

    def stop(self) -> None:
        """End; a pause that is on stays on."""
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
        """Look once, and write what has to be written."""
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
        elif preserved_ms:
            await self._expire([key for key in superseded(rows, now_ms) if rows[key].expire_ms < now_ms], actor)

    async def _expire(self, gone: list[LiveKey], actor: Actor) -> None:
        """Expire only the given brokers: other brokers have their addresses."""
        for name, cluster, addr in gone:
            log.warning("broker expired: another broker has its address", broker=name, addr=addr)
            await self._command(
                UnregisterBroker(
                    actor=actor,
                    cluster_name=cluster,
                    broker_name=name,
                    broker_addr=addr,
                    broker_id=MASTER_ID,  # says nothing here
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
        """The time of the log's newest event and what has passed since it was seen here.

        None when nothing came for as long as RESUME stands for: then this gateway is deaf, not the brokers silent.
        """
        now_s, event_ms = asyncio.get_running_loop().time(), to_ms(view.event_time)
        if event_ms != self._seen_ms:
            self._seen_ms, self._seen_s = event_ms, now_s
        passed_s = now_s - self._seen_s
        return None if passed_s > gap_s else event_ms + int(passed_s * 1000)


def switch_of(settings: GatewaySettings, view: RouteView) -> Switch:
    """Return the wanted switch: by the gateway's option, or by the live setting, which takes precedence."""
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
