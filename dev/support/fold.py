# SPDX-License-Identifier: Apache-2.0
"""The fold and the writer without Spark: one shard, a batch at a time.

Spark's additions (checkpoints, two shards, its own batching) are not here. Rules, row changes, tables, commits,
intervals, maintenance, the publication to an object store and the status file are the product's own. `Fold.fold` folds
a batch on the thread of its caller, so that a test can let another fold do what it likes in between. `FoldThread`
follows a log::

    log = MemoryLog()
    with FoldThread(log, tmp_path / "lake") as fold:
        log.append([...])
        fold.wait_for(log.end().next_offset - 1)

Each goes on from where the lake ends, so a test may stop one and start another over the same folder.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dev.benchmarks.harness.shard import OneShard, spool_beside
from eventlog.base import EventLog, LogRecord
from lake.delta.ddl import open_lake, write_whole
from lake.history.intervals import IntervalKeeper
from lake.publisher import Publisher
from lake.store import Store
from lake.write.maintenance import Maintenance
from lake.write.seed import read_seed
from lake.write.writer import Epoch, LakeWriter, rewind
from pipelines.blocks import Record
from schemas.tables import FOLD_STATUS_FILE, ROUTE_CHANGE_TABLE

_IDLE_S: Final = 0.003
_runs: Final = itertools.count()


class Fold:
    """A fold over a lake in a folder, or in an object store with a copy in the folder.

    Args:
        log: The event log. The caller closes it.
        lake_dir: The lake, or its copy; made if it is not there.
        store: The lake, if it is in an object store. The lease is taken at once, even from another holder.
        term: Term of the fences in the object store.
        liveness_interval_s: Value of the fold's setting; 0 writes every heartbeat.
        retention_days: Retention of new tables.
        intervals: Whether the interval tables are kept, too.
    """

    def __init__(
        self,
        log: EventLog,
        lake_dir: Path,
        *,
        store: Store | None = None,
        term: int = 1,
        liveness_interval_s: float = 0.0,
        retention_days: int = 30,
        intervals: bool = False,
    ) -> None:
        self.lake_dir = lake_dir
        self._mirror = None if store is None else Publisher(store, lake_dir)
        if self._mirror is not None:
            self._mirror.fetch()
            self._mirror.fence(lake_dir.name, term)
        rewind(lake_dir, open_lake(lake_dir, retention_days=retention_days))
        seed = read_seed(lake_dir, log)
        self._log = log
        self._run_id = f"run-{time.monotonic_ns()}-{next(_runs)}"
        self._shard = OneShard(spool_beside(lake_dir), self._run_id, seed.state)
        self._next_offset = seed.next_offset
        self._batch_id = 0
        self.writer = LakeWriter(
            lake_dir, retention_days=retention_days, liveness_interval_s=liveness_interval_s, shards=1
        )
        self._keeper = IntervalKeeper(lake_dir) if intervals else None

    @property
    def publisher(self) -> Publisher:
        """Publisher to the object store."""
        assert self._mirror is not None, "this lake is in a folder"
        return self._mirror

    def fold(self, most: int = 1_000) -> Epoch | None:
        """Fold and publish everything that the log has more, up to so many records; the epoch, if it made one."""
        records = self._log.read(self._next_offset, most)
        epoch = self._write(records) if records else None
        if self._mirror is not None:
            self._mirror.publish()
        if self._keeper is not None:
            self._keeper._next_step_s = 0.0
            self._keeper.step(self.writer.epoch, self.writer.tables[ROUTE_CHANGE_TABLE.name].version)
        if self._mirror is not None:
            self._mirror.publish_rest()
        return epoch

    def _write(self, records: Sequence[LogRecord]) -> Epoch | None:
        """Fold a batch and write it; the epoch, if it made one."""
        batch = self._shard.batch((Record(*record) for record in records), epoch=self.writer.epoch + 1)
        epoch = self.writer.write(self._run_id, self._batch_id, batch)
        batch.close()
        self._batch_id += 1
        if records:
            self._next_offset = records[-1].offset + 1
        return epoch

    def _write_status(self) -> None:
        status = {
            "pid": 0,
            "batchId": self._batch_id,
            "epoch": self.writer.epoch,
            "logOffset": self.writer.log_offset,
            "timeMillis": round(time.time() * 1000),
        }
        write_whole(self.lake_dir / FOLD_STATUS_FILE, json.dumps(status))


class FoldThread(Fold):
    """A fold that follows a log on a thread of its own.

    Args:
        log: The event log. The caller closes it.
        lake_dir: The lake; made if it is not there.
        liveness_interval_s: Value of the fold's setting; 0 writes every heartbeat.
        retention_days: Retention of new tables.
        log_retention_hours: Value of the fold's setting. None: no maintenance, so tables keep the file of each commit.
        on_error: Callback on the fold's thread with the error that ended it. `wait_for`, `pause` and `stop` raise it, too.
    """

    def __init__(
        self,
        log: EventLog,
        lake_dir: Path,
        *,
        liveness_interval_s: float = 10.0,
        retention_days: int = 30,
        log_retention_hours: float | None = None,
        on_error: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """Read the seed; nothing runs before `start`."""
        super().__init__(log, lake_dir, liveness_interval_s=liveness_interval_s, retention_days=retention_days)
        self._maintenance = (
            None
            if log_retention_hours is None
            else Maintenance(self.writer.tables, log, retention_days, log_retention_hours)
        )
        self._on_error = on_error
        self._moved = threading.Condition()
        self._folded = self.writer.log_offset
        self._stop = threading.Event()
        self._running = threading.Event()
        self._running.set()
        self._quiet = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="fold", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Begin; the status file is there when this returns."""
        self._write_status()
        self._thread.start()

    def stop(self) -> None:
        """Stop between batches. Raises what went wrong, if anything did."""
        self._stop.set()
        self._running.set()
        if self._thread.is_alive():
            self._thread.join(30)
        self._raise_error()
        assert not self._thread.is_alive(), f"the fold does not stop; it is at\n{self._where()}"

    def pause(self) -> None:
        """Let events pile up. When this returns, no batch is under way."""
        self._running.clear()
        assert self._quiet.wait(30), f"the fold does not pause; it is at\n{self._where()}"
        self._raise_error()

    def resume(self) -> None:
        """Go on."""
        self._running.set()

    def wait_for(self, offset: int, timeout_s: float = 60.0) -> None:
        """Wait until everything up to a log offset is folded and, if it changed anything, committed."""
        with self._moved:
            done = self._moved.wait_for(lambda: self._folded >= offset or self.error is not None, timeout_s)
        self._raise_error()
        assert done, (
            f"offset {offset} was not folded within {timeout_s} s; at {self._folded}, which is\n{self._where()}"
        )

    def _raise_error(self) -> None:
        if self.error is not None:
            raise self.error

    def _where(self) -> str:
        """Return the stack of the thread."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else "no thread"

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._running.is_set():
                    self._quiet.set()
                    self._running.wait()
                    self._quiet.clear()
                    continue
                if not self._batch():
                    self._stop.wait(_IDLE_S)
        except BaseException as error:
            # A test that waits for what this thread will not do any more must say why, whatever it waits by.
            self.error = error
            traceback.print_exc()
            self._on_error(error)
        finally:
            self._quiet.set()
            with self._moved:
                self._moved.notify_all()

    def _batch(self) -> bool:
        records = self._log.read(self._next_offset)
        if not records:
            return False
        self._write(records)
        self._write_status()
        if self._maintenance is not None:
            self._maintenance.step(self.writer)
        with self._moved:
            self._folded = records[-1].offset
            self._moved.notify_all()
        return True
