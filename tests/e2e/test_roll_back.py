# SPDX-License-Identifier: Apache-2.0
"""A newer release takes over a data directory, and this one comes back: docs/how-to/operate/upgrade-rollback.md.

The newer release is a copy of this tree with a higher level, and its gateways and commands are processes. Most of this
release runs in the process of the test. The fold is the product's own without Spark: `test_upgrade.py` has the real one,
with its checkpoint.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest

from dev.model import codes
from dev.model.wire import Request
from dev.peers.java import wait_until
from dev.peers.routelake import ROOT, Routelake
from dev.support import lakes
from dev.support.command import environment, told
from dev.support.fold import Fold
from dev.support.local import LocalLake
from eventlog.open import open_log
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from schemas.events import EVENT_LEVEL
from schemas.tables import LAKE_FORMAT_VERSION
from tests.e2e.scenario import ask

pytestmark = pytest.mark.timeout(600)

WAIT_S: Final = 60.0
NOT_COPIED: Final = (".*", "docs", "tests", "reports", "changes", "checkpoints")
FOLD: Final = """
import sys
from pathlib import Path
from dev.support.fold import Fold
from eventlog.open import open_log
data = Path(sys.argv[1])
Fold(open_log(f"sqlite://{data / 'events.db'}"), data / "lake", intervals=True).fold()
"""
RULES: Final = ("nameserver/state_machine/version.py", "STATE_MACHINE_VERSION")
EVENTS: Final = ("schemas/events.py", "EVENT_LEVEL")
LAKE: Final = ("schemas/tables.py", "LAKE_FORMAT_VERSION")


class Release:
    """One release of routelake over the data directory, in processes.

    Args:
        root: Its tree.
        data: The data directory.
        stack: Ends its gateways.
    """

    def __init__(self, root: Path, data: Path, stack: ExitStack) -> None:
        self._root, self._data, self._stack = root, data, stack

    def run(self, *words: object) -> tuple[int, str]:
        """Exit code and output of a command."""
        return self._python("-m", "cli.main", *words)

    def fold(self) -> tuple[int, str]:
        """Fold what is on the event log."""
        return self._python("-c", FOLD, self._data)

    def preflight(self) -> tuple[int, dict[str, tuple[str, str]]]:
        """Exit code of `doctor --preflight`, and its judgements by subject."""
        code, printed = self.run("doctor", self._data, "--preflight", "-o", "json")
        return code, checks_of(printed)

    def gateway(self) -> Routelake:
        """A gateway that answers."""
        gateway = Routelake(self._data, "gateway", root=self._root)
        self._stack.callback(gateway.kill)
        gateway.start(wait_ready_s=None)
        gateway.wait_listening()
        return gateway

    def write(self, key: str) -> None:
        """Start a gateway, put an entry, stop the gateway, and fold."""
        gateway = self.gateway()
        assert ask(gateway.namesrv_addr, codes.PUT_KV_CONFIG, namespace="n", key=key, value=key).code == codes.SUCCESS
        assert gateway.stop() == 0
        assert self.fold() == (0, "")

    def _python(self, *words: object) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=self._root,
            env=environment(PYTHONPATH=str(self._root)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


class ThisRelease(Release):
    """The release of the tests: it writes, folds and checks in this process. `fold` is a process, as it needs Spark."""

    def run(self, *words: object) -> tuple[int, str]:
        return super().run(*words) if words[0] == "fold" else told(*words)

    def fold(self) -> tuple[int, str]:
        with closing(open_log(self._url)) as log:
            Fold(log, self._data / "lake", intervals=True).fold()
        return 0, ""

    def write(self, key: str) -> None:
        with (
            LocalLake(self._data, log_url=self._url, folds=False) as lake,
            lake.gateway() as gateway,
            gateway.connect() as client,
        ):
            put = Request(codes.PUT_KV_CONFIG, {"namespace": "n", "key": key, "value": key})
            assert client.call(put).code == codes.SUCCESS
        self.fold()

    @property
    def _url(self) -> str:
        return f"sqlite://{self._data / 'events.db'}"


def checks_of(printed: str) -> dict[str, tuple[str, str]]:
    """Judgements of `doctor --preflight -o json`, by subject."""
    return {one["subject"]: (one["level"], one["text"]) for one in json.loads(printed)["checks"]}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.fixture
def this(data: Path, stack: ExitStack) -> Release:
    return ThisRelease(ROOT, data, stack)


@pytest.fixture
def newer(data: Path, stack: ExitStack, tmp_path: Path) -> Callable[..., Release]:
    """A release with these constants raised by one."""

    def make(*raised: tuple[str, str]) -> Release:
        root = tmp_path / "newer"
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        for name, constant in raised:
            text = (root / name).read_text()
            changed = re.sub(rf"^({constant}: Final = )(\d+)$", lambda m: f"{m[1]}{int(m[2]) + 1}", text, flags=re.M)
            assert changed != text, constant
            (root / name).write_text(changed)
        return Release(root, data, stack)

    return make


def in_tables(data: Path) -> set[str]:
    return {row["key"] for row in lakes.rows(data / "lake", "kvConfigTable")}


def shown(gateway: Routelake, *keys: str) -> None:
    """Wait until a gateway answers all entries from its live view."""

    def answers() -> bool:
        found = [ask(gateway.namesrv_addr, codes.GET_KV_CONFIG, namespace="n", key=key) for key in keys]
        return [(answer.ext or {}).get("value") for answer in found] == [*keys]

    wait_until(answers, WAIT_S, f"entries {keys}")


def is_in_fallback_mode(gateway: Routelake) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.http_port}/metrics", timeout=30) as answer:
        return "\nroutelake_live_view_fallback 1.0" in answer.read().decode()


def test_after_a_new_state_machine_version_the_old_release_continues(
    data: Path, this: Release, newer: Callable[..., Release]
) -> None:
    new = newer(RULES)
    this.write("old")
    code, checks = new.preflight()
    assert code == 0
    assert checks["gateways"][0] == "note"
    assert f"from {STATE_MACHINE_VERSION} to {STATE_MACHINE_VERSION + 1}" in checks["gateways"][1]
    assert checks["way back"] == ("ok", "no format changes. The old release starts on this data directory")
    new.write("new")

    code, checks = this.preflight()
    assert code == 0, checks
    assert checks["gateways"][0] == "note" and checks["data directory"][0] == "ok"
    this.write("old again")
    assert in_tables(data) == {"old", "new", "old again"}
    gateway = this.gateway()
    shown(gateway, "old", "new", "old again")
    assert not is_in_fallback_mode(gateway)
    assert gateway.stop() == 0
    assert this.run("doctor", data)[0] == 0


def test_after_a_new_event_level_a_rollback_needs_the_backup(
    data: Path, this: Release, newer: Callable[..., Release], tmp_path: Path
) -> None:
    new = newer(RULES, EVENTS)
    this.write("old")
    code, checks = new.preflight()
    assert code == 0
    assert checks["way back"][0] == "note"
    assert f"raises the level of events from {EVENT_LEVEL} to {EVENT_LEVEL + 1}" in checks["way back"][1]
    assert "older releases refuse this data directory. Take a backup first" in checks["way back"][1]
    assert this.preflight()[0] == 0, "nothing was changed by the question"
    assert this.run("backup", tmp_path / "backup", "--data-dir", data)[0] == 0
    new.write("new")

    code, checks = this.preflight()
    assert code == 1
    assert checks["data directory"][0] == "WRONG"
    assert f"events of level {EVENT_LEVEL + 1}" in checks["data directory"][1]
    assert "restore a backup" in checks["data directory"][1]
    code, printed = this.run("fold", "--data-dir", data)
    assert code == 2 and "Upgrade routelake first" in printed, printed
    assert in_tables(data) == {"old", "new"}, "the refusal changed nothing"

    code, printed = this.run("restore", tmp_path / "backup", "--data-dir", data)
    assert code == 0, printed
    code, checks = this.preflight()
    assert code == 0, checks
    this.write("old again")
    assert in_tables(data) == {"old", "old again"}
    aside = next(data.glob("before-restore-*"))
    assert in_tables(aside) == {"old", "new"}, "the data of the newer release stay readable"


def test_a_new_lake_format_is_reported_before_any_change(
    data: Path, this: Release, newer: Callable[..., Release]
) -> None:
    """This tree has no function that upgrades a lake, so a release with another format refuses it."""
    new = newer(LAKE)
    this.write("old")
    code, checks = new.preflight()
    assert code == 1
    assert f"has format {LAKE_FORMAT_VERSION}" in checks["data directory"][1]
    code, printed = new.fold()
    assert code != 0 and f"reads only format {LAKE_FORMAT_VERSION + 1}" in printed
    code, printed = new.run("gateway", "--data-dir", data, "--remoting", "127.0.0.1:1", "--http", "127.0.0.1:1")
    assert code == 2 and f"reads only format {LAKE_FORMAT_VERSION + 1}" in printed
    this.write("old again")
    assert in_tables(data) == {"old", "old again"}

    shutil.rmtree(data / "lake")
    assert new.fold() == (0, "")
    code, checks = this.preflight()
    assert code == 1
    assert f"has format {LAKE_FORMAT_VERSION + 1}" in checks["data directory"][1]
    code, printed = this.run("fold", "--data-dir", data)
    assert code == 2 and "Upgrade routelake first" in printed
