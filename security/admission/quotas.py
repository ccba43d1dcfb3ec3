# SPDX-License-Identifier: Apache-2.0
"""Quotas of this gateway's peers, for both listeners: the current usage, and bounded records of refusals.

Every write is charged before it goes to the event log, with an upper estimate of its bytes. Unused bytes are refunded
to their bucket, in any order. The first write in a second is charged for its epoch, and for a partition that it
rewrites. The changes of other writes in the same second need no further commit.

Repeated requests of brokers are different. A heartbeat over its quota is answered as usual, but it is not written while
the last one is recent. So no broker expires because of the quota. A registration that the view already shows counts as
a heartbeat.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, NamedTuple

from nameserver.state_machine.state import BrokerKey, LiveInfo
from nameserver.view.snapshot import RouteView
from remoting.codec.bounds import address_of_peer
from remoting.codec.commands import RefusedError
from remoting.server.refusals import Refusals
from schemas.errors import QuotaError
from schemas.events import Actor, AnyEvent, ChannelClosed, RegisterBroker, RegisterTopic, UnregisterBroker
from schemas.limits import MAX_GROUP_ADDRESSES
from security.admission.usage import Cost, Size, UsageLedger, cost_of, has_new_name, log_bytes, new_topics
from security.quotas import (
    CHANGE_BYTES,
    HANDSHAKES,
    HEARTBEAT_BYTES,
    NEW_NAMES,
    REFUSED_PROOFS,
    REQUESTS,
    Limiter,
    Quotas,
    Refusal,
)
from security.roles import Role

_OF_BROKERS: Final = (RegisterBroker, UnregisterBroker, RegisterTopic, ChannelClosed)
_YOUNG: Final = 0.25
"""Part of the broker's timeout: while its last heartbeat is younger, the next is not written if the quota runs low."""
_NOT_OLD: Final = 0.5
"""Part of the broker's timeout: while its last heartbeat is younger, the next is not written if no quota is left."""
_COUNT_S: Final = 30.0
"""Minimum interval between two counts of the groups' rows, in seconds."""
_COMING_S: Final = 10.0
"""Time for which new names that the view does not show yet are counted once, in seconds."""


def peer_name(actor: Actor) -> str:
    """Return the name of a peer for the quotas, over either protocol: the user, or else the address."""
    if actor.user is not None:
        return user_name(actor.user)
    return address_of_peer(actor.peer or "")


def user_name(user: str) -> str:
    """Return `peer_name` of a user. It differs from every address."""
    return f"user {user}"


class Charge(NamedTuple):
    """Charge of a write.

    Attributes:
        quota: Quota that the bytes are charged to.
        who: Peer that is charged.
        cost: Charged bytes.
        least: Bytes that the write takes on the event log, also if it changes nothing.
        names: Number of new names.
        coming: Names that count as existing until the view shows them, with the counter of such names.
        place: brokerName and new address of a registration, which counts until `GatewayQuotas.settle`.
    """

    quota: str
    who: str
    cost: int
    least: int
    names: int = 0
    coming: tuple[Counter[str], Collection[str]] | None = None
    place: tuple[str, BrokerKey] | None = None


FREE: Final = Charge(CHANGE_BYTES[Role.ADMIN], "", 0, 0)
"""Charge of a write that costs its sender nothing, or that is never refunded."""


class GatewayQuotas:
    """Quotas for the requests to one gateway. Used on its event loop.

    Attributes:
        refused: Number of refusals, by quota.
        charged_bytes: Bytes charged for writes minus refunds, by quota.
        unwritten: Number of heartbeats that were answered without being written.
    """

    def __init__(
        self,
        quotas: Quotas | None = None,
        *,
        trusts_users: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create quotas without any usage.

        Args:
            quotas: Limits. None: the defaults.
            trusts_users: Whether only an admin has a user's name in requests that need an admin.
            clock: Clock in seconds that never goes back.
        """
        self._limiter = Limiter(quotas or Quotas())
        self._trusts_users = trusts_users
        self._clock = clock
        self._usage = UsageLedger()
        self._refusals = Refusals("quota")
        self._second = -1
        self._paid: set[str | int] = set()
        """Parts that the epoch of this second writes once, and that were already charged to a peer."""
        self._counted_s = self._coming_since_s = -math.inf
        self._coming: Counter[str] = Counter()
        self._joining: dict[str, Counter[BrokerKey]] = {}
        """New addresses in registrations that are in progress, by brokerName."""
        self.refused: Counter[str] = Counter()
        self.charged_bytes: Counter[str] = Counter()
        self.unwritten = 0

    @property
    def limits(self) -> Quotas:
        """Limits in force."""
        return self._limiter.quotas

    def used(self) -> Mapping[str, float]:
        """Return by rate the part of its burst that the busiest peer has used, from 0 to 1 and beyond."""
        return self._limiter.used(self._clock())

    def refused_connections(self, quota: str, times: int) -> None:
        """Set the number of refused connections, which the listeners count themselves."""
        self.refused[quota] = times

    # --- connections and requests ---

    def handshake(self, address: str) -> str | None:
        """Return why an address gets no TLS handshake now. None if it gets one, which is charged."""
        refusal = self._limiter.take(HANDSHAKES, address, self._clock())
        if refusal is None:
            return None
        self.refused[refusal.quota] += 1
        return refusal.remark

    def is_guessing(self, address: str) -> bool:
        """Return whether too many proofs of an address were refused recently."""
        return self._limiter.owed(REFUSED_PROOFS, address, self._clock()) is not None

    def guessed(self, address: str) -> None:
        """Count a proof that was refused."""
        self._limiter.charge(REFUSED_PROOFS, address, self._clock(), 1.0)

    def refuse_guess(self, address: str, peer: str) -> None:
        """Refuse another proof of an address if it `is_guessing`.

        Args:
            address: Address of the sender.
            peer: host:port, for the log.

        Raises:
            QuotaError: Too many proofs of the address were refused.
        """
        self._check(self._limiter.owed(REFUSED_PROOFS, address, self._clock()), peer)

    def request(self, role: Role, who: str, peer: str) -> None:
        """Admit a request.

        Args:
            role: Role that the request needs.
            who: Sender, as `peer_name` returns it.
            peer: host:port, for the log.

        Raises:
            QuotaError: There were too many requests.
        """
        self._check(self._limiter.take(REQUESTS[role], who, self._clock()), peer)

    # --- heartbeats ---

    def admit_heartbeat(self, actor: Actor, payload_bytes: int, live: LiveInfo | None, now_ms: int) -> bool:
        """Return whether to write a heartbeat. If not, it is answered as if it were written.

        Args:
            actor: Sender of the heartbeat.
            payload_bytes: Size of its event's payload, in bytes.
            live: Row of the broker in the live view. None if it has none.
            now_ms: Time of the event log, in milliseconds.

        Raises:
            QuotaError: The quota is used up, and the broker's last heartbeat is old, or the broker is unknown.
        """
        who, now_s, log_size = peer_name(actor), self._clock(), log_bytes(payload_bytes)
        age = math.inf
        if live is not None:
            age_ms = now_ms - live.last_update_ms
            age = age_ms / max(1, live.heartbeat_timeout_ms)
        if age < _YOUNG and self._limiter.is_low(HEARTBEAT_BYTES, who, now_s):
            self.unwritten += 1  # the rest of the quota is for heartbeats that need it
            return False
        refusal = self._limiter.take(HEARTBEAT_BYTES, who, now_s, log_size)
        if refusal is None:
            self.charged_bytes[HEARTBEAT_BYTES] += log_size
            return True
        if age < _NOT_OLD:
            self.unwritten += 1
            return False
        raise self._error(refusal, actor.peer or "")

    # --- changes ---

    def registration(
        self,
        event: RegisterBroker,
        names: Collection[str],
        payload: bytes,
        view: RouteView,
    ) -> Charge:
        """Charge a registration with its topics.

        Args:
            event: Registration. Its topics may be left out.
            names: Names of its topics.
            payload: Event in the form of the event log.
            view: Live view.

        Raises:
            QuotaError: A quota is exceeded.
            RefusedError: The group of the broker is full.
        """
        who, name, peer = peer_name(event.actor), event.broker_name, event.actor.peer
        place = self._place(event, view)
        is_new, (new_rows, new_names) = name not in view.groups, new_topics(event, names, view)
        if new_names:  # many brokers may bring the same names at once
            topics, coming = view.topics, self._coming
            new_names = sum(topic not in topics and not coming.get(topic) for topic in names)
        after = self._usage.after(who, event, len(names), new_rows, payload, view)
        for quota, number in self._usage.growth(name, after).items():
            self._check(self._limiter.count(quota, who, number), peer)
        if is_new:
            self._check(self._limiter.count("all-brokers", "", len(view.groups) + 1), peer)
        if new_names:
            self._check(self._limiter.count("all-topics", "", len(view.topics) + new_names), peer)
        cost = self._cost(event, payload, view, names)
        least = log_bytes(len(payload))
        charge = Charge(CHANGE_BYTES[Role.BROKER], who, cost.bytes, least, new_names + is_new, place=place)
        self._take(charge, cost, peer)
        self._usage.take(name, after, view)
        if place is not None:
            self._joining.setdefault(name, Counter())[place[1]] += 1
        if not new_names:
            return charge
        if self._clock() - self._coming_since_s > _COMING_S:
            self._coming_since_s = self._clock()
            self._coming = Counter()
        self._coming.update(iter(names))
        return charge._replace(coming=(self._coming, names))

    def _place(self, event: RegisterBroker, view: RouteView) -> tuple[str, BrokerKey] | None:
        """Return the place that a new address takes in its group. Registrations in progress count, too."""
        name, own = event.broker_name, (event.cluster_name, event.broker_addr)
        live, joining = view.live_rows(name), self._joining.get(name, Counter())
        if own in live:
            return None
        count = len(live.keys() | joining.keys())
        if count >= MAX_GROUP_ADDRESSES and own not in joining:
            raise RefusedError(
                f"brokerName {name!r} has {count} addresses: at most {MAX_GROUP_ADDRESSES} are accepted. "
                "Give brokers of another group another brokerName, or unregister those that are gone."
            )
        return name, own

    def settle(self, charge: Charge) -> None:
        """Give back the place of a registration, because the view shows its address, or it has failed. Call it once."""
        if charge.place is None:
            return
        name, own = charge.place
        joining = self._joining[name]
        joining[own] -= 1
        if not joining[own]:
            del joining[own]
        if not joining:
            del self._joining[name]

    def reading(self, actor: Actor, size_bytes: int) -> None:
        """Admit the reading of a large registration. Until `reading_has_ended` it counts as ``size_bytes``.

        Raises:
            QuotaError: The quota is exceeded.
        """
        refusal = self._limiter.take(CHANGE_BYTES[Role.BROKER], peer_name(actor), self._clock(), size_bytes)
        self._check(refusal, actor.peer)

    def reading_has_ended(self, actor: Actor, more_bytes: int) -> None:
        """Charge the cost beyond that size. A negative number is a refund."""
        self._limiter.charge(CHANGE_BYTES[Role.BROKER], peer_name(actor), self._clock(), more_bytes)

    def command(self, event: AnyEvent, payload: bytes, view: RouteView) -> Charge:
        """Charge any other event that may change something.

        Raises:
            QuotaError: A quota is exceeded.
        """
        is_brokers = isinstance(event, _OF_BROKERS)
        if not is_brokers and self._trusts_users and event.actor.user is not None:
            return FREE
        quota, who = CHANGE_BYTES[Role.BROKER if is_brokers else Role.ADMIN], peer_name(event.actor)
        cost = self._cost(event, payload, view)
        charge = Charge(quota, who, cost.bytes, log_bytes(len(payload)), int(has_new_name(event, view)))
        if isinstance(event, ChannelClosed):
            self._limiter.charge(charge.quota, charge.who, self._clock(), charge.cost)
            self._has_paid(charge, cost)
        else:
            self._take(charge, cost, event.actor.peer)
        return charge

    def refund(self, charge: Charge, *, is_written: bool) -> None:
        """Refund the bytes that a write was charged and did not use.

        Args:
            charge: Charge of the write.
            is_written: Whether the write is on the log, or may be.
        """
        if charge is FREE:
            return
        now_s = self._clock()
        self._paid.clear()  # the next write pays for the epoch
        unused = charge.cost - (charge.least if is_written else 0)
        self.charged_bytes[charge.quota] -= unused
        self._limiter.charge(charge.quota, charge.who, now_s, -unused)
        self._limiter.charge(NEW_NAMES, charge.who, now_s, -charge.names)
        if not is_written and charge.coming is not None:
            coming, names = charge.coming
            coming.subtract(iter(names))

    # --- rows of groups ---

    async def count(self, view: RouteView) -> None:
        """Count the groups' rows in a thread, if their number has refused a peer and the last count is not recent."""
        is_due = any(self.refused[quota] for quota in ("brokers", "topics", "topic-mb"))
        if is_due and self._clock() - self._counted_s >= _COUNT_S:
            self._counted_s = self._clock()
            self._usage.recount(await asyncio.to_thread(view.topic_counts))

    # --- inner ---

    def _cost(self, event: AnyEvent, payload: bytes, view: RouteView, names: Collection[str] = ()) -> Cost:
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._paid.clear()
        return cost_of(event, len(payload), view, partial(self._size, view), self._paid, names)

    def _take(self, charge: Charge, cost: Cost, peer: str | None) -> None:
        now_s = self._clock()
        if charge.names:
            self._check(self._limiter.take(NEW_NAMES, charge.who, now_s, charge.names), peer)
        refusal = self._limiter.take(charge.quota, charge.who, now_s, charge.cost)
        if refusal is not None:
            self._limiter.charge(NEW_NAMES, charge.who, now_s, -charge.names)
            raise self._error(refusal, peer)
        self._has_paid(charge, cost)

    def _has_paid(self, charge: Charge, cost: Cost) -> None:
        self.charged_bytes[charge.quota] += charge.cost
        self._paid.update(cost.parts)

    def _size(self, view: RouteView, name: str) -> Size:
        held = self._usage.find(name)
        return Size(min(len(view.topics), 1_000)) if held is None else held.size

    def _check(self, refusal: Refusal | None, peer: str | None) -> None:
        if refusal is not None:
            raise self._error(refusal, peer)

    def _error(self, refusal: Refusal, peer: str | None) -> QuotaError:
        self.refused[refusal.quota] += 1
        self._refusals.note(refusal.quota, peer or "", refusal.remark)
        retry_s = math.ceil(min(refusal.retry_after_s, 3600.0))
        return QuotaError(refusal.remark, quota=refusal.quota, retry_after_s=max(1, retry_s))
