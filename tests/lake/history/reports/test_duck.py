# SPDX-License-Identifier: Apache-2.0
"""What DuckDB's macros say is what the history says, at any moment."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from dev.support.drive import SHARDS, DeltaLake, drive, open_writer
from dev.support.generated_logs import batches, generated, time_of
from dev.support.microbatches import Query
from lake.commits import last_commit
from lake.delta.query import text
from lake.history.changelog import ChangesAsked, list_changes
from lake.history.diff import diff
from lake.history.history import History, brokers_at
from lake.history.report_duckdb import CHAIN, SCALAR_MACROS, DuckLake
from lake.history.state_at import Condition
from schemas.errors import NotFoundError, SetupError
from schemas.tables import ALL_TABLES, TOPIC_QUEUE_TABLE

SEED = 1


class Both:
    """A lake by its history, and in DuckDB; moments of it."""

    def __init__(self, folder: Path) -> None:
        records = generated(SEED)
        drive(folder, list(batches(records, (9, 1, 20))))
        self.history, self.duck = History(folder), DuckLake(folder)
        rng = random.Random(SEED)
        commit = last_commit(folder)
        assert commit is not None
        self.moments = [str(rng.randint(1, commit.epoch)) for _ in range(2)]
        self.moments += [time_of(record) for record in rng.sample(records[9:], 4)]
        self.moments.sort(key=lambda moment: (self.at(moment).commit.epoch, self.at(moment).until is not None, moment))

    def at(self, moment: str) -> Any:
        return self.history.resolve(moment)

    def ask(self, query: str) -> list[dict[str, Any]]:
        found = self.duck.connection.execute(query)
        names = [each[0] for each in found.description or []]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Any:
    both = Both(tmp_path_factory.mktemp("duck"))
    with both.duck:
        yield both


def test_routes(both: Both) -> None:
    routes = 0
    for moment in both.moments:
        view = both.history.view(both.at(moment), {TOPIC_QUEUE_TABLE.name: Condition()})
        for topic in {"T", "U", "nothing", *view.topics}:
            found = both.ask(f"FROM route_at({text(topic)}, '{moment}')")
            try:
                route = json.loads(both.history.route(topic, moment).body)
            except NotFoundError:
                assert all(row["brokerAddrs"] in (None, "{}") for row in found)
                continue
            routes += 1
            columns = ("brokerName", "readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
            assert [[row[name] for name in columns] for row in found] == [
                [row[name] for name in columns]
                for row in sorted(route["queueDatas"], key=lambda row: row["brokerName"])
            ]
            addresses = {row["brokerName"]: json.loads(row["brokerAddrs"]) for row in found if row["brokerAddrs"]}
            for broker in route["brokerDatas"]:
                assert addresses[broker["brokerName"]] == broker["brokerAddrs"]
    assert routes


def test_live_brokers(both: Both) -> None:
    for moment in both.moments:
        rows = both.ask(f"FROM live_at('{moment}')")
        live = brokers_at(both.history, both.at(moment)).all_live_rows()
        assert sorted((row["brokerName"], row["clusterName"], row["brokerAddr"]) for row in rows) == sorted(
            key for key, _ in live
        )


def test_changes_and_differences(both: Both) -> None:
    for first, last in itertools.pairwise(both.moments):
        asked = ChangesAsked(from_=first, to=last)
        changes = list_changes(both.history, asked, limit=1000).changes
        rows = both.ask(f"FROM changes_between('{first}', '{last}')")
        assert [(row["epoch"], row["offset"], row["seq"]) for row in reversed(rows)] == [
            (change.epoch, change.offset, change.seq) for change in changes
        ]
        differences = both.ask(f"FROM diff_between('{first}', '{last}')")
        found = sorted((row["tableName"], row["key"], row["before"], row["after"]) for row in map(as_text, differences))
        wanted = [
            (each.table_name, compact(each.key), compact(each.before), compact(each.after))
            for each in diff(both.history, asked).differences
        ]
        assert found == sorted(wanted, key=lambda row: tuple(map(str, row)))


def as_text(row: dict[str, Any]) -> dict[str, Any]:
    return {name: "" if value is None else value for name, value in row.items()}


def compact(value: Any) -> str:
    return "" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def test_spans_have_no_hole_and_do_not_overlap(both: Both) -> None:
    rows = both.ask("SELECT tableName, key, state, validFrom, validTo FROM spans ORDER BY tableName, key, validFrom")
    assert rows
    for earlier, later in itertools.pairwise(rows):
        if (earlier["tableName"], earlier["key"]) == (later["tableName"], later["key"]):
            assert earlier["validTo"] is not None
            assert earlier["validTo"] <= later["validFrom"]
    still = {(row["tableName"], row["key"]): row["state"] for row in rows if row["validTo"] is None}
    now = both.ask("SELECT 'topicQueueTable' AS tableName, key, state FROM rows_at('topicQueueTable', now())")
    assert {key: state for key, state in still.items() if key[0] == "topicQueueTable"} == {
        (row["tableName"], row["key"]): row["state"] for row in now
    }
    assert len(now) == both.ask("SELECT count(*) AS n FROM topicQueueTable")[0]["n"]


def test_totals(both: Both) -> None:
    now = both.ask(
        "SELECT topic, count(*) AS brokers, sum(CASE WHEN perm & 2 = 2 THEN writeQueueNums ELSE 0 END)::BIGINT AS writeQueues, "
        "sum(CASE WHEN perm & 4 = 4 THEN readQueueNums ELSE 0 END)::BIGINT AS readQueues "
        "FROM topicQueueTable GROUP BY topic ORDER BY topic"
    )
    totals = both.ask(
        "SELECT topic, brokers, writeQueues, readQueues FROM topicTotals WHERE validTo IS NULL ORDER BY topic"
    )
    assert totals == now
    alive = both.ask("SELECT brokers FROM liveTotals WHERE validTo IS NULL")
    assert alive == both.ask("SELECT count(*) AS brokers FROM brokerLiveTable")


def test_addresses(both: Both) -> None:
    assert both.ask("SELECT DISTINCT address, userName FROM changes WHERE via = 'remoting'") == [
        {"address": "10.9.9.9", "userName": None}
    ]


def test_a_cut_and_the_next_one(tmp_path: Path) -> None:
    parts = list(batches(generated(SEED), (9,)))
    query = Query(SHARDS)
    query.lake = DeltaLake(open_writer(tmp_path))
    for part in parts[:2]:
        query.run(part)
    with DuckLake(tmp_path) as duck:
        before = duck.commit
        for part in parts[2:4]:
            query.run(part)
        count = "SELECT max(epoch) FROM routeCommitTable"
        assert before is not None
        assert duck.connection.execute(count).fetchone() == (before.epoch,)
        duck.refresh()
        assert duck.commit is not None
        assert duck.commit.epoch > before.epoch
        assert duck.connection.execute(count).fetchone() == (duck.commit.epoch,)
        for table in ALL_TABLES:
            duck.connection.execute(f"SELECT * FROM {table.name}")


def test_the_chain_is_checked_as_the_page_says() -> None:
    """Columns that count are named in both: one of them was once forgotten in one of the two."""
    page = (Path(__file__).parents[4] / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
    assert f"{CHAIN}\n ORDER BY epoch\n```" in page
    (field,) = [macro for macro in SCALAR_MACROS if macro.startswith("field(")]
    assert f"MACRO {field};".lower() in page.lower()


def test_no_lake(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no lake in"):
        DuckLake(tmp_path)
