# SPDX-License-Identifier: Apache-2.0
"""How much changed when, and how much there was, against a plain scan of the events."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from dev.support.drive import drive
from lake.history import activity as activities
from lake.history.activity import Activity, ActivityAsked, activity
from lake.history.as_of import rfc3339
from lake.history.history import History
from nameserver.state_machine.step import BROKER_EXPIRED
from schemas.errors import BadRequestError
from tests.lake.history.reports.conftest import Told

pytestmark = pytest.mark.xdist_group("reports")


def time_of(ms: int) -> str:
    return rfc3339(datetime.fromtimestamp(ms / 1000, UTC))


@pytest.fixture
def history(told: Told) -> History:
    return History(told.folder / "lake")


@pytest.mark.parametrize("points", [7, 120, 500])
@pytest.mark.parametrize("part", [0.0, 0.4])
def test_counts_and_totals_of_each_point_are_those_of_the_scan(
    told: Told, history: History, points: int, part: float
) -> None:
    times = sorted(change.time_ms for change in told.scan.changes)
    since = times[0] - 1 if part == 0 else int(times[0] + part * (times[-1] - times[0]))
    asked = ActivityAsked(from_=None if part == 0 else time_of(since), points=points, totals=True)
    found = activity(history, asked)
    assert 1 < len(found.points) <= points
    assert found.width in activities.WIDTHS_MS
    for point in found.points:
        assert point.start % found.width == 0
    starts = [point.start for point in found.points]
    inside = [change for change in told.scan.changes if change.time_ms > since]
    for point in found.points:
        end = point.start + found.width
        own = [each for each in inside if point.start <= each.time_ms < end]
        assert point.changes == Counter(change.command for change in own)
        gone = [each for each in own if each.table == "brokerLiveTable" and each.command == BROKER_EXPIRED]
        assert point.expiries == len(gone)
        last = max(end - 1, since)
        assert point.topics == len({key[1] for key in told.scan.rows_at("topicQueueTable", last)})
        assert point.brokers == len(told.scan.rows_at("brokerLiveTable", last))
        queues = told.scan.rows_at("topicQueueTable", last).values()
        assert point.queues == sum(row["writeQueueNums"] for row in queues)
    assert {each.time_ms // found.width * found.width for each in inside} <= set(starts)
    wipes = [time for time, name, _ in told.scan.commands if name == "WIPE_WRITE_PERM_OF_BROKER" and time > since]
    assert sum(point.commands.get("WIPE_WRITE_PERM_OF_BROKER", 0) for point in found.points) == len(wipes)


def counted(found: Activity) -> Counter[str]:
    sums: Counter[str] = Counter()
    for point in found.points:
        sums.update(point.changes)
    return sums


def test_points_of_epochs_have_the_changes_of_their_epochs(told: Told, history: History) -> None:
    newest = activity(history, ActivityAsked(by="epoch")).last
    found = activity(history, ActivityAsked(by="epoch", points=10))
    assert (found.first, found.width) == (1, -(-newest // 10))
    for point in found.points:
        assert point.start <= point.first_epoch <= point.last_epoch < point.start + found.width
    assert counted(found) == Counter(change.command for change in told.scan.changes)
    some = activity(history, ActivityAsked(by="epoch", from_="3", to="5", totals=True))
    assert (some.first, some.last, some.width) == (3, 5, 1)
    assert [point.start for point in some.points] == [3, 4, 5]
    assert some.points[0].first_epoch == 0, "the totals of the beginning: what came after epoch 3 is counted"
    rows = told.duck.connection.execute("SELECT count(DISTINCT topic) FROM rows_at('topicQueueTable', 3)").fetchone()
    assert rows == (some.points[0].topics,)


@pytest.mark.parametrize("by", ["time", "epoch"])
def test_before_the_first_epoch_there_is_nothing(tmp_path: Path, by: Literal["time", "epoch"]) -> None:
    drive(tmp_path, [])
    found = activity(History(tmp_path), ActivityAsked(by=by, totals=True))
    assert found.points == []


def test_an_answer_is_given_again_while_nothing_new_is_there(history: History) -> None:
    asked = ActivityAsked(points=50)
    assert activity(history, asked) is activity(history, asked)
    assert activity(history, asked) is not activity(history, ActivityAsked(points=51))
    with pytest.raises(BadRequestError, match="points must be from 1 to 500"):
        activity(history, ActivityAsked(points=501))
    with pytest.raises(BadRequestError, match="from must not be after to"):
        activity(history, ActivityAsked(from_="5", to="3"))
