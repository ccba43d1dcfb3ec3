# SPDX-License-Identifier: Apache-2.0
"""stored-bytes: what events and commits add to the event log and to the tables, in bytes. They depend on no load."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import msgspec

from dev.benchmarks.harness.lake import Group, LakeMaker, topic_name
from dev.benchmarks.harness.machine import folder_bytes
from dev.benchmarks.idle import log_bytes
from schemas.events import encode

GROUPS: Final = (20, 300, 1_000)
TOPICS: Final = 50
COMMITS: Final = 40


def main() -> None:
    """Print a table."""
    group = Group(7, TOPICS)
    full = group.event()
    print("| payload | bytes |\n|---|---|")
    print(f"| heartbeat | {len(encode(group.heartbeat())):,} |")
    print(f"| unchanged registration | {len(encode(msgspec.structs.replace(full, topic_config_table=None))):,} |")
    print(f"| registration with {TOPICS} topics | {len(encode(full)):,} |")
    print("\n| broker groups | log, a heartbeat | tables, a commit of heartbeats | tables, a commit of a change |")
    print("|---|---|---|---|")
    for count in GROUPS:
        with tempfile.TemporaryDirectory() as folder:
            heartbeat, liveness, change = _measure(Path(folder) / "data", count)
        print(f"| {count:,} | {heartbeat:,.0f} | {liveness:,.0f} | {change:,.0f} |")


def _measure(data: Path, count: int) -> tuple[float, float, float]:
    """Bytes of a heartbeat in the log, of a commit of heartbeats and of a commit of a change in the tables."""
    with LakeMaker(data, liveness_interval_s=0.0) as maker:
        groups = [Group(number, TOPICS) for number in range(count)]
        maker.batch([group.event() for group in groups])
        log, tables = log_bytes(data / "events.db"), folder_bytes(data / "lake")
        for _ in range(COMMITS):
            maker.batch([group.heartbeat() for group in groups])
        heartbeat = (log_bytes(data / "events.db") - log) / COMMITS / count
        liveness = (folder_bytes(data / "lake") - tables) / COMMITS
        tables = folder_bytes(data / "lake")
        for number in range(COMMITS):
            changed = groups[number % count]
            changed.change(topic_name(number % TOPICS))
            maker.batch([changed.event()])
        return heartbeat, liveness, (folder_bytes(data / "lake") - tables) / COMMITS


if __name__ == "__main__":
    main()
