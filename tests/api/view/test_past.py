# SPDX-License-Identifier: Apache-2.0
"""Reads of earlier moments show what the fold of the log up to then shows, also within an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.head.fold import HeadFold
from api.view import past
from api.view.history import History
from api.view.snapshot import RouteView
from lake.commits import NO_COMMIT
from pipelines.fold.changes import LIVENESS_COLUMNS
from schemas.errors import BadRequestError, BeforeHistoryError, FutureEpochError
from schemas.kv import NAMESRV_CONFIG
from schemas.tables import BROKER_LIVE_TABLE
from tests.support import events as make
from tests.support.drive import drive
from tests.support.generated_logs import TOPICS, batches, generated, time_of, written
from tests.support.view_tables import as_tables


def plain(view: RouteView, *names: str) -> dict[str, Any]:
    """Tables without what moves when nothing has changed."""
    tables = as_tables(view)
    for row in tables[BROKER_LIVE_TABLE.name].values():
        for name in LIVENESS_COLUMNS:
            del row[name]
    return {name: rows for name, rows in tables.items() if name in names or not names}


@pytest.mark.parametrize(("seed", "sizes"), [(1, (9, 1, 20)), (4, (61,))])
def test_each_moment_is_the_fold_up_to_it(tmp_path: Path, seed: int, sizes: tuple[int, ...]) -> None:
    records = generated(seed)
    drive(tmp_path, list(batches(records, sizes)))
    history = History(tmp_path)
    head = HeadFold(RouteView.empty(), everything=True)
    shown = 0
    for record in records:
        head.take(record)
        view = head.publish(NO_COMMIT)
        try:
            moment = history.resolve(time_of(record))
        except BeforeHistoryError:
            assert not any(as_tables(view).values())
            continue
        shown += 1
        assert past.topics_at(history, moment) == view.topic_names()
        for cluster in ("c", "e"):
            assert past.topics_at(history, moment, cluster) == view.topics_by_cluster(cluster)
        clusters = ("brokerAddrTable", "clusterAddrTable")
        assert plain(past.clusters_at(history, moment), *clusters) == plain(view, *clusters)
        brokers = ("brokerAddrTable", "brokerLiveTable")
        assert plain(past.brokers_at(history, moment), *brokers) == plain(view, *brokers)
        for name in ("b", "x", "o'dd %2F/=ü"):
            found = past.broker_at(history, moment, name)
            assert found.groups.keys() == {name} & view.groups.keys()
            assert found.topic_count(name) == view.topic_count(name)
        for namespace in ("n", "nowhere"):
            assert past.kv_at(history, moment, namespace).kv_list(namespace) == view.kv_list(namespace)
            for key in "k":
                found = past.kv_at(history, moment, namespace, key)
                assert found.kv_get(namespace, key) == view.kv_get(namespace, key)
    assert shown > len(TOPICS)


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
