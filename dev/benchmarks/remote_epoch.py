# SPDX-License-Identifier: Apache-2.0
"""An epoch of four tables into a folder and into S3, near and 20 ms away: ``./routelake bench remote-epoch``.

One topic of one group of 20 changes in each; milliseconds, without the fold itself.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from dev.benchmarks.harness.remote_lake import URL, Place, RemoteMaker, in_each_place
from dev.benchmarks.harness.report import median, quantile

EPOCHS = 60
WARM_UP = 5


def measure(place: Place) -> None:
    """In one place; print."""
    with tempfile.TemporaryDirectory(prefix="routelake-remote-") as folder:
        plain, remote = RemoteMaker(Path(folder) / "plain", None), RemoteMaker(Path(folder) / "copy", URL)
        local, committed, published = [], [], []
        for number in range(WARM_UP + EPOCHS):
            one, (two, three) = plain.change()[0], remote.change()
            if number >= WARM_UP:
                local.append(one * 1000)
                committed.append(two * 1000)
                published.append(three * 1000)
    for what, seen in (("a folder", local), ("the copy", committed), ("published", published)):
        print(f"{place.name:10} {what:10} p50 {median(seen):7.1f} ms, p90 {quantile(seen, 0.9):7.1f} ms", flush=True)


if __name__ == "__main__":
    in_each_place("dev.benchmarks.remote_epoch", measure)
