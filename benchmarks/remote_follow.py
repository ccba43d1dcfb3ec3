# SPDX-License-Identifier: Apache-2.0
"""From the end of an epoch's publication until a gateway shows it, over S3: ``./routelake bench remote-follow``.

The follower as a gateway has it, in this process; and what it asks in a second in which nothing happens.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from pathlib import Path

from api.view.follower import Follower
from api.view.snapshot import RouteView
from benchmarks.harness.remote_lake import RemoteMaker, in_each_place, new_url
from benchmarks.harness.report import median, quantile
from lake.commits import CommandOutcome

EPOCHS = 60
WARM_UP = 5


class _Shown:
    def __init__(self) -> None:
        self._moved = threading.Condition()
        self._epoch, self._at_s = 0, 0.0

    def __call__(self, view: RouteView, outcomes: list[CommandOutcome]) -> None:
        with self._moved:
            self._epoch, self._at_s = view.epoch, time.perf_counter()
            self._moved.notify_all()

    def since(self, epoch: int) -> float:
        """When it was shown."""
        with self._moved:
            if not self._moved.wait_for(lambda: self._epoch >= epoch, 60):
                raise TimeoutError(f"epoch {epoch} was not shown")
            return self._at_s


def main() -> None:
    """In each place; print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--where", default="", help=argparse.SUPPRESS)
    where = parser.parse_args().where
    if not where:
        in_each_place("benchmarks.remote_follow")
        return
    chance = random.Random(7)
    with tempfile.TemporaryDirectory(prefix="routelake-remote-") as folder, new_url() as url:
        maker = RemoteMaker(Path(folder) / "copy", url)
        shown = _Shown()
        follower = Follower(url, shown)
        follower.start()
        seen = []
        for number in range(WARM_UP + EPOCHS):
            time.sleep(chance.random() * 0.3)  # not in step with the polls
            follower.expect(maker.offset + 1)  # as a gateway does when the head of the log has changed
            maker.change()
            published_s = maker.published_s
            at_s = shown.since(number + 2)
            if number >= WARM_UP:
                seen.append((at_s - published_s) * 1000)
        follower.stop()
    p50, p90 = median(seen), quantile(seen, 0.9)
    print(f"{where:10} shown after p50 {p50:.0f} ms, p90 {p90:.0f} ms, at most {max(seen):.0f} ms")


if __name__ == "__main__":
    main()
