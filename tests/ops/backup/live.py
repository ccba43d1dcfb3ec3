# SPDX-License-Identifier: Apache-2.0
"""Gateway and fold in one process without Spark: events go to the log, and the log is folded into the lake.

    python -m tests.ops.backup.live DATA_DIR [CHANGES]

Goes on with what is in the data directory, as a start does. Without CHANGES it goes on until it is killed.
"""

from __future__ import annotations

import itertools
import sys
import uuid
from contextlib import closing
from pathlib import Path

from dev.support import events as make
from dev.support import lakes
from dev.support.drive import SHARDS, DeltaLake, open_writer
from dev.support.expected import Expected
from dev.support.microbatches import Query
from eventlog.base import LogRecord
from eventlog.sqlite.log import SqliteLog
from lake.delta.ddl import lock_lake, open_lake
from lake.write.seed import read_seed
from lake.write.writer import rewind
from schemas.events import encode, routing_key


def go_on(data_dir: Path, changes: int | None = None) -> None:
    """Each change brings a key and a broker, and is an epoch."""
    lake_dir = data_dir / "lake"
    with closing(lock_lake(lake_dir)), closing(SqliteLog(data_dir / "events.db")) as log:
        tables = open_lake(lake_dir, retention_days=30)
        rewind(lake_dir, tables)
        seed = read_seed(lake_dir, log)
        query = Query(SHARDS, seed=seed.state)
        query.lake = DeltaLake(open_writer(lake_dir), query_id=uuid.uuid4().hex)
        offset = max(seed.next_offset, 1)
        start = log.end().next_offset
        for number in itertools.count(start) if changes is None else range(start, start + changes):
            events = (make.put("n", str(number)), make.register(f"x:{number}", name=f"x{number % 7}"))
            log.append([(routing_key(event), encode(event)) for event in events])
            records = log.read(offset)
            query.run(records)
            offset = records[-1].offset + 1


def all_records(data_dir: Path) -> list[LogRecord]:
    with closing(SqliteLog(data_dir / "events.db")) as log:
        return log.read(0, max_records=10**9, max_bytes=10**12)


def assert_whole(data_dir: Path) -> int:
    """The log has no hole, and the tables of the last epoch hold what it says up to there; returns that offset."""
    records = all_records(data_dir)
    assert [record.offset for record in records] == list(range(1, len(records) + 1))
    (last,) = lakes.commits(data_dir / "lake")[-1:]
    folded = [record for record in records if record.offset <= last["logOffset"]]
    assert lakes.last_epoch_tables(data_dir / "lake") == Expected(folded).tables()
    return int(last["logOffset"])


if __name__ == "__main__":
    go_on(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
