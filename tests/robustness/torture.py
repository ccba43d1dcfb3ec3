# SPDX-License-Identifier: Apache-2.0
"""One run: real processes, clients that do not give up, faults as planned; a record and what is left to be judged."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from lake.commits import last_commit
from peers.java import wait_until
from peers.routelake import Routelake
from tests.robustness.faults import Faults
from tests.robustness.plan import Plan
from tests.robustness.record import Recorder
from tests.robustness.workers import Playing

LIVENESS: Final = ("--liveness-interval-s", "0.2")
_START_S: Final = 180.0
_WELL_S: Final = 180.0
"""How long to wait until everything is well again; what counts as too long is the judge's."""
_FOLD_S: Final = 180.0

Say = Callable[[str], None]


class TortureFailed(Exception):
    """The run could not be brought to its end: that is a finding, too."""


def torture(
    plan: Plan,
    folder: Path,
    *,
    options: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    about: Mapping[str, str] | None = None,
    say: Say = print,
) -> Path:
    """Play a plan.

    Args:
        plan: see `tests.robustness.plan`.
        folder: gets `data`, the server's output and `record.jsonl`.
        options: of `serve`.
        environment: of its processes, on top of this one's.
        about: more about this run, for the record.
        say: told what happens.

    Returns:
        The record. Nothing writes to the data directory any more.

    Raises:
        TortureFailed: it did not start, did not get well, did not end.
    """
    record = folder / "record.jsonl"
    recorder = Recorder(record, {"seed": plan.seed, "seconds": plan.seconds, **(about or {})})
    server = Routelake(folder / "data", options=(*LIVENESS, *options), environment=environment)
    try:
        server.start(_START_S)
        _play(plan, server, recorder, say)
        _fold_everything(server, recorder)
        code = server.stop()
        if code != 0:
            raise TortureFailed(f"serve ended with {code}:\n{server.log_tail()}")
    except (TimeoutError, RuntimeError, AssertionError) as error:
        raise TortureFailed(f"{error}\nits output: {server.log_path}") from error
    finally:
        server.kill()
        recorder.close()
    return record


def _play(plan: Plan, server: Routelake, recorder: Recorder, say: Say) -> None:
    workers = [Playing(worker, server, recorder) for worker in plan.workers]
    faults = Faults(server)
    pause = threading.Event()
    started_s = time.monotonic()
    for worker in workers:
        worker.start()
    try:
        for fault in plan.faults:
            pause.wait(max(0.0, started_s + fault.at_s - time.monotonic()))
            injected = faults.inject(fault)
            recorder.fault(injected)
            say(f"{injected.begun_s - started_s:7.1f} s  {fault.kind}: {injected.detail}")
        last_s = time.monotonic()
        try:
            wait_until(server.is_whole, _WELL_S, "everything to be well by itself", 0.2)
            recorder.well(time.monotonic() - last_s)
        except TimeoutError as error:
            recorder.well(None)
            raise TortureFailed(f"{error}:\n{server.log_tail()}") from None
        say(f"{time.monotonic() - started_s:7.1f} s  well again {time.monotonic() - last_s:.1f} s after the last fault")
        pause.wait(max(0.0, started_s + plan.seconds - time.monotonic()))
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(60)
    defects = [f"{worker.name}: {worker.defect!r}" for worker in workers if worker.defect is not None]
    if defects:
        raise TortureFailed("; ".join(defects))
    say(f"{time.monotonic() - started_s:7.1f} s  {recorder.answers} answers")


def _fold_everything(server: Routelake, recorder: Recorder) -> None:
    """Wait until the tables hold whatever was acknowledged, heartbeats too."""

    def folded() -> bool:
        status = json.loads((server.lake_dir / "fold-status.json").read_text())
        return int(status["logOffset"]) >= recorder.newest_offset

    def complete() -> bool:
        last = last_commit(server.lake_dir)
        return last is not None and last.liveness_offset == last.log_offset

    wait_until(folded, _FOLD_S, "everything to be folded", 0.2)
    wait_until(complete, 60, "heartbeat times to be written", 0.2)
