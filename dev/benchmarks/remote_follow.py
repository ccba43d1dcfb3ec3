# SPDX-License-Identifier: Apache-2.0
"""From the end of an epoch's publication until a gateway shows it, over S3: ``./routelake bench remote-follow``.

The follower as a gateway has it, in this process: where it looks for epochs by itself, because the head of its log has
moved, and where a Kafka as far away as the store announces them.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from api.gateway.follower import Follower
from dev.benchmarks.harness.far import far
from dev.benchmarks.harness.remote_lake import URL, Place, RemoteMaker, in_each_place
from dev.benchmarks.harness.report import median, quantile
from dev.peers.java import free_port
from dev.peers.kafka import Kafka
from lake.announce import Announcements, Announcer
from nameserver.view.snapshot import RouteView
from schemas.route_commit import CommandOutcome

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
        """Wait until an epoch is shown; return the time of that."""
        with self._moved:
            if not self._moved.wait_for(lambda: self._epoch >= epoch, 60):
                raise TimeoutError(f"epoch {epoch} was not shown")
            return self._at_s


class _Listener:
    """A follower that says when it hears."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self.ready = threading.Event()

    def hears(self, is_so: bool, /) -> None:
        self._follower.hears(is_so)
        self.ready.set()

    def announced(self, version: int, /) -> None:
        self._follower.announced(version)


def measure(place: Place) -> None:
    """In one place; print."""
    with tempfile.TemporaryDirectory(prefix="routelake-remote-") as folder:
        for is_announced in (False, True):
            how = "announced" if is_announced else "looked for"
            maker = RemoteMaker(Path(folder) / how, f"{URL}/{is_announced}")
            shown = _Shown()
            follower = Follower(f"{URL}/{is_announced}", shown)
            follower.start()
            shown.since(1)
            with _announced(maker, follower, place) if is_announced else ExitStack():
                seen = _late_ms(maker, follower, shown)
            follower.stop()
            p50, p90 = median(seen), quantile(seen, 0.9)
            print(
                f"{place.name:10} {how:10} shown after p50 {p50:.0f} ms, p90 {p90:.0f} ms, at most {max(seen):.0f} ms"
            )


def _late_ms(maker: RemoteMaker, follower: Follower, shown: _Shown) -> list[float]:
    chance = random.Random(7)
    seen = []
    for number in range(WARM_UP + EPOCHS):
        time.sleep(chance.random() * 0.3)  # not in step with the looks
        follower.expect(maker.offset + 1)  # as a gateway does when the head of the log has changed
        maker.change()
        at_s = shown.since(number + 2)
        if number >= WARM_UP:
            seen.append((at_s - maker.published_s) * 1000)
    return seen


@contextmanager
def _announced(maker: RemoteMaker, follower: Follower, place: Place) -> Iterator[None]:
    with ExitStack() as stack:
        port = free_port()
        advertised = stack.enter_context(far(port, place.round_trip_ms)) if place.round_trip_ms else port
        stack.enter_context(Kafka(port=port, advertised=f"127.0.0.1:{advertised}"))
        url = f"kafka://127.0.0.1:{advertised}/events"
        announcer, listener = Announcer(url), _Listener(follower)
        announcements = Announcements(url, listener)
        for thread in (announcer, announcements):
            thread.start()
            stack.callback(thread.stop)
        if not listener.ready.wait(60):
            raise TimeoutError("epochs are not heard of")
        assert maker.publisher is not None
        maker.publisher.on_published = announcer.announce
        yield


if __name__ == "__main__":
    in_each_place("dev.benchmarks.remote_follow", measure)
