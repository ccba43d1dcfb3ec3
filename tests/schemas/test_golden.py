# SPDX-License-Identifier: Apache-2.0
"""Every release's event log, lake, settings and interfaces are taken by this code: docs/reference/promises.md.

The copies in ``golden/VERSION`` were written by `dev.release.golden` with the code of that release. A test that fails here
means that a promise would be broken. Change the code, not the copy.
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dev.model import codes
from dev.model.wire import Request
from dev.release import golden
from dev.support import events as make
from dev.support.fold import Fold
from dev.support.local import LocalLake
from eventlog.sqlite.log import SqliteLog
from nameserver.state_machine.state import At, RouteState
from nameserver.state_machine.step import apply, step
from ops.doctor.examine import examine
from schemas.events import decode, encode, routing_key

KINDS_OF_0_1_0 = {
    "AccessRefused", "AddWritePerm", "BrokerHeartbeat", "ChannelClosed", "Clock", "DeleteKvConfig", "DeleteTopic",
    "Preserve", "PreserveEnd", "PutKvConfig", "RegisterBroker", "RegisterTopic", "Resume", "UnregisterBroker",
    "WipeWritePerm",
}  # fmt: skip
RELEASES = sorted(path.name for path in golden.GOLDEN.iterdir())


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Path:
    return golden.GOLDEN / str(request.param)


@pytest.fixture
def data(release: Path, tmp_path: Path) -> Path:
    """The data directory of the release."""
    folder = tmp_path / "data"
    with tarfile.open(release / golden.DATA) as archive:
        archive.extractall(folder, filter="data")
    return folder


def copy(release: Path, name: str) -> Any:
    return json.loads((release / name).read_text(encoding="utf-8"))


def test_0_1_0_is_there() -> None:
    assert "0.1.0" in RELEASES


def test_the_tables_are_read_as_they_were(release: Path, data: Path) -> None:
    """A column that is new is null, or is not there; it changes no other."""
    found, expected = golden.tables(data / "lake"), copy(release, "tables.json")
    for name, rows in expected.items():
        columns = [set(json.loads(row)) for row in rows]
        kept = [
            json.dumps({key: value for key, value in json.loads(row).items() if key in set().union(*columns)})
            for row in found[name]
        ]
        assert sorted(map(_canonical, kept)) == sorted(map(_canonical, rows)), name


def _canonical(row: str) -> str:
    return json.dumps(json.loads(row), sort_keys=True)


def test_a_gateway_on_the_data_answers_as_it_did(release: Path, data: Path) -> None:
    assert golden.answers(data) == copy(release, "answers.json")


def test_a_gateway_with_the_log_alone_answers_as_it_did(release: Path, data: Path, tmp_path: Path) -> None:
    """The log is the truth: the tables can be rebuilt from it."""
    with closing(SqliteLog(data / "events.db")) as log:
        Fold(log, tmp_path / "anew" / "lake").fold()
    (data / "lake").rename(tmp_path / "old lake")
    (tmp_path / "anew" / "lake").rename(data / "lake")
    assert golden.answers(data) == copy(release, "answers.json")


def test_every_event_is_decoded_and_has_its_outcome(data: Path) -> None:
    state, kinds = RouteState(), set()
    with closing(SqliteLog(data / "events.db")) as log:
        for record in log.read(0):
            event = decode(record.payload)
            kinds.add(type(event).__name__)
            done = step(state, event, At(record.offset, record.event_time_ms))
            apply(state, done)
    assert kinds >= KINDS_OF_0_1_0


def test_the_fold_goes_on(data: Path) -> None:
    with closing(SqliteLog(data / "events.db")) as log:
        added = make.register("new:1", name="new", table=make.topics("NEW", "T"))
        log.append([(routing_key(added), encode(added))])
        epoch = Fold(log, data / "lake", intervals=True).fold()
    assert epoch is not None
    with (
        LocalLake(data, log_url=f"sqlite://{data / 'events.db'}") as lake,
        lake.gateway() as gateway,
        gateway.connect() as client,
    ):
        found = client.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "NEW"}))
        assert found.code == codes.SUCCESS and b'"new"' in found.body


def test_doctor_finds_nothing_wrong(data: Path) -> None:
    found = examine(data, data / "events.db", thorough=True)
    assert found.is_well, found.findings


def test_the_log_is_a_sound_sqlite_file(data: Path) -> None:
    with closing(sqlite3.connect(data / "events.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


NOW = golden.interfaces


def test_interfaces_only_grow(release: Path) -> None:
    """Options with their variables, properties, extras, endpoints with parameters and fields, columns with types."""
    before, now = copy(release, "interfaces.json"), NOW()
    for option, of in before["options"].items():
        assert option in now["options"], f"{option} has gone; keep it, deprecated"
        assert set(of["variables"]) <= set(now["options"][option]["variables"]), option
        assert now["options"][option]["default"] == of["default"], f"{option} has another default"
    assert set(before["namesrvProperties"]) <= set(now["namesrvProperties"])
    assert set(before["extras"]) <= set(now["extras"])
    for operation, of in before["http"].items():
        assert operation in now["http"], f"{operation} has gone"
        for part in ("parameters", "fields"):
            assert set(of[part]) <= set(now["http"][operation][part]), (operation, part)
    for table, columns in before["tables"].items():
        assert now["tables"][table][: len(columns)] == columns, f"columns of {table} have moved, or have another type"
