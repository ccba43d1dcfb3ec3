# SPDX-License-Identifier: Apache-2.0
"""When brokers were alive and could not be written, against a plain scan of the events."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import written
from lake.history import lifelines as module
from lake.history.history import History
from lake.history.lifelines import Lifelines, lifelines
from nameserver.state_machine.step import BROKER_EXPIRED
from schemas.errors import BadRequestError
from tests.lake.history.reports.conftest import Told

pytestmark = pytest.mark.xdist_group("reports")


def ms(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def alive_at(found: Lifelines, time_ms: int) -> set[tuple[str, str, str]]:
    return {
        (life.broker_name, life.cluster_name, life.broker_addr)
        for life in found.lives
        if ms(life.from_) <= time_ms and (life.to is None or ms(life.to) > time_ms)
    }


def test_who_was_alive_at_each_time(told: Told) -> None:
    history = History(told.folder / "lake")
    whole = lifelines(history, None, None)
    times = sorted({change.time_ms for change in told.scan.changes})
    for time_ms in times[::25]:
        assert alive_at(whole, time_ms) == set(told.scan.rows_at("brokerLiveTable", time_ms))
    since_ms, until_ms = times[len(times) // 3], times[2 * len(times) // 3]
    since, until = (datetime.fromtimestamp(each / 1000, UTC).isoformat() for each in (since_ms, until_ms))
    part = lifelines(history, since, until)
    assert all(life.to is None or ms(life.to) > since_ms for life in part.lives)
    assert all(ms(life.from_) <= until_ms for life in part.lives)
    for time_ms in (since_ms, until_ms):
        assert alive_at(part, time_ms) == set(told.scan.rows_at("brokerLiveTable", time_ms))
    expired = [life for life in whole.lives if life.ended_by == BROKER_EXPIRED]
    assert {life.silent_millis for life in expired} == {120_000}
    assert all(life.silent_millis is None for life in whole.lives if life.ended_by != BROKER_EXPIRED)
    assert {life.broker_id for life in whole.lives if life.broker_addr == "10.0.0.1:10911"} == {0}


def test_turns_of_the_write_permission_add_up_to_what_could_not_be_written(told: Told) -> None:
    whole = lifelines(History(told.folder / "lake"), None, None)
    wipes = [turn for turn in whole.turns if turn.command == "WIPE_WRITE_PERM_OF_BROKER"]
    assert wipes
    for turn in wipes:
        rows = told.scan.rows_at("topicQueueTable", ms(turn.time))
        of_broker = [row for (name, _), row in rows.items() if name == turn.broker_name]
        assert turn.lost == sum(not row["perm"] & 2 for row in of_broker)


def test_a_change_of_address_is_another_life_and_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(
        tmp_path,
        [written([(1_000, event) for event in (make.register("h1:1", name="n"), make.register("h2:1", name="n"))])],
    )
    assert {life.broker_addr for life in lifelines(History(tmp_path), None, None).lives} == {"h1:1", "h2:1"}
    monkeypatch.setattr(module, "MAX_LIVES", 1)
    found = lifelines(History(tmp_path), None, None)
    assert ([life.broker_addr for life in found.lives], found.left_out) == (["h2:1"], 1)


def test_a_window_has_the_lives_that_reach_into_it_and_the_turns_from_the_last_before_it_on(told: Told) -> None:
    history = History(told.folder / "lake")
    whole = lifelines(history, None, None)
    times = [life.from_ for life in sorted(whole.lives, key=lambda life: life.from_)]
    for since in times[:: len(times) // 5]:
        part = lifelines(history, since, None)
        assert part.lives == [life for life in whole.lives if life.to is None or life.to > since]
        assert [turn for turn in part.turns if turn.time > since] == [turn for turn in whole.turns if turn.time > since]
        before = [turn for turn in whole.turns if turn.time <= since]
        newest = {turn.broker_name: turn.time for turn in before}
        assert [turn for turn in part.turns if turn.time <= since] == [
            turn for turn in before if turn.time == newest[turn.broker_name]
        ]


def test_the_newest_turns_are_kept(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lifelines(History(told.folder / "lake"), None, None)
    monkeypatch.setattr(module, "MAX_TURNS", 3)
    found = lifelines(History(told.folder / "lake"), None, None)
    assert found.turns_left_out == len(whole.turns) - 3 > 0
    assert min(turn.time for turn in found.turns) >= sorted(turn.time for turn in whole.turns)[-3]


def test_an_answer_is_given_again_while_nothing_new_is_there(told: Told) -> None:
    history = History(told.folder / "lake")
    assert lifelines(history, None, None) is lifelines(history, None, None)
    assert lifelines(history, "5", None) is not lifelines(history, None, None)
    assert history.answers.bytes >= module.LIFE_BYTES * len(lifelines(history, None, None).lives)


def test_a_question_that_needs_too_much_memory_says_what_to_do(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake.history.report_duckdb.MEMORY_LIMIT", "4MB")
    with pytest.raises(BadRequestError, match=r"ask for a shorter window \(from\)"):
        lifelines(History(told.folder / "lake"), None, None)
