# SPDX-License-Identifier: Apache-2.0
"""A row of routeCommitTable: one epoch, and its mark."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

UNIX_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class CommandOutcome(msgspec.Struct, frozen=True):
    """Outcome of one refused event or admin command, as in column ``outcomes``."""

    offset: int
    outcome: str
    reason: str | None = None
    result: dict[str, Any] | None = None


class EpochMark(NamedTuple):
    """Mark of an epoch of one lake, for clients. After a restore the same number is another epoch.

    Attributes:
        epoch: Number of the epoch.
        digest: Digest of its commit. Empty if only the number is known.
    """

    epoch: int
    digest: str = ""

    def __str__(self) -> str:
        """Return the text for `parse`."""
        return f"{self.epoch}-{self.digest}" if self.digest else str(self.epoch)

    @classmethod
    def parse(cls, text: str) -> EpochMark:
        """Parse the result of ``str``.

        Raises:
            ValueError: The text is not a mark.
        """
        if not _MARK.fullmatch(text):
            raise ValueError(f"{text!r} is no epoch, as an answer gave it")
        epoch, _, digest = text.partition("-")
        return cls(int(epoch), digest)

    def may_be(self, other: EpochMark) -> bool:
        """Return True if both may name the same epoch. A missing digest matches any digest."""
        return self.epoch == other.epoch and (not self.digest or not other.digest or self.digest == other.digest)


_MARK: Final = re.compile(r"[0-9]{1,18}(?:-[0-9a-f]{8})?")
NO_MARK: Final = EpochMark(0)
"""Mark before the first epoch. It is the same in all lakes."""


class RouteCommit(msgspec.Struct, frozen=True, rename="camel"):
    """A row of routeCommitTable, with its columns as encoded names.

    ``versions`` maps table name to Delta version. Times are aware, in UTC. ``query_id`` names the writer's checkpoint.
    ``outcomes`` are in log order. ``resume_time`` is the event time of the last RESUME, None if there was none.
    ``rules_version`` is that of the fold (`nameserver.state_machine.version`). ``chain`` is the digest of
    `lake.write.hash_chain`. ``preserve_time`` is the time since when no broker expires, None while brokers expire.
    """

    epoch: int
    log_offset: int
    liveness_offset: int
    event_time: datetime
    watermark: datetime
    commit_time: datetime
    versions: dict[str, int] = {}
    query_id: str = ""
    outcomes: tuple[CommandOutcome, ...] = ()
    resume_time: datetime | None = None
    rules_version: int = 0
    preserve_time: datetime | None = None
    chain: str = ""

    @property
    def resumed_ms(self) -> int:
        """Event time of the last RESUME, in milliseconds since 1970; 0 without a RESUME."""
        return 0 if self.resume_time is None else to_ms(self.resume_time)

    @property
    def preserved_ms(self) -> int:
        """Event time since when no broker expires, in milliseconds since 1970; 0 while brokers expire."""
        return 0 if self.preserve_time is None else to_ms(self.preserve_time)

    @property
    def columns(self) -> dict[str, Any]:
        """Values of the columns of routeCommitTable, without ``batchId``, and with decoded ``outcomes``."""
        found = msgspec.to_builtins(self, builtin_types=(datetime,))
        return {**found, "versions": list(self.versions.items())}

    @property
    def is_exact(self) -> bool:
        """Return True if brokerLiveTable lacks no heartbeat of this epoch."""
        return self.liveness_offset == self.log_offset

    @property
    def mark(self) -> EpochMark:
        """Mark with the epoch and eight digits that no other lake's epoch of that number has."""
        if not self.epoch:
            return NO_MARK
        said = f"{self.chain}|{self.epoch}|{self.log_offset}|{to_us(self.event_time)}|{to_us(self.commit_time)}"
        return EpochMark(self.epoch, hashlib.sha256(said.encode()).hexdigest()[:8])

    def without_outcomes(self) -> RouteCommit:
        """Return this commit without its outcomes (up to 20,000 for an epoch), for callers that keep many commits."""
        return msgspec.structs.replace(self, outcomes=()) if self.outcomes else self


NO_COMMIT: Final = RouteCommit(0, -1, -1, UNIX_EPOCH, UNIX_EPOCH, UNIX_EPOCH)
"""State before the first epoch. It includes nothing of the log, not even offset 0."""


def to_us(time: datetime) -> int:
    """Return an aware time in microseconds since 1970, exactly."""
    return (time - UNIX_EPOCH) // timedelta(microseconds=1)


def to_ms(time: datetime) -> int:
    """Return an aware time in milliseconds since 1970."""
    return to_us(time) // 1000


def from_ms(time_ms: int) -> datetime:
    """Convert milliseconds since 1970 to an aware time."""
    return from_us(time_ms * 1000)


def from_us(time_us: int) -> datetime:
    """Convert the result of `to_us` back."""
    return UNIX_EPOCH + timedelta(microseconds=time_us)
