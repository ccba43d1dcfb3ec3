# SPDX-License-Identifier: Apache-2.0
"""diff(a, b) applied to cut a gives cut b, and the changes between them are those that lead from a to b."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import ASSORTMENT, batches, generated, time_of, written
from dev.support.view_tables import as_tables
from lake.history.changelog import Change, ChangesAsked, list_changes
from lake.history.diff import Difference, diff
from lake.history.filters import Filters
from lake.history.history import History
from lake.history.state_at import Condition
from nameserver.state_machine.changes import LIVENESS_COLUMNS
from schemas.errors import BadRequestError
from schemas.tables import BROKER_LIVE_TABLE, STATE_TABLES

EVERYTHING = {table.name: Condition() for table in STATE_TABLES}
KEYS = {table.name: table.key for table in STATE_TABLES}

Cut = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


def cut(history: History, as_of: str) -> Cut:
    """All tables, as JSON has them, without what moves when nothing has changed."""
    tables = as_tables(history.view(history.resolve(as_of), EVERYTHING))
    found: Cut = {}
    for name, rows in tables.items():
        found[name] = {}
        for key, row in rows.items():
            values = {column: value for column, value in row.items() if column not in KEYS[name]}
            if name == BROKER_LIVE_TABLE.name:
                values = {column: value for column, value in values.items() if column not in LIVENESS_COLUMNS}
            if values.get("mapping"):
                values["mapping"] = json.loads(values["mapping"])
            found[name][key] = json.loads(json.dumps(values))
    return found


def applied(before: Cut, differences: list[Difference]) -> Cut:
    after = {name: dict(rows) for name, rows in before.items()}
    for each in differences:
        key = tuple(each.key[name] for name in KEYS[each.table_name])
        values = None if each.after is None else dict(each.after)
        assert each.op == ("i" if each.before is None else "d" if each.after is None else "u")
        assert (key in after[each.table_name]) == (each.before is not None)
        if values is None:
            del after[each.table_name][key]
            continue
        if values.get("mapping"):
            values["mapping"] = json.loads(values["mapping"])
        assert values != after[each.table_name].get(key)
        after[each.table_name][key] = values
    return after


def whole_diff(history: History, asked: ChangesAsked, limit: int = 1000) -> list[Difference]:
    found, cursor = list[Difference](), None
    while True:
        page = diff(history, asked, limit=limit, cursor=cursor)
        found += page.differences
        cursor = page.next_cursor
        if cursor is None:
            return found
        assert len(page.differences) <= limit


def whole(history: History, asked: ChangesAsked, limit: int = 100) -> list[Change]:
    found, cursor = list[Change](), None
    while True:
        page = list_changes(history, asked, limit=limit, cursor=cursor)
        found += page.changes
        cursor = page.next_cursor
        if cursor is None:
            return found


def place(change: Change) -> tuple[Any, ...]:
    return (
        change.epoch,
        change.event_time,
        change.offset,
        change.seq,
        change.broker_name or "",
        change.table_name or "",
    )


@pytest.mark.parametrize(("seed", "sizes"), [(1, (9, 1, 20)), (6, (3,)), (7, (61,))])
def test_a_difference_applied_to_the_first_state_gives_the_last_state(
    is_deep: bool, tmp_path: Path, seed: int, sizes: tuple[int, ...]
) -> None:
    """Every other answer is asked in short pages, too; with --deep every one."""
    rng = random.Random(seed)
    records = (
        generated(seed) if seed != 6 else written([(rng.choice((1, 1500)), rng.choice(ASSORTMENT)) for _ in range(60)])
    )
    lake = drive(tmp_path, list(batches(records, sizes)))
    history = History(tmp_path)
    newest = max(epoch.epoch for epoch in lake.epochs if epoch is not None)
    moments = [str(rng.randint(1, newest)) for _ in range(3)] + [
        time_of(record) for record in rng.sample(records[9:], 4)
    ]
    moments.sort(key=lambda moment: ((found := history.resolve(moment)).commit.epoch, found.until is not None, moment))
    differing = 0
    for number, (first, last) in enumerate(itertools.pairwise(moments)):
        in_pages = number % 2 == 0 or is_deep
        asked = ChangesAsked(from_=first, to=last)
        differences = whole_diff(history, asked)
        assert applied(cut(history, first), differences) == cut(history, last), (first, last)
        differing += len(differences)
        assert not in_pages or whole_diff(history, asked, limit=2) == differences
        changes = whole(history, asked)
        assert [place(change) for change in changes] == sorted(map(place, changes), reverse=True)
        assert not in_pages or whole(history, asked, limit=3) == changes
        touched = {(change.table_name, json.dumps(change.key)) for change in changes}
        assert {(each.table_name, json.dumps(each.key)) for each in differences} <= touched
    assert differing
    everything = whole(history, ChangesAsked())
    parts = [*zip([None, *moments], [*moments, None], strict=True)]
    assert len(everything) == sum(len(whole(history, ChangesAsked(from_=a, to=b))) for a, b in parts)
    assert whole_diff(history, ChangesAsked(from_=moments[0], to=moments[0])) == []


def test_filters(tmp_path: Path) -> None:
    records = written(
        [
            (0, make.register("a:1", name="a", cluster="c")),
            (1, make.register("b:1", name="b", cluster="d")),
            (1, make.wipe("a")),
            (1, make.delete_topic("T", "d")),
            (1, make.put("n", "k")),
            (1, make.wipe("b")),
            (1, make.add("b")),
        ]
    )
    drive(tmp_path, [[record] for record in records])
    history = History(tmp_path)

    def commands(**filters: Any) -> list[str]:
        found = whole(history, ChangesAsked(filters=Filters(**filters)))
        return list(dict.fromkeys(change.command for change in found))

    assert commands(topic="T", broker_name="b") == ["DELETE_TOPIC_IN_NAMESRV", "REGISTER_BROKER"]
    assert commands(cluster="c") == ["WIPE_WRITE_PERM_OF_BROKER", "REGISTER_BROKER"]
    assert commands(cluster="d")[2:] == ["DELETE_TOPIC_IN_NAMESRV", "REGISTER_BROKER"]
    assert commands(cluster="nowhere") == []
    assert commands(table_name="kvConfigTable") == ["PUT_KV_CONFIG"]
    assert commands(command="PUT_KV_CONFIG") == ["PUT_KV_CONFIG"]
    everybody = commands()
    assert commands(peer="10.9.9.9") == commands(peer="10.9.9.9:1234") == everybody
    assert commands(peer="10.9.9") == commands(peer="10.9.9.9:123") == commands(user="alice") == []
    assert commands(outcome="rejected") == []

    def tables(**filters: Any) -> set[str]:
        return {each.table_name for each in whole_diff(history, ChangesAsked(from_="2", filters=Filters(**filters)))}

    assert tables() == {"topicQueueTable", "kvConfigTable"}
    assert tables(broker_name="a") == {"topicQueueTable"}
    assert tables(command="PUT_KV_CONFIG") == {"kvConfigTable"}
    # broker b's U was wiped, and given back: no difference, whatever happened in between
    found = whole_diff(history, ChangesAsked(from_="2", filters=Filters(broker_name="b")))
    assert [(each.op, each.key) for each in found if each.key["topic"] == "U" and each.after != each.before] in (
        [],
        [("u", {"brokerName": "b", "topic": "U"})],
    )


def test_impossible_questions_are_refused(tmp_path: Path) -> None:
    records = written([(0, make.register()), (1, make.wipe()), (1, make.add()), (1, make.put("n", "k"))])
    drive(tmp_path, [[record] for record in records])
    history = History(tmp_path)
    page = list_changes(history, ChangesAsked(), limit=1)
    assert page.next_cursor is not None
    with pytest.raises(BadRequestError, match="other parameters"):
        list_changes(history, ChangesAsked(from_="1"), cursor=page.next_cursor)
    for bad in ("x", "", "é", page.next_cursor[:-2]):
        with pytest.raises(BadRequestError, match="cursor is"):
            list_changes(history, ChangesAsked(), cursor=bad)
    with pytest.raises(BadRequestError, match="from must not be after to: 3 is after 2"):
        diff(history, ChangesAsked(from_="3", to="2"))
    with pytest.raises(BadRequestError, match="tableName must be one of"):
        diff(history, ChangesAsked(from_="1", filters=Filters(table_name="nothing")))
    with pytest.raises(BadRequestError, match="command must be one of"):
        list_changes(history, ChangesAsked(filters=Filters(command="DELETE")))


def test_an_empty_lake_has_no_changes(tmp_path: Path) -> None:
    drive(tmp_path, [])
    assert list_changes(History(tmp_path), ChangesAsked()).changes == []
