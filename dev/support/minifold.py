# SPDX-License-Identifier: Apache-2.0
"""The real fold and the real writer without Spark: a thread that reads a log, folds one shard, writes epochs.

What Spark adds (checkpoints, two shards, its own batching) is not here; rules, row changes, tables, commits and the
status file are the product's own. Use it wherever a test needs a lake that follows a log::

    log = MemoryLog()
    with MiniFold(log, tmp_path / "lake") as fold:
        log.append([...])
        fold.wait_for(log.end().next_offset - 1)

It goes on from where the lake ends, so a test may stop one and start another over the same folder.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dev.benchmarks.harness.shard import OneShard, spool_beside
from eventlog.base import EventLog, LogRecord
from lake.delta.ddl import open_lake, write_whole
from lake.write.seed import read_seed
from lake.write.writer import LakeWriter
from pipelines.shard_fold import Record
from schemas.tables import FOLD_STATUS_FILE

_IDLE_S = 0.003


class MiniFold:
    """Folds a log into a lake on a thread of its own.

    Args:
        log: The event log. Stays the caller's.
        lake_dir: The lake; made if it is not there.
        liveness_interval_s: As the fold's setting; 0 writes every heartbeat.
        retention_days: For new tables.
        on_error: Is told, on the fold's thread, why it ended early; so are `wait_for`, `pause` and `stop`.
    """

    def __init__(
        self,
        log: EventLog,
        lake_dir: Path,
        *,
        liveness_interval_s: float = 10.0,
        retention_days: int = 30,
        on_error: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """Read the seed; nothing runs before `start`."""
        self.lake_dir = lake_dir
        self._log = log
        self._on_error = on_error
        open_lake(lake_dir, retention_days=retention_days)
        seed = read_seed(lake_dir, log)
        self._next_offset = seed.next_offset
        self._run_id = f"mini-{time.monotonic_ns()}"
        self._shard = OneShard(self._run_id, seed.state, spool_beside(lake_dir))
        self._batch_id = 0
        self.writer = LakeWriter(
            lake_dir, retention_days=retention_days, liveness_interval_s=liveness_interval_s, shards=1
        )
        self._moved = threading.Condition()
        self._folded = self.writer.log_offset
        self._stop = threading.Event()
        self._running = threading.Event()
        self._running.set()
        self._quiet = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="minifold", daemon=True)

    # --- life ---

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

    def wait_for(self, offset: int, timeout_s: float = 30.0) -> None:
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
        """What the thread is doing."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else "no thread"

    # --- the loop ---

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
        self._fold(records)
        self._batch_id += 1
        self._next_offset = records[-1].offset + 1
        self._write_status()
        with self._moved:
            self._folded = records[-1].offset
            self._moved.notify_all()
        return True

    def _fold(self, records: Sequence[LogRecord]) -> None:
        folded = self._shard.batch((Record(*record) for record in records), epoch=self.writer.epoch + 1)
        self.writer.write(self._run_id, self._batch_id, folded)
        folded.close()

    def _write_status(self) -> None:
        status = {
            "pid": 0,
            "batchId": self._batch_id,
            "epoch": self.writer.epoch,
            "logOffset": self.writer.log_offset,
            "timeMillis": round(time.time() * 1000),
        }
        write_whole(self.lake_dir / FOLD_STATUS_FILE, json.dumps(status))
