# SPDX-License-Identifier: Apache-2.0
"""A proof in progress, and its results as sentences, in the order of discovery."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from lake.delta.log import File
from schemas.route_commit import RouteCommit

MAX_NAMED: Final = 100
"""Maximum number of refutations that are printed. Others are only counted."""

_REPORT_EVERY_S: Final = 2.0


Row = Sequence[Any]


class VerifyReport(msgspec.Struct, rename="camel"):
    """Result of a verification.

    Attributes:
        epoch: the newest epoch at the start, or 0 for none.
        digest: digest of that epoch in the chain.
        verified: verified statements.
        not_verified: statements that could not be verified, with reasons.
        refuted: refuted statements, with places.
        more_refuted: number of further refutations.
    """

    epoch: int = 0
    digest: str | None = None
    verified: list[str] = []
    not_verified: list[str] = []
    refuted: list[str] = []
    more_refuted: int = 0

    @property
    def exit_code(self) -> int:
        """Exit code: 0 verified, 1 refuted, 2 nothing could be verified."""
        if self.refuted:
            return 1
        return 0 if self.verified else 2

    def refute(self, what: str) -> None:
        """Add a refutation."""
        if len(self.refuted) < MAX_NAMED:
            self.refuted.append(what)
        else:
            self.more_refuted += 1

    def compare(self, where: str, names: Sequence[str], found: Row | None, replayed: Row | None) -> None:
        """Add the differences between a row and that of a replay. None is no row.

        Args:
            where: name of the row.
            names: names of its columns.
            found: values in the table.
            replayed: values from the replay.
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


@dataclass
class Proof:
    """Verification of a lake, on its tables at the last epoch.

    Attributes:
        lake_dir: directory of the lake.
        commits: all epochs, in order, at least one.
        files: files of routeCommitTable.
        report: report that collects the results.
        say: progress callback with a line of text.
        broken: epochs that the chain refutes.
    """

    lake_dir: str
    commits: Sequence[RouteCommit]
    files: Sequence[File]
    report: VerifyReport
    say: Callable[[str], None]
    broken: list[int] = field(default_factory=list)
    _reported_s: float = field(default_factory=time.monotonic)

    @property
    def last(self) -> RouteCommit:
        """The last epoch."""
        return self.commits[-1]

    def at(self, what: str, done: int, of: int) -> None:
        """Report the progress of a part from time to time."""
        if time.monotonic() - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = time.monotonic()
            self.say(f"{what}: {done:,} of {of:,}")


_SHOWN: Final = 120
"""Maximum characters of a value in a sentence."""


def shortened(value: object) -> str:
    """Format a value for a sentence, shortened to `_SHOWN` characters."""
    text = "null" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
