# SPDX-License-Identifier: Apache-2.0
"""Properties of the fold as the stream runs it: cut into micro-batches, spread over shards, repeated, resumed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dev.support import events as make
from dev.support.expected import Expected
from dev.support.generated_logs import Gap, Garbage, batches, cuts, jumping_logs, logs, written
from dev.support.microbatches import MemoryLake, Query, outcome_tuples
from dev.support.readers import agreed_states
from eventlog.base import LogRecord
from lake.write.shards import seed_rows
from nameserver.state_machine.state import RouteState, TopicTable

SHARDS = st.sampled_from((1, 2, 4))


def agree(lake: MemoryLake, expected: Expected) -> None:
    """Every table, the history, the outcomes and the quarantine are those of the pure fold."""
    assert lake.tables == expected.tables()
    changed = [row for row in lake.history() if row[3] >= 0]
    assert changed == expected.history()
    assert outcome_tuples(sorted(lake.outcomes, key=lambda entry: entry["offset"])) == expected.outcomes
    commands = [(row[0], row[1]) for row in lake.history() if row[3] < 0]
    assert commands == sorted((offset, command) for offset, command, *_ in expected.outcomes)
    assert lake.quarantine == expected.unreadable


@given(records=logs | jumping_logs, sizes=cuts, shards=SHARDS)
@example(records=written([(0, Garbage("*", b"garbage"))]), sizes=[1], shards=4)
@example(
    records=written([(0, make.register()), (0, make.register("x:1", name="x")), (0, make.delete_topic("T"))]),
    sizes=[40],
    shards=2,
)
@example(
    records=written(
        [
            *((0, make.register(name=name, heartbeat_timeout_millis=9_000)) for name in ("b", "x", "y", "z")),
            (2_000, make.put("n", "k")),
            (1_000, make.heartbeat()),
            (0, Gap(5_000)),
        ]
    ),
    sizes=[1],
    shards=4,
)
@example(  # silent at the end of a batch, and no CLOCK yet
    records=written([(0, make.register(heartbeat_timeout_millis=1_000)), (9_000, make.put("n", "k"))]),
    sizes=[1],
    shards=2,
)
def test_every_reader_has_the_same_state_at_every_offset(
    records: list[LogRecord], sizes: list[int], shards: int
) -> None:
    """However the log is cut and spread, and though the clock that stamps it jumps: no list of exceptions (ADR 24)."""
    agreed_states(records, sizes, shards)


@given(records=logs | jumping_logs, sizes=cuts, shards=SHARDS)
def test_any_split_gives_the_same_history(records: list[LogRecord], sizes: list[int], shards: int) -> None:
    query = Query(shards)
    for batch in batches(records, sizes):
        query.run(batch)
    agree(query.lake, Expected(records))


@given(
    records=logs, sizes=cuts, shards=SHARDS, failures=st.lists(st.sampled_from((0, 0, 1, 2)), min_size=1, max_size=5)
)
def test_a_batch_that_is_repeated_changes_nothing(
    records: list[LogRecord], sizes: list[int], shards: int, failures: list[int]
) -> None:
    query = Query(shards)
    for turn, batch in enumerate(batches(records, sizes)):
        query.run(batch, failures=failures[turn % len(failures)])
    agree(query.lake, Expected(records))


@given(records=logs, sizes=cuts, shards=SHARDS, held=st.integers(0, 6))
def test_topics_may_be_spilled_at_any_time(records: list[LogRecord], sizes: list[int], shards: int, held: int) -> None:
    """Between any two records of a batch: what changed before and after is still told apart."""
    query = Query(shards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.shard_fold.HELD_ROWS", held)
        for batch in batches(records, sizes):
            query.run(batch)
    agree(query.lake, Expected(records))


def in_another_order(state: RouteState) -> RouteState:
    """The same state with its topics in another order, as they come back from the tables."""
    groups = {
        name: replace(group, topics=TopicTable(dict(sorted(group.topics.rows.items(), key=lambda row: row[0][::-1]))))
        for name, group in state.groups.items()
    }
    return replace(state, groups=groups)


@given(records=logs, sizes=cuts, shards=SHARDS, at=st.integers(0, 40))
def test_going_on_from_a_seed_is_as_good_as_never_having_stopped(
    records: list[LogRecord], sizes: list[int], shards: int, at: int
) -> None:
    first, rest = records[:at], records[at:]
    seed = Expected(first)
    query = Query(shards, seed=in_another_order(seed.state))
    query.lake.tables = seed.tables()
    for batch in batches(rest, sizes):
        query.run(batch)
    whole = Expected(records)
    assert query.lake.tables == whole.tables()
    changed = Counter(row for row in query.lake.history() if row[3] >= 0)
    assert changed == Counter(whole.history()) - Counter(seed.history())


@given(records=logs, sizes=cuts, shards=SHARDS)
def test_the_state_store_holds_topics_of_those_who_have_some(
    records: list[LogRecord], sizes: list[int], shards: int
) -> None:
    """Nothing is left behind under a name that is gone."""
    query = Query(shards)
    for batch in batches(records, sizes):
        query.run(batch)
    names = {name for name, _ in query.lake.tables["topicQueueTable"]}
    assert query.state_topics().keys() == names


@given(records=logs, shards=st.sampled_from((1, 2, 4, 8, 16)))
def test_a_seed_has_every_group_once(records: list[LogRecord], shards: int) -> None:
    state = Expected(records).state
    rows = seed_rows(state, shards)
    assert len(rows) == shards
    assert sorted(name for _, _, names, _ in rows for name in names) == sorted(
        name for name, group in state.groups.items() if group.topics.rows
    )


def test_a_heartbeat_loads_no_topics() -> None:
    query = Query(1)
    query.run(written([(0, make.register())]))
    (key,) = query.keys.values()
    loads: list[object] = []
    stored = key.maps["topics"]

    class Watched(dict[tuple[object, ...], tuple[object, ...]]):
        def get(self, name: object, default: object = None) -> object:  # type: ignore[override]
            loads.append(name)
            return super().get(name, default)  # type: ignore[call-overload]

    key.maps["topics"] = Watched(stored)
    beats = [make.heartbeat(), make.register(slim=True), make.register(), make.clock()]
    records = [record._replace(offset=record.offset + 1) for record in written([(1, beat) for beat in beats])]
    query.run(records)
    assert loads == []


def test_two_gateways_that_start_together_in_different_batches() -> None:
    records = written(
        [(0, make.register(heartbeat_timeout_millis=3_000)), (0, Gap(70_000, gateways=2)), (2_900, make.clock())]
    )
    for sizes in ([1], [2], [3], [40]):
        query = Query(2)
        for batch in batches(records, sizes):
            query.run(batch)
        agree(query.lake, Expected(records))
        assert len(query.lake.tables["brokerLiveTable"]) == 1
