# SPDX-License-Identifier: Apache-2.0
"""Findings of a verification: sentences, in the order in which they were found."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

MAX_NAMED: Final = 100
"""Number of refutations that are printed; the others are only counted."""

_REPORT_EVERY_S: Final = 2.0


class VerifyReport(msgspec.Struct, rename="camel"):
    """The result.

    Attributes:
        epoch: the newest epoch at the time; 0 for none.
        digest: its digest in the chain.
        proved: what holds.
        not_proved: what could not be found out, and why.
        refuted: what does not hold, and where.
        more_refuted: how many further ones there are.
    """

    epoch: int = 0
    digest: str | None = None
    proved: list[str] = []
    not_proved: list[str] = []
    refuted: list[str] = []
    more_refuted: int = 0

    @property
    def exit_code(self) -> int:
        """0 proved, 1 refuted, 2 nothing could be proved."""
        if self.refuted:
            return 1
        return 0 if self.proved else 2

    def refute(self, what: str) -> None:
        """Note what does not hold."""
        if len(self.refuted) < MAX_NAMED:
            self.refuted.append(what)
        else:
            self.more_refuted += 1

    @property
    def refutations(self) -> int:
        """Number of refutations."""
        return len(self.refuted) + self.more_refuted


class Progress:
    """Tells now and then how far a part is.

    Args:
        say: is given a line.
        clock: seconds.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._reported_s = clock()

    def at(self, what: str, done: int, of: int) -> None:
        """So much of a part is done."""
        if self._clock() - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = self._clock()
            self._say(f"{what}: {done:,} of {of:,}")


_SHOWN: Final = 120
"""Characters of a value in a sentence."""


def shortened(value: object) -> str:
    """A value in a sentence."""
    text = "null" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
