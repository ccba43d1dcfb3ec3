# SPDX-License-Identifier: Apache-2.0
"""From the end of the fold until an epoch of the standby's is in the store: ``./routelake bench failover``.

Real folds with Spark, each with a folder of its own; the lake in versitygw, the log in SQLite. The event that the epoch
shows is written as the fold ends: by SIGKILL and by SIGTERM in turn, which gives the lake back.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from api.gateway.follower import Follower
from dev.benchmarks.harness.report import median
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.peers.versitygw import VersityGw
from eventlog.base import EventLog
from eventlog.open import open_log
from schemas.events import Actor, PutKvConfig, encode, routing_key

URL = "s3://lake/failover"
WAIT_S = 180.0


def main() -> None:
    """Measure; print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="How often a fold is killed, and how often one is stopped."
    )
    rounds = parser.parse_args().rounds
    taken: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGTERM: []}
    shown: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGTERM: []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="routelake-failover-")))
        os.environ.update(stack.enter_context(VersityGw()).environment)  # also for the follower, which reads it later
        log_url = f"sqlite://{folder}/events.db"
        log = stack.enter_context(closing(open_log(log_url)))
        options = ("--lake", URL, "--event-log", log_url, "--standby")
        folds = [Routelake(folder / name, "fold", options) for name in ("one", "two")]
        for fold in folds:
            stack.callback(fold.kill)
        follower = Follower(URL, lambda view, outcomes: None)
        stack.callback(follower.stop)
        holder, standby = folds
        _start(holder, "took the lake")
        follower.start()
        for number, end in enumerate([signal.SIGKILL, signal.SIGTERM] * rounds):
            _wait_for(follower, _append(log, f"before-{number}"))
            _start(standby, "standing by")
            assert holder.process is not None
            log_path = standby.log_path
            took = log_path.read_text().count("took the lake")
            began_s = time.perf_counter()
            if end is signal.SIGKILL:
                os.killpg(holder.process.pid, end)
            else:
                holder.process.send_signal(end)
            holder.process.wait(60)
            offset = _append(log, f"after-{number}")
            follower.expect(offset)

            def took_over(log_path: Path = log_path, took: int = took) -> bool:
                return log_path.read_text().count("took the lake") > took

            wait_until(took_over, WAIT_S, "a take-over", 0.02)
            taken[end].append(time.perf_counter() - began_s)
            _wait_for(follower, offset)
            shown[end].append(time.perf_counter() - began_s)
            print(
                f"{end.name}: taken over after {taken[end][-1]:.1f} s, first epoch after {shown[end][-1]:.1f} s",
                flush=True,
            )
            holder, standby = standby, holder
    for what, seen in (("taken over", taken), ("first epoch", shown)):
        for end, times_s in seen.items():
            said = f"p50 {median(times_s):.1f} s, at most {max(times_s):.1f} s, of {len(times_s)}"
            print(f"{end.name} {what:12} {said}", flush=True)


def _start(fold: Routelake, says: str) -> None:
    before = fold.log_path.read_text().count(says) if fold.log_path.exists() else 0
    fold.start(wait_ready_s=None)

    def has_said() -> bool:
        assert fold.process is not None and fold.process.poll() is None, fold.log_tail()
        return fold.log_path.read_text().count(says) > before

    wait_until(has_said, WAIT_S, f"a fold to say {says!r}", 0.1)


def _append(log: EventLog, value: str) -> int:
    event = PutKvConfig(actor=Actor(gateway="bench", via="routelake"), namespace="bench", key="k", value=value)
    (appended,) = log.append([(routing_key(event), encode(event))])
    return appended.offset


def _wait_for(follower: Follower, offset: int) -> None:
    follower.expect(offset)
    wait_until(lambda: follower.view.log_offset >= offset, WAIT_S, f"offset {offset} in the tables", 0.02)


if __name__ == "__main__":
    main()
