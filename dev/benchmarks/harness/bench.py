# SPDX-License-Identifier: Apache-2.0
"""Parameters of a bench, and the list of all benches."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from dev.benchmarks.harness.report import BENCHES, Result

MICRO: Final = (
    "cluster",
    "event-log",
    "failover",
    "fold-load",
    "history-cost",
    "history-pairs",
    "remote-epoch",
    "remote-follow",
    "remoting-codec",
    "stored-bytes",
    "view-load",
)
"""Older ones, of single parts, without targets: they run only when they are named, and print for themselves."""
IN_ROUNDS: Final = frozenset({"failover", "history-pairs"})
"""Benches that get the number of rounds."""


__all__ = ["BENCHES", "IN_ROUNDS", "MICRO", "Bench", "run_of"]


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a measurement.

    Attributes:
        folder: Folder for data and frames, deleted afterwards.
        rounds: Number of measurements of each side.
        quick: Small sizes and short times: shows that it runs, not how fast.
        grown_epochs: Epochs of `growth`, when not quick.
        serve_options: More options of `./routelake serve` or `gateway`.
        say: Prints progress.
    """

    folder: Path
    rounds: int = 5
    quick: bool = False
    grown_epochs: int = 100_000
    serve_options: tuple[str, ...] = ()
    say: Callable[[str], None] = print

    @property
    def seconds(self) -> float:
        """Duration of one measurement under load, in seconds."""
        return 1.0 if self.quick else 5.0

    @property
    def warmup_s(self) -> float:
        """Before each measurement."""
        return 0.5 if self.quick else 2.0

    @property
    def epochs(self) -> int:
        """Number of epochs of the lake that `growth` makes."""
        return min(self.grown_epochs, 60) if self.quick else self.grown_epochs

    def size(self, full: int, quick: int) -> int:
        """One of two sizes."""
        return quick if self.quick else full


def run_of(name: str) -> Callable[[Bench], Result]:
    """The `run` of a bench's module."""
    run: Callable[[Bench], Result] = import_module(f"dev.benchmarks.{name.replace('-', '_')}").run
    return run
