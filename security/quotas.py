# SPDX-License-Identifier: Apache-2.0
"""Limits for one peer, and for all peers together: the settings, and the buckets that apply them. No I/O, no clock.

A peer is a user if an account identifies it, or else an address (`remoting.codec.bounds.address_of`). Readers, brokers
and admins have buckets of their own. So too many requests of one kind affect neither that peer's other kinds nor other
peers.

The three rates of bytes bound the bytes that one peer can add to event log and tables. For all three, the flow of an
hour and the burst come to less than 1 GB. `security.admission.usage` estimates the cost of a write.

A rate is a token bucket for each key. A bucket holds at most its burst and fills at its rate. A request passes if the
bucket has its tokens. So in any period no more passes than the burst and the inflow of that period. If the cost of a
write is known only after it, it is charged then, and the level may fall below zero. The next request waits until the
level is above zero again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from schemas.errors import SetupError
from security.roles import Role

MAX_KEYS: Final = 10_000
"""Maximum number of buckets of one kind, some 2 MB. The bucket with the oldest use is dropped first."""


class Buckets:
    """Buckets of one kind. Used by one thread at a time."""

    def __init__(self, per_s: float, burst: float, max_keys: int = MAX_KEYS) -> None:
        """Start with full buckets.

        Args:
            per_s: Units that flow into a bucket per second.
            burst: Units that a full bucket holds.
            max_keys: Maximum number of buckets. Beyond it, the bucket with the oldest use is dropped. It is full when
                it is used again.
        """
        self._per_s = per_s
        self._burst = burst
        self._max_keys = max_keys
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """(level, time of the level) by key."""

    def __len__(self) -> int:
        """Return the number of buckets that are kept."""
        return len(self._filled)

    def level(self, key: str, now_s: float) -> float:
        """Return the level of a bucket. Below zero it is a debt."""
        found = self._filled.get(key)
        if found is None:
            return self._burst
        level, then_s = found
        return min(self._burst, level + self._per_s * max(0.0, now_s - then_s))

    def wait_s(self, key: str, now_s: float, cost: float = 0.0) -> float:
        """Return the time until a bucket holds ``cost``, or is full, in seconds. 0.0 if it does so now.

        Args:
            key: Owner of the bucket.
            now_s: Current time, in seconds, of a clock that never goes back.
            cost: Units to take. 0.0: they are charged later, and the level must not be below zero.
        """
        lacking = min(cost, self._burst) - self.level(key, now_s)
        return 0.0 if lacking <= 0 else lacking / self._per_s if self._per_s > 0 else float("inf")

    def take(self, key: str, now_s: float, cost: float = 1.0) -> float:
        """Take units from a bucket if it has them. A refused request costs nothing.

        Args:
            key: Owner of the bucket.
            now_s: Current time, in seconds, of a clock that never goes back.
            cost: Units to take. More than the burst is taken from a full bucket, and its level is then below zero.

        Returns:
            0.0 if the units were taken. Otherwise the time until they can be taken, in seconds.
        """
        wait_s = self.wait_s(key, now_s, cost)
        if not wait_s:
            self.charge(key, now_s, cost)
        elif key in self._filled:
            self._filled.move_to_end(key)  # a refused request counts as use, so the bucket is not dropped
        return wait_s

    def charge(self, key: str, now_s: float, cost: float) -> None:
        """Take units, also if the bucket does not have them. A negative cost is a refund."""
        then_s = self._filled[key][1] if key in self._filled else now_s
        self._filled[key] = min(self._burst, self.level(key, now_s) - cost), max(now_s, then_s)
        self._filled.move_to_end(key)
        if len(self._filled) > self._max_keys:
            self._filled.popitem(last=False)

    def used(self, key: str, now_s: float) -> float:
        """Return the used part of a bucket's burst: 0.0 for none, 1.0 for all of it."""
        return 1.0 - self.level(key, now_s) / self._burst

    def most_used(self, now_s: float) -> float:
        """Return `used` of the most used bucket."""
        return max((self.used(key, now_s) for key in self._filled), default=0.0)


MB: Final = 1_000_000
OPTION: Final = "--quota"


class Rate(msgspec.Struct, frozen=True):
    """Number allowed in a period, and burst allowed at once."""

    per_period: float
    burst: float


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """The limits. None is no limit. On the command line the names have dashes.

    Attributes:
        connections: Number of connections of one address to the NameServer's port.
        http_connections: Number of connections of one address to the HTTP port.
        tls_handshakes_per_s: TLS connections that one address begins per second, to either port. One more is closed.
        refused_proofs_per_min: Refused tokens, sessions and writes of one address per minute over HTTP.
        reads_per_s: Requests of readers per second. Routes that are answered from memory do not count. Over HTTP they
            are counted by address, with metrics, documents and console, and without health requests.
        broker_requests_per_s: Requests of brokers per second.
        admin_requests_per_s: All other requests per second.
        heartbeat_mb_per_h: MB on the event log per hour from heartbeats and unchanged registrations. If it runs low,
            a heartbeat is answered but not written while the last one is younger than a quarter of the broker's timeout
            (half of it if nothing is left).
        broker_mb_per_h: MB on the event log and in the tables per hour from changes by brokers.
        admin_mb_per_h: MB on the event log and in the tables per hour from changes by admins.
        new_names_per_min: New topics, brokerNames and KV keys per minute.
        brokers: Number of registered brokers.
        topics: Number of topics and static topic mappings of these brokers. Each counts once for each brokerName.
        topic_mb: MB of JSON of their registrations, with mappings and filter servers.
        all_brokers: Number of brokerNames of all peers together. At the limit new names are refused. Existing ones can
            change.
        all_topics: Number of topic names of all peers together. At the limit new names are refused. Existing ones can
            change.
    """

    connections: int | None = 8_000
    http_connections: int | None = 3_000
    tls_handshakes_per_s: Rate | None = Rate(200, 4_000)
    refused_proofs_per_min: Rate | None = Rate(60, 1_000)
    reads_per_s: Rate | None = Rate(10_000, 50_000)
    broker_requests_per_s: Rate | None = Rate(5_000, 30_000)
    admin_requests_per_s: Rate | None = Rate(50, 10_000)
    heartbeat_mb_per_h: Rate | None = Rate(250, 20)
    broker_mb_per_h: Rate | None = Rate(60, 500)
    admin_mb_per_h: Rate | None = Rate(60, 90)
    new_names_per_min: Rate | None = Rate(600, 200_000)
    brokers: int | None = 4_000
    topics: int | None = 3_100_000
    topic_mb: int | None = 256
    all_brokers: int | None = 20_000
    all_topics: int | None = 3_000_000


FIELDS: Final = {field.name.replace("_", "-"): field.name for field in msgspec.structs.fields(Quotas)}
"""Attribute by name of a quota."""

NAMES: Final = tuple(FIELDS)

REQUESTS: Final[Mapping[Role, str]] = {
    Role.READER: "reads-per-s",
    Role.BROKER: "broker-requests-per-s",
    Role.ADMIN: "admin-requests-per-s",
}
"""Quota of the requests by role."""

HANDSHAKES: Final = "tls-handshakes-per-s"
REFUSED_PROOFS: Final = "refused-proofs-per-min"
HEARTBEAT_BYTES: Final = "heartbeat-mb-per-h"
CHANGE_BYTES: Final[Mapping[Role, str]] = {Role.BROKER: "broker-mb-per-h", Role.ADMIN: "admin-mb-per-h"}
NEW_NAMES: Final = "new-names-per-min"

_PERIODS_S: Final = {"s": 1.0, "min": 60.0, "h": 3600.0}
_PERIOD_WORDS: Final = {"s": "second", "min": "minute", "h": "hour"}

LATER_S: Final = 60.0
"""Time after which a number may be lower, in seconds."""


def parse(entries: Iterable[str]) -> Quotas:
    """Read the limits that an operator has given.

    Args:
        entries: Texts ``NAME=VALUE``, or several in one text, separated by commas. A value is a whole number, ``off``,
            or for a rate ``RATE:BURST``. A later entry overrides an earlier one.

    Raises:
        SetupError: An entry is invalid. The message names the entry and the valid forms.
    """
    given: dict[str, int | Rate | None] = {}
    for entry in (part.strip() for text in entries for part in text.split(",")):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not entry:
            continue
        if name not in FIELDS:
            raise SetupError(f"{OPTION} {entry!r}: there is no quota {name!r}. There are {', '.join(NAMES)}.")
        default = getattr(_DEFAULTS, FIELDS[name])
        given[FIELDS[name]] = _value(entry, value if equals else "", default)
    return msgspec.structs.replace(_DEFAULTS, **given)


_DEFAULTS: Final = Quotas()


def _value(entry: str, text: str, default: int | Rate) -> int | Rate | None:
    if text == "off":
        return None
    first, colon, second = text.partition(":")
    is_rate = isinstance(default, Rate)
    numbers = [int(part) for part in (first, second) if part.isascii() and part.isdecimal() and len(part) <= 12]
    if len(numbers) != 1 + bool(colon) or (colon and not is_rate) or not all(numbers):
        forms = "a whole number from 1 on, RATE:BURST" if is_rate else "a whole number from 1 on"
        raise SetupError(f"{OPTION} {entry!r}: expected NAME=VALUE with {forms}, or off.")
    if not isinstance(default, Rate):
        return numbers[0]
    # If only the rate is given, the burst changes in proportion.
    return Rate(numbers[0], numbers[-1] if colon else max(1.0, numbers[0] * default.burst / default.per_period))


class Refusal(NamedTuple):
    """Reason why a request is refused now.

    Attributes:
        quota: Name of the exceeded quota.
        remark: Text for people: the exceeded limit and the option's name.
        retry_after_s: Time until a new attempt is useful, in seconds.
    """

    quota: str
    remark: str
    retry_after_s: float


class Limiter:
    """Recent usage of all peers. Used by one thread at a time.

    Attributes:
        quotas: Limits.
    """

    def __init__(self, quotas: Quotas) -> None:
        """Start without any usage."""
        self.quotas = quotas
        self._buckets: dict[str, Buckets] = {}
        for name, field in FIELDS.items():
            rate = getattr(quotas, field)
            if isinstance(rate, Rate):
                unit, period_s = _unit(name), _PERIODS_S[name.rpartition("-")[2]]
                self._buckets[name] = Buckets(rate.per_period * unit / period_s, rate.burst * unit)

    def take(self, name: str, who: str, now_s: float, cost: float = 1.0) -> Refusal | None:
        """Take from a bucket. Return None if it held enough, or if there is no such limit.

        Args:
            name: Name of a rate.
            who: Peer that owns the bucket.
            now_s: Current time, in seconds, of a clock that never goes back.
            cost: Number of requests, names, or bytes to take.
        """
        buckets = self._buckets.get(name)
        if buckets is None:
            return None
        wait_s = buckets.take(who, now_s, cost)
        return self._refusal(name, who, wait_s) if wait_s else None

    def is_low(self, name: str, who: str, now_s: float) -> bool:
        """Return whether a peer has used more than half of its burst."""
        buckets = self._buckets.get(name)
        return buckets is not None and buckets.used(who, now_s) > 0.5

    def charge(self, name: str, who: str, now_s: float, cost: float) -> None:
        """Charge what has been used, also if the bucket does not have it. A negative cost is a refund."""
        buckets = self._buckets.get(name)
        if buckets is not None:
            buckets.charge(who, now_s, cost)

    def owed(self, name: str, who: str, now_s: float) -> Refusal | None:
        """Return why a peer may use nothing more now. None if the level is not below zero. Nothing is taken."""
        buckets = self._buckets.get(name)
        wait_s = 0.0 if buckets is None else buckets.wait_s(who, now_s)
        return self._refusal(name, who, wait_s) if wait_s else None

    def count(self, name: str, who: str, number: float) -> Refusal | None:
        """Return why a peer may not have ``number`` of something. None if it may.

        Args:
            name: Name of a quota that limits a number.
            who: Peer. Empty: all peers together.
            number: Number after the change.
        """
        limit = getattr(self.quotas, FIELDS[name])
        return None if limit is None or number <= limit * _unit(name) else self._refusal(name, who, LATER_S)

    def used(self, now_s: float) -> Mapping[str, float]:
        """Return by rate the part of its burst that the busiest peer has used."""
        return {name: buckets.most_used(now_s) for name, buckets in self._buckets.items()}

    def _refusal(self, name: str, who: str, wait_s: float) -> Refusal:
        limit = getattr(self.quotas, FIELDS[name])
        scope = f"for {who}" if who else "for all peers together"
        if isinstance(limit, Rate):
            what, _, period = name.rpartition("-per-")
            amount = f"{limit.per_period:g} {_words(what)} a {_PERIOD_WORDS[period]}, {limit.burst:g} at once"
        else:
            amount = f"{limit} {_words(name.removeprefix('all-'))}"
        remark = f"quota {name}: {amount}, {scope} ({OPTION} {name}=...); nothing was written"
        return Refusal(name, remark, wait_s)


def _words(name: str) -> str:
    return name.replace("-mb", " MB").replace("-", " ")


def _unit(name: str) -> int:
    return MB if "-mb" in name else 1
