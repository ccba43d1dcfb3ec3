# SPDX-License-Identifier: Apache-2.0
"""A lake in which every table has rows, written by appends, merges and deletes; and compacted."""

from __future__ import annotations

from pathlib import Path

from dev.support import events as make
from dev.support.drive import DeltaLake, drive
from dev.support.fixed_log import FixedLog
from dev.support.generated_logs import Garbage, written
from eventlog.base import LogRecord
from lake.write.maintenance import Maintenance

ODD = "o'dd %2F/=ü"


def records() -> list[LogRecord]:
    """A history with a record that is no event."""
    mapped = {"T": make.mapping("T")}
    events = [
        make.register(topic_queue_mapping_info_map=mapped, filter_server_list=("f:1", "f:2"), zone_name="z"),
        make.register("b1:1", 1, filter_server_list=("f:3",)),
        make.register("o:1", name=ODD, cluster="d", table=make.topics("T", "ARROW:schema")),
        *(make.put("n", f"k{number}") for number in range(3)),
        make.put("n", "k0", "other"),
        make.delete("n", "k1"),
        make.wipe(),
        make.heartbeat(),
        make.register(table=make.topics("T", "W"), version=make.V2, topic_queue_mapping_info_map=mapped),
        make.register_topic("X"),
        make.delete_topic("U"),
        make.unregister("b1:1", 1),
        make.register("x:1", name="x"),
        make.unregister("x:1", name="x"),
        make.add(),
    ]
    return written([*((1_000, event) for event in events), (1_000, Garbage("b:", b"no event"))])


def write(lake_dir: Path) -> DeltaLake:
    """One epoch for each record."""
    return drive(lake_dir, [[record] for record in records()])


def compact(lake: DeltaLake) -> None:
    """Put all files of each partition together, and write checkpoints."""
    keeper = Maintenance(lake.writer.tables, FixedLog(records()), 30, 24)
    for name, table in lake.writer.tables.items():
        keeper._compact(name, [])
        table.checkpoint()
