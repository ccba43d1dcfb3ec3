# SPDX-License-Identifier: Apache-2.0
"""One run: real processes, clients that do not give up, faults as planned; a record and what is left to be judged."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from dev.fault_injection.evidence import read_log
from dev.fault_injection.faults import Faults
from dev.fault_injection.followers import Follower
from dev.fault_injection.plan import REST, Plan, Worker
from dev.fault_injection.record import Recorder
from dev.fault_injection.workers import Address, Playing
from dev.fault_injection.world import Setup, World, possible
from dev.peers.java import JavaProcessFailed, wait_until
from eventlog.open import open_log
from lake.commits import last_commit

_WELL_S: Final = 180.0
"""Time to wait until everything is healthy again, in seconds; the judge decides what is too long."""
_FOLD_S: Final = 180.0

Say = Callable[[str], None]


class TortureFailed(Exception):
    """The run could not be brought to its end: that is a finding, too."""


def torture(plan: Plan, folder: Path, setup: Setup | None = None, *, say: Say = print) -> None:
    """Play a plan.

    Args:
        plan: see `dev.fault_injection.plan`; faults that this setup has no means for are left out.
        folder: gets `data`, `log.jsonl`, the servers' output and `record.jsonl`. Nothing writes to it afterwards.
        setup: what it is played against.
        say: told what happens.

    Raises:
        TortureFailed: it did not start, did not fold everything, did not end.
    """
    setup = setup or Setup()
    kinds = possible({fault.kind for fault in plan.faults}, setup)
    ahead_s = time.time() - time.monotonic()
    planned = Counter(fault.kind for fault in plan.faults if fault.kind in (*kinds, REST))
    pace = max(worker.pace for worker in plan.workers)
    about = {"seed": plan.seed, "seconds": plan.seconds, "pace": pace, "wall_ahead_s": ahead_s, **asdict(setup)}
    about |= {"planned": planned}
    recorder = Recorder(folder / "record.jsonl", about)
    world = World(folder, setup, kinds, plan.seconds)
    try:
        with world:
            _play(plan, kinds, world, recorder, say)
            _fold_everything(world, recorder)
            codes = world.stop()
            if any(codes):
                raise TortureFailed(f"exit codes {codes}:\n{world.server.log_tail()}")
            _keep_log(world.log_url, folder / "log.jsonl")
    except (TimeoutError, RuntimeError, AssertionError, JavaProcessFailed) as error:
        raise TortureFailed(f"{error}\nsee {folder}") from error
    finally:
        recorder.close()


def _play(plan: Plan, kinds: tuple[str, ...], world: World, recorder: Recorder, say: Say) -> None:
    workers = [_worker(worker, world, recorder) for worker in plan.workers]
    faults = Faults(world, lambda: sum(worker.cut() for worker in workers))
    pause = threading.Event()
    started_s, rested_s = time.monotonic(), 0.0
    for worker in workers:
        worker.start()
    try:
        for fault in plan.faults:
            if fault.kind == REST:
                begun_s = time.monotonic()
                what = "well again" if _rest(world, recorder) else "not well"
                rest_s = time.monotonic() - begun_s
                say(f"{time.monotonic() - started_s:7.1f} s  {what} {rest_s:.1f} s after the last fault")
                rested_s += rest_s
                continue
            pause.wait(max(0.0, started_s + rested_s + fault.at_s - time.monotonic()))
            if fault.kind not in kinds:
                continue
            injected = faults.inject(fault)
            recorder.fault(injected)
            say(f"{injected.begun_s - started_s:7.1f} s  {fault.kind}: {injected.detail}")
        pause.wait(max(0.0, started_s + rested_s + plan.seconds - time.monotonic()))
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(60)
    defects = [f"{worker.name}: {worker.defect!r}" for worker in workers if worker.defect is not None]
    if defects:
        raise TortureFailed("; ".join(defects))
    say(f"{time.monotonic() - started_s:7.1f} s  {recorder.answers} answers")


def _worker(worker: Worker, world: World, recorder: Recorder) -> Playing | Follower:
    server = world.gateways[worker.gateway]
    if worker.role == "follower":
        return Follower(worker, server, recorder)
    others: dict[int, Address] = {}
    if worker.both:
        others = {number: other for number, other in enumerate(world.gateways) if number != worker.gateway}
    if worker.near_second and world.machine is not None:
        return Playing(worker, server, recorder, others, world.machine.enter)
    return Playing(worker, server, recorder, others)


def _rest(world: World, recorder: Recorder) -> bool:
    """Nothing happens until everything is well by itself: writes are taken, and folded, and no check says otherwise.

    Returns:
        False if that never came: the judge will say so, and of what else is wrong perhaps why.
    """
    begun_s = time.monotonic()
    before = recorder.newest_offset
    try:
        wait_until(lambda: recorder.newest_offset > before, _WELL_S, "a write to be taken", 0.2)
        taken = recorder.newest_offset
        wait_until(
            lambda: _folded(world) >= taken and world.is_whole(), _WELL_S, "everything to be well by itself", 0.2
        )
    except TimeoutError:
        recorder.rest(None)
        return False
    recorder.rest(time.monotonic() - begun_s)
    return True


def _fold_everything(world: World, recorder: Recorder) -> None:
    """Wait until the fold says that the tables hold everything there is; the judge sees whether they do."""
    log = open_log(world.log_url)
    try:
        end = log.end().next_offset - 1
    finally:
        log.close()

    def complete() -> bool:
        last = last_commit(world.server.lake_dir)
        return last is not None and last.liveness_offset == last.log_offset

    wait_until(lambda: _folded(world) >= end, _FOLD_S, "everything to be folded", 0.2)
    recorder.folded(end)
    wait_until(complete, 60, "heartbeat times to be written", 0.2)


def _folded(world: World) -> int:
    """Return the offset up to which the fold reports to be; -1 if it reports nothing yet."""
    try:
        return int(json.loads((world.server.lake_dir / "fold-status.json").read_text())["logOffset"])
    except FileNotFoundError:
        return -1


def _keep_log(url: str, path: Path) -> None:
    """The log as JSON lines, for a judge who has no Kafka."""
    with path.open("w", encoding="utf-8") as file:
        for offset, time_ms, key, payload in read_log(url):
            file.write(json.dumps([offset, time_ms, key, base64.b64encode(payload).decode()]) + "\n")
