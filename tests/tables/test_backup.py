"""The back-up of docs/operations.md, taken while the fold writes, is a lake that goes on."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
from itertools import count
from pathlib import Path

from pipelines.log.base import LogRecord
from pipelines.tables.ddl import lock_lake, open_lake
from pipelines.tables.seed import read_seed
from pipelines.tables.writer import rewind
from tests.fold import events as make
from tests.fold.expected import Expected
from tests.fold.logs import written
from tests.fold.microbatches import Query
from tests.support import lakes
from tests.support.java import wait_until
from tests.tables.drive import SHARDS, DeltaLake, open_writer
from tests.tables.fixed_log import FixedLog

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def records(changes: int) -> list[LogRecord]:
    """Each brings a key and a broker."""
    pairs = ((make.put("n", str(n)), make.register(f"x:{n}", name=f"x{n % 7}")) for n in range(changes))
    return written([(10, event) for pair in pairs for event in pair])


def fold_for_ever(lake_dir: Path) -> None:
    held = lock_lake(lake_dir)
    query = Query(SHARDS)
    query.lake = DeltaLake(open_writer(lake_dir))
    log = records(1000)
    for start in range(0, len(log), 2):
        query.run(log[start : start + 2])
    held.close()


def test_a_backup_of_a_lake_that_is_being_written(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    backup.mkdir()
    fold = multiprocessing.get_context("spawn").Process(target=fold_for_ever, args=(data / "lake",))
    fold.start()
    try:
        wait_until(lambda: epochs(data) > 5, 60, "some epochs")
        subprocess.run(["bash", "-euc", commands(data, backup)], check=True, timeout=60)
        copied = epochs(backup)
        wait_until(lambda: epochs(data) > copied + 2, 60, "the fold to go on")
    finally:
        fold.kill()
        fold.join()

    tables = open_lake(backup / "lake", retention_days=30)
    rewind(backup / "lake", tables)
    log = records(copied + 3)
    seed = read_seed(backup / "lake", FixedLog(log))
    folded = [record for record in log if record.offset < seed.next_offset]
    assert lakes.state_tables(backup / "lake") == Expected(folded).settle().tables()
    again = Query(SHARDS, seed=seed.state)
    again.lake = DeltaLake(open_writer(backup / "lake"), query_id="q2")
    again.run(log[len(folded) :])
    again.run([])
    assert lakes.last_epoch_tables(backup / "lake") == Expected(log).settle().tables()


def epochs(directory: Path) -> int:
    """Commits of routeCommitTable, without reading it."""
    log = directory / "lake" / "routeCommitTable" / "_delta_log"
    return next(number for number in count() if not (log / f"{number + 1:020d}.json").exists())


def commands(data: Path, backup: Path) -> str:
    """The shell commands of the document, but for the one that needs SQLite's shell."""
    (block,) = re.findall(r"```\n(kill -STOP.*?)```", OPERATIONS.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for line in block.splitlines() if not line.startswith("sqlite3")]
    assert len(lines) == 3
    return "\n".join(lines).replace("DATA_DIR", str(data)).replace("BACKUP", str(backup))
