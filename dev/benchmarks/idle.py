# SPDX-License-Identifier: Apache-2.0
"""idle: 20 brokers heartbeat each second and nothing else happens; what that costs, in cores, commits and bytes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path

from dev.benchmarks.harness.background import heartbeats
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.frames import Link, brokers, register_all
from dev.benchmarks.harness.machine import cpu_by_part, folder_bytes, proportional_bytes
from dev.benchmarks.harness.peers import routelake
from dev.benchmarks.harness.report import Figure, Result

BROKERS = 20
CORES, COMMITS_A_MINUTE, MEMORY_GB = 0.10, 60.0, 1.0
DAY_S = 86_400


def run(bench: Bench) -> Result:
    """Measure."""
    seconds = bench.size(120, 5)
    data = bench.folder / "data"
    with ExitStack() as stack:
        options = bench.serve_options
        lake = stack.enter_context(routelake(data, options))
        fleet = brokers(BROKERS, 50)
        register_all([stack.enter_context(Link(lake.port)) for _ in fleet], fleet)
        stack.enter_context(heartbeats(bench.folder, lake.port, fleet, BROKERS))
        time.sleep(bench.size(30, 1))  # the JVM compiles
        log_before, lake_before, commits_before = _sizes(data)
        before = cpu_by_part(*lake.pids)
        time.sleep(seconds)
        spent = {part: max(0.0, used - before.get(part, 0.0)) for part, used in cpu_by_part(*lake.pids).items()}
        log_after, lake_after, commits_after = _sizes(data)
        memory = proportional_bytes(*lake.pids)
    parts = ", ".join(f"{part} {used / seconds:.3f}" for part, used in sorted(spent.items()))
    commits = (commits_after - commits_before) / seconds * 60
    lake_day = (lake_after - lake_before) / seconds * DAY_S / 1e6
    log_day = (log_after - log_before) / seconds * DAY_S / 1e6
    figures = [
        Figure("cores, all processes", sum(spent.values()) / seconds, "cores", CORES, "at most", parts),
        Figure("table commits a minute", commits, "/min", COMMITS_A_MINUTE, "at most"),
        Figure("tables, growth a day", lake_day, "MB", note="before vacuum and log clean-up, which bound it"),
        Figure("event log, growth a day", log_day, "MB", note="trimmed after --event-log-retention-hours"),
        Figure("memory, all processes", memory / 1e9, "GB", MEMORY_GB, "at most", "proportional set size"),
    ]
    return Result("idle", figures, details={"seconds": seconds})


def _sizes(data: Path) -> tuple[int, int, int]:
    """Bytes of the log (its pages, not its write-ahead file), bytes of the lake, commits of all tables so far."""
    return log_bytes(data / "events.db"), folder_bytes(data / "lake"), len(set(commit_files(data / "lake")))


def log_bytes(events: Path) -> int:
    """Size of the pages of a SQLite file."""
    with closing(sqlite3.connect(f"{events.as_uri()}?mode=ro", uri=True)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(size)


def commit_files(lake: Path) -> Iterable[Path]:
    """Files of Delta commits."""
    return (path for path in lake.glob("*/_delta_log/*.json") if path.stem.isdigit())
