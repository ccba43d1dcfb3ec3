# SPDX-License-Identifier: Apache-2.0
"""A proof in progress, and its findings: sentences, in the order in which they were found."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from lake.delta.log import File
from schemas.route_commit import RouteCommit

MAX_NAMED: Final = 100
"""Number of refutations that are printed; the others are only counted."""

_REPORT_EVERY_S: Final = 2.0


Row = Sequence[Any]


class VerifyReport(msgspec.Struct, rename="camel"):
    """The result.

    Attributes:
        epoch: the newest epoch at the time; 0 for none.
        digest: its digest in the chain.
        verified: what holds.
        not_verified: what could not be found out, and why.
        refuted: what does not hold, and where.
        more_refuted: how many further ones there are.
    """

    epoch: int = 0
    digest: str | None = None
    verified: list[str] = []
    not_verified: list[str] = []
    refuted: list[str] = []
    more_refuted: int = 0

    @property
    def exit_code(self) -> int:
        """0 verified, 1 refuted, 2 nothing could be verified."""
        if self.refuted:
            return 1
        return 0 if self.verified else 2

    def refute(self, what: str) -> None:
        """Note what does not hold."""
        if len(self.refuted) < MAX_NAMED:
            self.refuted.append(what)
        else:
            self.more_refuted += 1

    def compare(self, where: str, names: Sequence[str], found: Row | None, replayed: Row | None) -> None:
        """Note how a row differs from that of a replay; None is no row.

        Args:
            where: names the row.
            names: of its columns.
            found: its values.
            replayed: those that a replay gives.
        """
        if found is None:
            self.refute(f"{where}: there is no such row; a replay has it")
        elif replayed is None:
            self.refute(f"{where}: there is such a row; a replay has none")
        else:
            for name, value, wanted in zip(names, found, replayed, strict=True):
                if value != wanted:
                    self.refute(
                        f"{where}: column {name} is {shortened(value)}, and by a replay of the log {shortened(wanted)}"
                    )

    @property
    def refutations(self) -> int:
        """Number of refutations."""
        return len(self.refuted) + self.more_refuted


class Proof:
    """The proof of a lake, on its tables at the last epoch.

    Args:
        lake_dir: directory of the lake.
        commits: all epochs, in order; there is at least one.
        files: of routeCommitTable.
        report: takes what was found.
        say: is given a line now and then.

    Attributes:
        last: the last epoch.
        broken: epochs that the chain refutes.
    """

    def __init__(
        self,
        lake_dir: str,
        commits: Sequence[RouteCommit],
        files: Sequence[File],
        report: VerifyReport,
        say: Callable[[str], None],
    ) -> None:
        self.lake_dir = lake_dir
        self.commits = commits
        self.files = files
        self.report = report
        self.last = commits[-1]
        self.broken: list[int] = []
        self._say = say
        self._reported_s = time.monotonic()

    def at(self, what: str, done: int, of: int) -> None:
        """Say now and then how much of a part is done."""
        if time.monotonic() - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = time.monotonic()
            self._say(f"{what}: {done:,} of {of:,}")


_SHOWN: Final = 120
"""Characters of a value in a sentence."""


def shortened(value: object) -> str:
    """A value in a sentence."""
    text = "null" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
