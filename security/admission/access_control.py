# SPDX-License-Identifier: Apache-2.0
"""Access control of this gateway, for both listeners: the current accounts, and bounded records of refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, cast

import structlog
from prometheus_client import Counter

from remoting.codec.bounds import address_of_peer
from runtime.supervised_tasks import critical_task
from schemas.errors import RoutelakeError
from schemas.events import AccessRefused, Actor
from security.accounts import Accounts
from security.accounts_file import AccountsFile
from security.admission.oidc_keys import Oidc
from security.identity import Identity, Unproven
from security.notices import INTERVAL_S, Notices
from security.policy import AuthMode, Policy, Verdict

log = structlog.get_logger("routelake.gateway")

CHECK_S: Final = 1.0
"""Interval between two looks at the file of accounts, in seconds."""


_NAME_CHARS: Final = 255
"""Maximum recorded length of a topic's or broker's name that a peer has chosen."""


_REMARK_CHARS: Final = 1_000
"""Maximum recorded length of a remark, which may contain a name that a peer has chosen."""

_MOST_WAITING: Final = 100
"""Maximum number of events that wait for the event log."""


def _short(text: str | None, chars: int) -> str | None:
    """Return a text in a form for records: shortened, and without half of a surrogate pair."""
    return None if text is None else text[:chars].encode("utf-8", "replace").decode()


class Refused(NamedTuple):
    """A refusal to record. ``verdict.is_refused`` is False if only a stricter mode refuses the request.

    Attributes:
        via: Listener, remoting or http.
        request: Name of the RequestCode, or of the operation.
        needed: Missing role. "" for a request that no role may send.
        peer: Address of the peer, host:port.
        found: Identity of the sender, or the reason why it has no identity.
        verdict: Decision and reason.
        topic: Topic that the request names.
        broker_name: Broker name that the request names.
        times: Number of equal refusals since the last record, with this one.
    """

    via: str
    request: str
    needed: str
    peer: str
    found: Identity | Unproven
    verdict: Verdict
    topic: str | None = None
    broker_name: str | None = None
    times: int = 1


class AccessControl:
    """Access control for both listeners. Used on the gateway's event loop.

    Attributes:
        policy: Policy that the operator has chosen.
        accounts: Accounts that are valid now.
        generation: Object that is replaced when the accounts change. Then older results are invalid.
        oidc: Issuer of the JWTs that are accepted over HTTP. None: no JWT is accepted.
    """

    def __init__(
        self, policy: Policy, file: AccountsFile | None, count: Callable[[AuthMode, Callable[[], bool]], Counter]
    ) -> None:
        """Take the current accounts of the file.

        Args:
            policy: Policy that the operator has chosen.
            file: File of the accounts. None: there are no accounts.
            count: Makes the counter of refusals. It gets the mode, and a function that returns whether the file fails.
        """
        self.policy: Final = policy
        self.accounts = Accounts() if file is None else file.current
        self.generation = object()
        self.oidc: Final = None if policy.oidc is None else Oidc(policy.oidc)
        self._file = file
        self._notices: Notices[Refused] = Notices()
        self._followers: list[Callable[[Refused], None]] = []
        self._said_s = -INTERVAL_S
        self._watching: asyncio.Task[None] | None = None
        self._counter = count(policy.mode, lambda: self.problem is not None)

    @property
    def is_on(self) -> bool:
        """Return whether senders are authenticated."""
        return self.policy.mode is not AuthMode.OFF

    @property
    def problem(self) -> str | None:
        """Reason why the file of accounts, or the issuer, cannot be used now, or None. The last good state is used."""
        problem = None if self._file is None else self._file.problem
        return problem or (None if self.oidc is None else self.oidc.problem)

    def note(self, refused: Refused) -> None:
        """Count a refusal, or one that a stricter mode would make, and report it within bounds."""
        verdict = refused.verdict._replace(remark=_short(refused.verdict.remark, _REMARK_CHARS) or "")
        self._counter.labels(self.policy.mode, verdict.reason, refused.needed).inc()
        topic, broker_name = _short(refused.topic, _NAME_CHARS), _short(refused.broker_name, _NAME_CHARS)
        refused = refused._replace(verdict=verdict, topic=topic, broker_name=broker_name)
        who = refused.found.user or address_of_peer(refused.peer)
        share = (refused.via, verdict.reason)
        count = self._notices.due((who, refused.request), refused, time.monotonic(), share)
        if count:
            self._notify(refused._replace(times=count))

    def _notify(self, refused: Refused) -> None:
        verdict = refused.verdict
        log.warning(
            "access refused" if verdict.is_refused else "access would be refused",
            listener=refused.via,
            request=refused.request,
            needed=refused.needed,
            peer=refused.peer,
            user=refused.found.user,
            reason=verdict.reason,
            detail=verdict.remark,
            count=refused.times,
        )
        if verdict.is_refused or self.policy.mode is AuthMode.AUDIT:
            for tell in self._followers:
                tell(refused)

    def _notify_of_forgotten(self, now_s: float) -> None:
        if now_s - self._said_s < INTERVAL_S:
            return
        for share, count in self._notices.forgotten().items():
            self._said_s = now_s
            listener, reason = cast("tuple[str, str]", share)
            log.warning("more refusals, not logged one by one", listener=listener, reason=reason, count=count)

    def follow(self, tell: Callable[[Refused], None]) -> None:
        """Call back with refusals, as many as are logged. In mode `audit`, call back with would-be refusals, too.

        In mode `enforce-writes` a read without an account causes no event, because there may be many of them for ever.
        """
        self._followers.append(tell)

    def start(self) -> None:
        """Start to watch the file, and to report the refusals that were only counted."""
        if self._file is not None and self._watching is None:
            watching = asyncio.get_running_loop().create_task(self._watch(self._file))
            self._watching = critical_task(watching, "accounts file watch")
        if self.oidc is not None:
            self.oidc.start()

    def stop(self) -> None:
        """Stop watching."""
        if self._watching is not None:
            self._watching.cancel()
        if self.oidc is not None:
            self.oidc.stop()

    async def _watch(self, file: AccountsFile) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            for refused, count in self._notices.overdue(time.monotonic()):
                self._notify(refused._replace(times=count))
            self._notify_of_forgotten(time.monotonic())
            try:
                if await asyncio.to_thread(file.check):
                    self._take(file)
            except Exception:
                log.exception("cannot check the accounts file for changes")

    def _take(self, file: AccountsFile) -> None:
        if file.problem is not None:
            log.error("cannot use the changed accounts file; keeping the previous accounts", reason=file.problem)
            return
        if file.current is not self.accounts:
            self.accounts = file.current
            self.generation = object()
            log.info("accounts file reloaded", accounts=len(self.accounts.accounts))


class RefusalAudit:
    """Writer of the logged refusals to the event log. Used on the gateway's event loop."""

    def __init__(self, gateway_id: str, append: Callable[[AccessRefused], Awaitable[object]]) -> None:
        """Write one event for all refusals of a kind within some time.

        Args:
            gateway_id: Id of the gateway, for the history.
            append: Writes an event of the gateway's own.
        """
        self._gateway_id = gateway_id
        self._append = append
        self._waiting: set[asyncio.Task[None]] = set()

    def record(self, refused: Refused) -> None:
        """Write a refusal. If too many events wait for the event log, only log line and metric have the refusal."""
        if len(self._waiting) < _MOST_WAITING:
            task = asyncio.get_running_loop().create_task(self._write(self._event(refused)))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _write(self, event: AccessRefused) -> None:
        try:
            await self._append(event)
        except RoutelakeError as error:
            log.info("cannot record a refusal in the history", reason=str(error))

    def _event(self, refused: Refused) -> AccessRefused:
        found, verdict = refused.found, refused.verdict
        identity = found if isinstance(found, Identity) else None
        return AccessRefused(
            actor=Actor(gateway=self._gateway_id, via=refused.via, peer=refused.peer, user=identity and identity.user),
            request=refused.request,
            needed=refused.needed or None,
            role=identity and identity.role.word,
            reason=verdict.reason,
            remark=verdict.remark,
            is_refused=verdict.is_refused,
            times=refused.times,
            claimed_user=None if isinstance(found, Identity) else found.user,
            topic=refused.topic,
            broker_name=refused.broker_name,
        )
