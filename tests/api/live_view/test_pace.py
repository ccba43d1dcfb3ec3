# SPDX-License-Identifier: Apache-2.0
"""When the head makes a view: at once for what shows, later where views take long, not at all for what shows nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.live_view.replica import LiveReplica
from dev.peers.java import wait_until
from dev.support import events as make
from eventlog.open import open_log, open_reader
from nameserver.view.snapshot import RouteView, no_pause
from schemas.events import AnyEvent, encode, routing_key
from schemas.outcomes import UNCHANGED
from schemas.route_commit import CommandOutcome, RouteCommit

WAIT_S = 30.0


class Scene:
    """A head that follows a log, and what it has told."""

    def __init__(self, folder: Path) -> None:
        url = f"sqlite://{folder / 'events.db'}"
        self.log = open_log(url)
        self.views: list[RouteView] = []
        self.told: dict[int, CommandOutcome] = {}
        """Without a view."""
        self.head = LiveReplica(lambda: open_reader(url), self._on_view, 0.002)
        self.write(make.register("b:1"))
        self.head.begin(RouteView.empty())
        self.head.start()

    def _on_view(self, view: RouteView, offset: int, outcomes: list[CommandOutcome]) -> None:
        assert all(outcome.offset <= offset for outcome in outcomes)
        if not self.views or view is not self.views[-1]:
            self.views.append(view)
        else:
            self.told.update((outcome.offset, outcome) for outcome in outcomes)

    def write(self, event: AnyEvent) -> int:
        """Its offset."""
        return self.log.append([(routing_key(event), encode(event))])[-1].offset

    def value(self) -> str | None:
        return self.views[-1].kv_get("n", "k")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    try:
        yield scene
    finally:
        scene.head.stop()
        scene.log.close()


def test_what_comes_after_a_view_that_took_long_is_shown_together(scene: Scene) -> None:
    fold = scene.head._state
    assert fold is not None
    publish = fold.publish

    def slow(epoch: RouteCommit, pause: Callable[[], None] = no_pause) -> RouteView:
        time.sleep(0.02)
        return publish(epoch, pause)

    fold.publish = slow  # type: ignore[method-assign]
    before_s = time.monotonic()
    scene.write(make.put("n", "k", "1"))
    wait_until(lambda: scene.value() == "1", WAIT_S, "the first")
    wait_until(lambda: scene.head._rest_until_s > before_s + 0.1, WAIT_S, "a rest of four times as long")
    scene.head._rest_until_s = scene.head._next_show_s = time.monotonic() + 3600
    shown = len(scene.views)
    for value in ("2", "3", "4"):
        last = scene.write(make.put("n", "k", value))
    wait_until(lambda: fold.offset == last, WAIT_S, "the head to take them")
    scene.head._rest_until_s = 0.0
    wait_until(lambda: scene.value() == "4", WAIT_S, "the last")
    values = {view.kv_get("n", "k") for view in scene.views[shown:]}
    assert values == {"4"}


def test_a_registration_that_changes_nothing_is_told_without_a_view(scene: Scene) -> None:
    offset = scene.write(make.register("b:1"))
    wait_until(lambda: offset in scene.told, WAIT_S, "its outcome")
    assert scene.told[offset].outcome == UNCHANGED
    wait_until(lambda: scene.views[-1].log_offset >= offset, WAIT_S, "its deadline to be shown")
