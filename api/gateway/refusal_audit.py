# SPDX-License-Identifier: Apache-2.0
"""Refusals go into the history: one event for all of a kind within a while, as many as are logged."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from api.gateway.gateway import Gateway
from schemas.errors import RoutelakeError
from schemas.events import AccessRefused, Actor
from security.admission.access_control import Refused
from security.identity import Identity

log = structlog.get_logger("routelake.gateway")

_MOST_WAITING: Final = 100
"""Events that the log has not taken yet."""


class RefusalAudit:
    """Writes what `AccessControl` tells of. Lives on the gateway's event loop."""

    def __init__(self, gateway: Gateway) -> None:
        """Write through a gateway."""
        self._gateway = gateway
        self._waiting: set[asyncio.Task[None]] = set()

    def tell(self, refused: Refused) -> None:
        """Write one; while the log does not keep up, the log lines and the metric have it alone."""
        if len(self._waiting) < _MOST_WAITING:
            task = asyncio.get_running_loop().create_task(self._write(self._event(refused)))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _write(self, event: AccessRefused) -> None:
        try:
            await self._gateway.append(event)
        except RoutelakeError as error:
            log.info("cannot record a refusal in the history", reason=str(error))

    def _event(self, refused: Refused) -> AccessRefused:
        found, verdict = refused.found, refused.verdict
        user = found.user if isinstance(found, Identity) else None
        role = found.role if isinstance(found, Identity) else None
        gateway_id = self._gateway.settings.gateway_id
        return AccessRefused(
            actor=Actor(gateway=gateway_id, via=refused.via, peer=refused.peer, user=user),
            request=refused.request,
            needed=refused.needed or None,
            role=None if role is None else role.word,
            reason=verdict.reason,
            remark=verdict.remark,
            is_refused=verdict.is_refused,
            times=refused.times,
            claimed_user=None if isinstance(found, Identity) else found.user,
            topic=refused.topic,
            broker_name=refused.broker_name,
        )
