# SPDX-License-Identifier: Apache-2.0
"""Processes of these tests, each ended by its id."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from dev.peers.java import wait_until
from dev.peers.routelake import ROOT
from schemas.errors import SetupError


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(*words: str) -> tuple[int, str]:
    """Exit code and what it printed."""
    process = start(*words)
    try:
        printed, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    return process.returncode, printed


def refusal(function: Callable[..., object], *arguments: object) -> str | None:
    """What a SetupError of a call says; None if it has succeeded. For a process of its own, which can hand back a text."""
    try:
        function(*arguments)
    except SetupError as error:
        return str(error)
    assert os.geteuid() == os.getegid() == 0
    return None


def routelake(*words: object) -> tuple[int, str]:
    return run("-m", "cli.main", *map(str, words))


@contextlib.contextmanager
def living(data_dir: Path) -> Iterator[None]:
    """A gateway and a fold work meanwhile, and are killed with -9 in the end."""
    before = epochs(data_dir)
    process = start("-m", "tests.ops.backup.live", str(data_dir))
    try:
        wait_until(lambda: process.poll() is not None or epochs(data_dir) > before + 3, 60, "some epochs")
        assert process.poll() is None, process.communicate()[0]
        yield
        assert process.poll() is None, process.communicate()[0]
    finally:
        process.kill()
        process.communicate()


def epochs(data_dir: Path) -> int:
    """Commits of routeCommitTable, without reading it."""
    log = data_dir / "lake" / "routeCommitTable" / "_delta_log"
    return next(number for number in count() if not (log / f"{number + 1:020d}.json").exists())
