# SPDX-License-Identifier: Apache-2.0
"""Reads of earlier moments show what the fold of the log up to then shows, also within an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from api.live_view.live_state import LiveState
from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import batches, generated, time_of, written
from dev.support.view_tables import as_tables
from lake.commits import commits_between
from lake.delta.log import active
from lake.history import history as past
from lake.history.history import History
from lake.history.intervals import IntervalKeeper
from nameserver.state_machine.changes import LIVENESS_COLUMNS
from nameserver.view.snapshot import RouteView
from schemas.errors import BadRequestError, BeforeHistoryError, FutureEpochError
from schemas.kv import NAMESRV_CONFIG
from schemas.route_commit import NO_COMMIT
from schemas.tables import BROKER_LIVE_TABLE, ROUTE_CHANGE_TABLE, ROUTE_COMMIT_TABLE, STATE_TABLES


def plain(view: RouteView, *names: str) -> dict[str, Any]:
    """Tables without what moves when nothing has changed."""
    tables = as_tables(view)
    for row in tables[BROKER_LIVE_TABLE.name].values():
        for name in LIVENESS_COLUMNS:
            del row[name]
    return {name: rows for name, rows in tables.items() if name in names or not names}


def lose_old_versions(lake_dir: Path, intervals_up_to: int) -> None:
    """Vacuum the state tables; before that, intervals are kept up to an epoch, or not at all."""
    commits = commits_between(lake_dir, active(str(lake_dir / ROUTE_COMMIT_TABLE.name)).files, last=intervals_up_to)
    if commits:
        IntervalKeeper(lake_dir).catch_up(commits[-1].epoch, commits[-1].versions[ROUTE_CHANGE_TABLE.name])
    for table in STATE_TABLES:
        opened = DeltaTable(str(lake_dir / table.name))
        opened.vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)


@pytest.mark.parametrize(
    ("seed", "sizes", "intervals_up_to"),
    [
        *((1, (9, 1, 20), None), (4, (61,), None), (1, (9, 1, 20), 3), (4, (9, 1, 20), 0)),
        pytest.param(1, (9, 1, 20), 99, marks=pytest.mark.deep),
    ],
)
def test_each_point_in_time_has_the_state_of_the_log_up_to_it(
    is_deep: bool, tmp_path: Path, seed: int, sizes: tuple[int, ...], intervals_up_to: int | None
) -> None:
    """Whether the versions are kept or not: then intervals say it, and the changes where those do not reach.

    Of questions that differ by a name alone each moment is asked one, the next moment another, and where each epoch has many
    moments every third one is asked; with --deep all.
    """
    records = generated(seed)
    drive(tmp_path, list(batches(records, sizes)))
    if intervals_up_to is not None:
        lose_old_versions(tmp_path, intervals_up_to)
    history = History(tmp_path)
    head = LiveState(RouteView.empty(), everything=True)
    shown = 0
    for number, record in enumerate(records):

        def asked(*names: str, number: int = number) -> tuple[str, ...]:
            return names if is_deep else (names[number // 3 % len(names)],)

        head.take(record)
        if not is_deep and number % 3:
            continue
        view = head.publish(NO_COMMIT)
        try:
            moment = history.resolve(time_of(record))
        except BeforeHistoryError:
            assert not any(as_tables(view).values())
            continue
        shown += 1
        assert past.topics_at(history, moment) == sorted(view.topics)
        for cluster in asked("c", "e"):
            assert past.topics_at(history, moment, cluster) == sorted(view.topics_in(cluster))
        clusters = ("brokerAddrTable", "clusterAddrTable")
        assert plain(past.clusters_at(history, moment), *clusters) == plain(view, *clusters)
        brokers = ("brokerAddrTable", "brokerLiveTable")
        assert plain(past.brokers_at(history, moment), *brokers) == plain(view, *brokers)
        for name in asked("b", "x", "o'dd %2F/=ü"):
            found = past.broker_at(history, moment, name)
            assert found.groups.keys() == {name} & view.groups.keys()
            assert found.topic_count(name) == view.topic_count(name)
        for namespace in asked("n", "nowhere"):
            assert past.kv_at(history, moment, namespace).kv_list(namespace) == view.kv_list(namespace)
        for namespace in asked("nowhere", "n"):
            found = past.kv_at(history, moment, namespace, "k")
            assert found.kv_get(namespace, "k") == view.kv_get(namespace, "k")
    assert shown > len(records) // (1.5 if is_deep else 5)
    assert bool(history._rows._not_kept[0]) == (intervals_up_to is not None)


def test_now_is_the_newest_epoch_and_settings_are_no_kv(tmp_path: Path) -> None:
    records = written([(0, make.register()), (5, make.put("n", "k"))])
    drive(tmp_path, [records[:1], records[1:]])
    history = History(tmp_path)
    assert history.resolve("now") == history.resolve("2")
    assert past.kv_at(history, history.resolve("now"), "n").kv_list("n") == {"k": "v"}
    assert past.kv_at(history, history.resolve("1"), "n").kv_list("n") is None
    assert past.kv_at(history, history.resolve("now"), NAMESRV_CONFIG).kv == {}
    with pytest.raises(FutureEpochError):
        history.resolve("3", "from")
    with pytest.raises(BadRequestError, match="from must be an epoch number"):
        history.resolve("yesterday", "from")
