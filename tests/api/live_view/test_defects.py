# SPDX-License-Identifier: Apache-2.0
"""What a head does with what should not be: each has its way, and answers go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from api.gateway.metrics import Metrics
from api.http.routes_health import live_view_problem
from api.live_view import replica as head_module
from api.live_view.replica import LiveReplica
from dev.peers.java import wait_until
from dev.support import events as make
from dev.support.drive import SHARDS, DeltaLake, open_writer
from dev.support.local import LocalGateway, LocalLake
from dev.support.memory_log import MemoryLog
from dev.support.microbatches import Query
from dev.support.view_tables import as_tables, queue_rows
from eventlog.base import DEFAULT_READ_BYTES, DEFAULT_READ_RECORDS, LogRecord
from lake.write import writer as writer_module
from lake.write.shards import shard_of
from lake.write.writer import LakeWriter
from nameserver.state_machine import commands
from nameserver.state_machine import step as step_module
from nameserver.state_machine.state import BrokerGroup
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from nameserver.view.snapshot import RouteView
from schemas.errors import SetupError, UnavailableError
from schemas.events import AnyEvent, DeleteTopic, WipeWritePerm, encode, routing_key
from schemas.route_commit import CommandOutcome
from schemas.tables import KV_CONFIG_TABLE, Table
from tests.api.live_view.tables import Tables

WAIT_S = 20.0


class Log:
    """A log with a reader that can be made to fail."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.lost = False
        self.cut_before = 0
        self.hides_from = 2**62

    def put(self, *events: AnyEvent) -> list[LogRecord]:
        places = self.log.append([(routing_key(event), encode(event)) for event in events])
        return self.log.read(places[0].offset)

    def read(
        self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = DEFAULT_READ_BYTES
    ) -> list[LogRecord]:
        if self.lost:
            raise UnavailableError("lost")
        found = self.log.read(start_offset, max_records, max_bytes)
        return [record for record in found if self.cut_before <= record.offset < self.hides_from]

    def kept_from(self, offset: int) -> int:
        return max(self.cut_before, self.log.kept_from(offset))

    def close(self) -> None:
        pass


class Scene:
    """A live view over a log, with tables that are folded when the test wants."""

    def __init__(self) -> None:
        self.log, self.tables = Log(), Tables()
        self.views: list[RouteView] = []
        self.outcomes: list[CommandOutcome] = []
        self.head = LiveReplica(lambda: self.log, self._on_view, poll_s=0.002)
        self._folded = 0

    def _on_view(self, view: RouteView, _offset: int, outcomes: list[CommandOutcome]) -> None:
        if not self.views or view is not self.views[-1]:
            self.views.append(view)
        self.outcomes += outcomes

    def fold(self, *, flush: bool = True) -> None:
        """An epoch of all that the log has."""
        records = self.log.log.read(self._folded + 1)
        self._folded = records[-1].offset
        epoch = self.tables.fold(records, flush=flush, always=True)
        assert epoch is not None
        self.head.epoch_moved(epoch.view, epoch.changes, [])

    def value(self) -> str | None:
        return self.views[-1].kv_get("n", "k")

    def shows(self, value: str) -> None:
        wait_until(lambda: self.value() == value, WAIT_S, f"the view to show {value}")

    def is_aside(self, why: str) -> None:
        wait_until(lambda: self.head.fallback_reason is not None, WAIT_S, "the head to step aside")
        assert why in str(self.head.fallback_reason)
        assert why in str(live_view_problem(self.head))

    def is_back(self) -> None:
        wait_until(lambda: self.head.fallback_reason is None, WAIT_S, "the head to come back")


@pytest.fixture
def scene() -> Iterator[Scene]:
    """At the head, with an epoch and one record after it."""
    scene = Scene()
    scene.log.put(make.register("b:1"), make.put("n", "k", "1"))
    scene.head.begin(RouteView.empty())
    scene.head.start()
    scene.fold()
    wait_until(lambda: scene.head.checks.compared == 1, WAIT_S, "the epoch to be compared")
    scene.log.put(make.put("n", "k", "2"))
    scene.shows("2")
    yield scene
    scene.head.stop()
    assert not scene.head.checks.differences


# --- records ---


def test_a_record_that_is_none_is_passed_over(scene: Scene) -> None:
    """As in the tables; time passes by it, too."""
    scene.log.log.append([("b:b", b"garbage")])
    (torn,) = scene.log.log.read(4)
    scene.log.put(make.put("n", "k", "3"))
    scene.shows("3")
    scene.fold()
    wait_until(lambda: scene.head.checks.compared == 2, WAIT_S, "the epoch to be compared")
    assert scene.views[-1].event_time.timestamp() * 1000 >= torn.event_time_ms
    assert scene.head.fallback_reason is None


def test_a_rule_that_fails_changes_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outcome says so, as the epoch's does."""
    monkeypatch.setitem(step_module._GROUP_RULES, WipeWritePerm, lambda group, event, at: 1 / 0)
    (record,) = scene.log.put(make.wipe())
    wait_until(lambda: bool(scene.outcomes) and scene.outcomes[-1].offset == record.offset, WAIT_S, "its outcome")
    assert scene.outcomes[-1] == CommandOutcome(record.offset, "rejected", "QUARANTINED")
    scene.fold()
    wait_until(lambda: scene.head.checks.compared == 2, WAIT_S, "the epoch to be compared")


# --- the log ---


def test_a_log_that_lacks_the_next_record(scene: Scene) -> None:
    """The tables answer until they are past the hole."""
    scene.log.cut_before = 5
    scene.log.put(make.put("n", "k", "3"), make.put("n", "k", "4"))
    scene.is_aside("lacks the records from offset 4 on")
    scene.shows("1")  # the last epoch's
    scene.fold(flush=True)
    scene.is_back()
    scene.shows("4")
    scene.log.put(make.put("n", "k", "5"))
    scene.shows("5")


def test_a_log_that_lacks_what_the_tables_do_not_have_yet() -> None:
    """At the start that is an error, as the missing part is not known."""
    scene = Scene()
    scene.log.put(make.register("b:1"), make.put("n", "k", "1"))
    scene.log.cut_before = 2
    with pytest.raises(SetupError, match="lacks the records from offset 0 on"):
        scene.head.begin(RouteView.empty())
    scene.head.stop()


def test_a_log_that_was_cut_and_goes_on(scene: Scene) -> None:
    """Offsets that the head has read are used again."""
    (record,) = scene.log.put(make.put("n", "k", "3"))
    scene.shows("3")
    scene.head.feed([record])
    scene.log.put(make.put("n", "k", "4"))
    scene.shows("4")
    assert scene.head.fallback_reason is None, "the same record again"
    scene.head.feed([record._replace(event_time_ms=record.event_time_ms + 3_600_000)])
    scene.is_aside("was cut before offset 4")


def test_a_log_that_cannot_be_read_while_the_tables_go_on(scene: Scene) -> None:
    scene.log.lost = True
    wait_until(lambda: scene.head.failing, WAIT_S, "the head to fail")
    assert scene.value() == "2"
    scene.log.put(make.put("n", "k", "3"))
    scene.fold()
    scene.is_aside("cannot be read")
    scene.shows("3")
    assert not scene.head.failing
    scene.log.put(make.put("n", "k", "4"))
    scene.fold()
    scene.shows("4")
    assert scene.head.fallback_reason is not None
    scene.log.lost = False
    scene.log.put(make.put("n", "k", "5"))
    scene.fold()
    scene.is_back()
    scene.log.put(make.put("n", "k", "6"))
    scene.shows("6")


def test_tables_that_are_ahead_of_the_logs_reader(scene: Scene) -> None:
    """The live view starts again from the tables. That epoch was not compared."""
    scene.log.hides_from = 4
    scene.log.put(make.put("n", "k", "3"))
    scene.fold()
    scene.shows("3")
    assert scene.head.fallback_reason is None
    assert scene.head.checks.unchecked == 1


def test_tables_that_go_back(scene: Scene) -> None:
    """An operator restored a backup: the live view starts again from it."""
    first = scene.tables.view
    scene.fold()
    wait_until(lambda: scene.head.checks.compared == 2, WAIT_S, "the epoch to be compared")
    number = len(scene.views)
    scene.head.epoch_moved(first, None, [])
    wait_until(lambda: len(scene.views) > number + 1, WAIT_S, "the head to begin anew")
    assert [view.kv_get("n", "k") for view in scene.views[number : number + 2]] == ["1", "2"]
    scene.is_back()


# --- defects ---


def test_a_defect_in_the_head(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers follow the tables alone until the next epoch to begin with."""

    def boom(*args: Any) -> RouteView:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(scene.head._state, "publish", boom)  # this one's alone: lakes that tests share have heads, too
    scene.log.put(make.put("n", "k", "3"))
    scene.is_aside("ZeroDivisionError: planted")
    scene.shows("1")
    scene.log.put(make.heartbeat("b:1"))
    scene.fold(flush=False)
    scene.shows("3")
    assert scene.head.fallback_reason is not None, "an epoch that lacks heartbeats is none to begin with"
    scene.log.put(make.clock())
    scene.fold()
    scene.is_back()
    scene.log.put(make.put("n", "k", "4"))
    scene.shows("4")


@contextmanager
def live_view(tmp_path: Path, **lake: Any) -> Iterator[tuple[LocalLake, LocalGateway]]:
    with LocalLake(tmp_path, **lake) as local, local.gateway() as gateway:
        yield local, gateway


def command(gateway: LocalGateway, event: AnyEvent) -> Any:
    return gateway.loop.run(gateway.gateway.propose(event, None))


def metrics(gateway: LocalGateway) -> dict[str, float]:
    found = Metrics()
    found.observe(gateway.gateway)
    lines = [line for line in found.text().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def ready(gateway: LocalGateway) -> Any:
    """What `/readyz` says."""

    async def ask() -> Any:
        transport = httpx.ASGITransport(gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
            return (await client.get("/readyz")).json()

    return gateway.loop.run(ask())


def nothing_else_failed(told: pytest.ExceptionInfo[AssertionError]) -> None:
    """The end of the gateway told of the difference; what the test asserted before would have been lost behind that."""
    assert told.value.__context__ is None


def _not_written(write: Callable[..., None]) -> Callable[..., None]:
    """A table's part of an epoch is left out."""

    def leave_out(self: LakeWriter, table: Table, *rest: Any) -> None:
        if table is not KV_CONFIG_TABLE:
            write(self, table, *rest)

    return leave_out


def _wrong_value(write: Callable[..., None]) -> Callable[..., None]:
    """A value is written wrong."""

    def change(self: LakeWriter, table: Table, parts: Any, transaction: Any) -> None:
        if table is KV_CONFIG_TABLE:
            parts = [part.set_column(2, "value", pa.array(["wrong"] * len(part))) for part in parts]
        write(self, table, parts, transaction)

    return change


def _stale_partition(write: Callable[..., None]) -> Callable[..., None]:
    """A group's topics stay as they were."""
    return lambda self, partitions, transaction: None


@pytest.mark.parametrize(
    ("writes", "plant", "table", "rows"),
    [
        ("_apply", _not_written, "kvConfigTable", 1),
        ("_apply", _wrong_value, "kvConfigTable", 1),
        ("_commit_partitions", _stale_partition, "topicQueueTable", 2),
    ],
)
def test_a_defect_of_the_writer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    writes: str,
    plant: Callable[[Callable[..., None]], Callable[..., None]],
    table: str,
    rows: int,
) -> None:
    """The difference is found in its epoch and shown in every report, and answers stay those of the event log."""
    with (
        pytest.raises(AssertionError, match=table) as told,
        live_view(tmp_path) as (lake, gateway),
    ):
        checks, follower = gateway.gateway.replica.checks, gateway.gateway.follower

        def epoch_of(*events: AnyEvent) -> None:
            """One epoch has them all, and has been compared."""
            lake.fold.pause()
            number = checks.compared
            offset = [gateway.loop.run(gateway.gateway.propose(event, None)) for event in events][-1].offset
            lake.fold.resume()
            wait_until(lambda: follower.view.log_offset >= offset, WAIT_S, "the epoch to be shown")
            wait_until(lambda: checks.compared > number, WAIT_S, "the epoch to be compared")

        def is_right(value: str) -> bool:
            view = gateway.gateway.view
            return view.kv_get("n", "k") == value and set(queue_rows(view, "T")) == set(queue_rows(view, "U")) == {"b"}

        epoch_of(make.register("b:1", table=make.topics("R", "S")), make.put("n", "k", "1"))
        assert not checks.differences
        with monkeypatch.context() as defect:
            defect.setattr(LakeWriter, writes, plant(getattr(LakeWriter, writes)))
            epoch_of(
                make.register("b:1", table=make.topics("R", "S", "T", "U"), version=make.V2), make.put("n", "k", "2")
            )
        wait_until(lambda: checks.differences == {table: rows}, WAIT_S, "the defect to be found")
        assert is_right("2")
        epoch = follower.view.epoch
        epoch_of(make.register("x:1", name="x", table=make.topics("V", "W")))
        assert is_right("2")
        assert checks.differences == {table: rows}, "told once"
        assert gateway.gateway.replica.fallback_reason is None
        assert metrics(gateway)[f'routelake_live_view_differences_total{{table="{table}"}}'] == rows
        (file,) = lake.lake_dir.glob("live-view-differences-*.json")
        (report,) = json.loads(file.read_text())["differences"]
        assert (report["epoch"], report["counts"]) == (epoch, {table: rows})
        check = ready(gateway)["checks"]["liveView"]
        assert not check["ok"] and f"epoch {epoch}" in check["reason"] and f"{rows} of {table}" in check["reason"]
    nothing_else_failed(told)


def test_a_rule_that_fails_in_one_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command for all groups is then applied by some shards, and by no head: answers stay with the head."""
    other = next(name for name in "cdefghijkl" if shard_of(f"b:{name}", SHARDS) != shard_of("b:b", SHARDS))
    delete = commands.delete_topic

    def fails(group: BrokerGroup, event: DeleteTopic) -> Any:
        if group.broker_name == "b":
            raise ZeroDivisionError
        return delete(group, event)

    monkeypatch.setattr(commands, "delete_topic", fails)
    query = Query(SHARDS)
    with (
        pytest.raises(AssertionError, match="'topicQueueTable': 1") as told,
        live_view(tmp_path, folds=False) as (lake, gateway),
    ):
        query.lake = DeltaLake(open_writer(lake.lake_dir))
        for name in ("b", other):
            event = make.register(f"{name}:1", name=name, table=make.topics("T", "U"))
            gateway.loop.run(gateway.gateway.write(event, None))
        receipt = command(gateway, make.delete_topic("T"))
        assert receipt.is_quarantined
        assert set(queue_rows(gateway.gateway.view, "T")) == {"b", other}
        query.run(lake.log.read(0))
        checks = gateway.gateway.replica.checks
        wait_until(lambda: checks.differences["topicQueueTable"] == 1, WAIT_S, "the difference to be found")
        assert set(queue_rows(gateway.gateway.follower.view, "T")) == {"b"}
        assert set(queue_rows(gateway.gateway.view, "T")) == {"b", other}
        assert gateway.gateway.replica.fallback_reason is None
    nothing_else_failed(told)


# --- rules ---


def test_tables_of_other_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway says so, and answers as without a head until the versions agree."""
    with monkeypatch.context() as newer:
        newer.setattr(writer_module, "STATE_MACHINE_VERSION", STATE_MACHINE_VERSION + 1)
        with live_view(tmp_path, liveness_interval_s=0.0) as (lake, gateway):
            head = gateway.gateway.replica
            command(gateway, make.put("n", "k", "1"))
            wait_until(lambda: head.fallback_reason is not None, WAIT_S, "the head to step aside")
            theirs = f"version {STATE_MACHINE_VERSION + 1} of the rules"
            assert f"{theirs}, this gateway has version {STATE_MACHINE_VERSION}" in str(live_view_problem(head))
            assert metrics(gateway)["routelake_live_view_fallback"] == 1
            assert metrics(gateway)['routelake_state_machine_version{of="tables"}'] == STATE_MACHINE_VERSION + 1
            assert theirs in ready(gateway)["checks"]["liveView"]["reason"]
            # The epoch that made it step aside may be one before the command's.
            wait_until(lambda: gateway.gateway.view.kv_get("n", "k") == "1", WAIT_S, "the tables to have the command")
            lake.fold.pause()
            written = gateway.loop.run(gateway.gateway.write(make.put("n", "k", "2"), None))
            assert gateway.gateway.view.kv_get("n", "k") == "1"
            lake.fold.resume()
            assert written.appended is not None
            assert gateway.loop.run(gateway.gateway.live_view.wait_for(written.appended.offset, WAIT_S))
            receipt = gateway.loop.run(gateway.gateway.result(written))
            assert receipt.verdict == "applied"
            assert gateway.gateway.view.kv_get("n", "k") == "2"
            newer.undo()
            command(gateway, make.put("n", "k", "3"))
            wait_until(lambda: gateway.gateway.replica.fallback_reason is None, WAIT_S, "the head to come back")
            lake.fold.pause()
            command(gateway, make.put("n", "k", "4"))
            assert gateway.gateway.view.kv_get("n", "k") == "4"
            assert metrics(gateway)["routelake_live_view_fallback"] == 0
            lake.fold.resume()


def test_answers_are_those_of_the_tables(scene: Scene) -> None:
    scene.fold()
    wait_until(lambda: scene.head.checks.compared == 2, WAIT_S, "the epoch to be compared")
    assert as_tables(scene.views[-1]) == as_tables(scene.tables.view)
    assert head_module.state_machine_problem(scene.tables.view.commit) is None
