# SPDX-License-Identifier: Apache-2.0
"""A log of a few hundred kilobytes that inflates to hundreds of megabytes, and does more yet, is folded within bounds."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from dev.peers.java import wait_until
from dev.peers.procfs import memory_bytes
from dev.peers.routelake import Routelake
from dev.support import events as make
from dev.support import lakes
from eventlog.sqlite.log import SqliteLog
from schemas.events import encode, routing_key

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(560)]

MIB = 1024 * 1024
VALUES, COMMANDS = 24, 18
TOPICS = 50_000

# As docs/how-to/operate/start-stop.md says ("Memory of the fold").
WORKER_MIB, FOLD_MIB, JVM_MIB = 768, 1280, 1024 + 640
GATEWAY_MIB = 1024


def test_what_was_accepted_before_there_were_bounds(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    log = SqliteLog(data_dir / "events.db")
    table = make.topics(*(f"topic-{number:06}" for number in range(TOPICS)))
    events = [
        *(make.put("n", "k", "abc"[number % 3] * 12 * MIB) for number in range(VALUES)),
        make.register(table=table, heartbeat_timeout_millis=24 * 3600 * 1000),  # however long the fold takes
        *(make.wipe() if number % 2 == 0 else make.add() for number in range(COMMANDS)),
        make.put("n", "k", "small"),
    ]
    for event in events:
        log.append([(routing_key(event), encode(event))])
    end = log.end().next_offset - 1
    log.close()
    assert sum(file.stat().st_size for file in data_dir.iterdir()) < 8 * MIB

    # Supervised: on a machine that has no time for it, Spark may give up on a Python worker, and is started again.
    serve = Routelake(data_dir).start(wait_ready_s=None)
    peaks: dict[int, tuple[str, int]] = {}

    def folded() -> bool:
        assert serve.process is not None
        assert serve.process.poll() is None, serve.log_tail()
        peaks.update(peaks_of(serve.process.pid))
        return serve.folded_offset() >= end

    try:
        wait_until(folded, 400, "the log to be folded", 0.1)
    finally:
        serve.stop()
    for kind, bound in (("fold", FOLD_MIB), ("java", JVM_MIB), ("worker", WORKER_MIB), ("gateway", GATEWAY_MIB)):
        found = [peak for name, peak in peaks.values() if name == kind]
        assert found, peaks
        assert max(found) < bound, peaks

    commits = lakes.commits(data_dir / "lake")
    assert len(commits) >= VALUES // 2, "two values of 12 MiB are a batch"
    assert lakes.state_tables(data_dir / "lake")["kvConfigTable"] == {("n", "k"): ("small",)}
    changes = DeltaTable(str(data_dir / "lake" / "routeChangeTable")).to_pyarrow_dataset()
    assert changes.count_rows(filter=pc.field("tableName") == "topicQueueTable") == TOPICS * (COMMANDS + 1)
    assert changes.count_rows(filter=pc.field("tableName") == "kvConfigTable") == VALUES + 1


def peaks_of(pid: int) -> dict[int, tuple[str, int]]:
    """Process id to kind and greatest resident memory so far, MiB: of a process and all that it started."""
    found: dict[int, tuple[str, int]] = {}
    with suppress(OSError):
        line = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        kinds = {
            "org.apache.spark.deploy": "java",
            "pyspark": "worker",
            "cli.child fold": "fold",
            "cli.child gateway": "gateway",
        }
        found[pid] = (next((kind for part, kind in kinds.items() if part in line), "other"), memory_bytes(pid) // MIB)
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # that thread has just ended
                for child in children.read_text().split():
                    found |= peaks_of(int(child))
    return found
