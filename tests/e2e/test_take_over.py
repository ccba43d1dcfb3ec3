# SPDX-License-Identifier: Apache-2.0
"""Who holds a lake in an object store, by processes that are killed and stopped: the fold's own start, mostly without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.peers.java import wait_until
from dev.peers.routelake import ROOT, Routelake
from dev.peers.stopped import stopped
from dev.support import lakes
from dev.support.fold import Fold
from dev.support.s3 import FakeS3, fake_s3
from eventlog.open import open_log
from lake.store import open_store

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(600)]

URL = "s3://lake/held"

FOLD = """
import sys
import pipelines.main as main
from cli.main import app
from cli.usage import run

def fold(spark, settings, stop, publisher):
    print("folds", flush=True)
    while not stop.wait(0.1):
        if publisher.lost is not None:
            raise main.FencedError(publisher.lost)
    return 0

main.spark_session, main._fold, main.end_jvm = lambda settings: object(), fold, lambda spark: None
raise SystemExit(run(app, sys.argv[1:]))
"""


class FoldProcess:
    """A process with a query that only checks whether it may go on."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self.output = folder / f"{name}.txt"
        command = [sys.executable, "-c", FOLD, "fold", "--data-dir", str(folder / name), "--lake", URL]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "--event-log", f"sqlite://{folder}/events.db", *options],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )

    def said(self) -> str:
        return self.output.read_text()

    def wait_to_say(self, text: str, timeout_s: float = 90.0) -> float:
        def found() -> bool:
            assert self.process.poll() is None or text in self.said(), self.said()
            return text in self.said()

        return wait_until(found, timeout_s, f"{self.output.name} to say {text!r}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def s3() -> Iterator[FakeS3]:
    with pytest.MonkeyPatch.context() as patch, fake_s3(patch) as server:
        yield server


def test_killed_paused_and_stopped_in_turn(tmp_path: Path, s3: FakeS3) -> None:
    log = open_log(f"sqlite://{tmp_path}/events.db")
    Fold(log, tmp_path / "copy", store=open_store(URL)).fold()  # so that there is something to fence
    log.close()
    one = FoldProcess(tmp_path, "one")
    folds = [one]
    try:
        one.wait_to_say("folds")
        refused = FoldProcess(tmp_path, "refused")
        folds.append(refused)
        assert refused.process.wait(90) == 1, refused.said()
        assert "held by another fold" in refused.said() and "--standby" in refused.said()

        two = FoldProcess(tmp_path, "two", "--standby")
        folds.append(two)
        two.wait_to_say("standing by")
        one.kill()
        killed_s = time.monotonic()
        two.wait_to_say("folds", 30)
        print(f"taken over {time.monotonic() - killed_s:.1f} s after a crash")

        three = FoldProcess(tmp_path, "three", "--standby")
        folds.append(three)
        three.wait_to_say("standing by")
        with stopped([two.process.pid]):
            three.wait_to_say("folds", 90)
        assert two.process.wait(90) == 1, two.said()
        assert f"the lease of {URL} is held by" in two.said()

        four = FoldProcess(tmp_path, "four", "--standby")
        folds.append(four)
        four.wait_to_say("standing by")
        three.process.send_signal(signal.SIGTERM)
        stopped_s = time.monotonic()
        assert three.process.wait(60) == 0, three.said()
        four.wait_to_say("folds", 20)
        print(f"taken over {time.monotonic() - stopped_s:.1f} s after a stop")

        again = FoldProcess(tmp_path, "four", "--standby")  # the same data directory: one process at a time
        folds.append(again)
        assert again.process.wait(90) == 2, again.said()
        four.kill()
        restarted = FoldProcess(tmp_path, "four")
        folds.append(restarted)
        began_s = time.monotonic()
        wait_until(lambda: restarted.said().count("folds") == 2, 90, "the lake to be taken again")
        print(f"{time.monotonic() - began_s:.1f} s after a restart in the same place")
        log = open_log(f"sqlite://{tmp_path}/events.db")
        last = Fold(log, tmp_path / "last", store=open_store(URL))
        lakes.check_epochs(last.lake_dir)
        log.close()
    finally:
        for fold in folds:
            fold.kill()
            print(fold.said())


def test_a_second_fold_of_an_empty_lake_reports_it_and_recovers(tmp_path: Path, s3: FakeS3) -> None:
    standby = FoldProcess(tmp_path, "standby", "--standby")
    folds = [standby]
    machine = Routelake(tmp_path / "machine", "serve", ("--lake", URL), s3.environment)
    try:
        standby.wait_to_say("folds")  # it was the quicker one
        for number in (1, 2):  # as often as a supervisor likes
            second = FoldProcess(tmp_path, "second")
            folds.append(second)
            assert second.process.wait(90) == 1, second.said()
            assert second.said().count(f"routelake: {URL} is held by another fold") == number

        machine.start(wait_ready_s=None)
        wait_until(lambda: "child=fold exit_code=1" in machine.log_path.read_text(), 90, "its fold to be refused")
        wait_until(lambda: "routelake is ready" in machine.log_path.read_text(), 90, "its gateway to be ready")
        standby.process.send_signal(signal.SIGTERM)
        assert standby.process.wait(60) == 0, standby.said()
        wait_until(lambda: "took the lake" in machine.log_path.read_text(), 120, "its fold to take the lake")
    finally:
        machine.kill()
        print(machine.log_tail())
        for fold in folds:
            fold.kill()
            print(fold.said())
