# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade, from this version to one that is to come: the fold first, then the gateways, one after the other.

The version to come is this one with other rules and events of a higher level (docs/adr/0019).
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.model import codes
from dev.peers.java import wait_until
from dev.peers.routelake import ROOT, Routelake
from dev.support import lakes
from dev.support.command import process
from dev.support.http_api import broker
from lake.checkpoint import CHECKPOINT_FORMAT
from schemas.events import EVENT_LEVEL
from tests.e2e.scenario import ask, route

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(900)]

NEW_CHECKPOINT = """
import lake.checkpoint
lake.checkpoint.CHECKPOINT_FORMAT += 1
"""
TO_COME = """
import nameserver.state_machine.version, schemas.events
nameserver.state_machine.version.STATE_MACHINE_VERSION += 1
schemas.events.EVENT_LEVEL += 1
"""
WAIT_S = 120.0


class Scene:
    """Processes over one data directory, of this version and of the one to come."""

    def __init__(self, folder: Path, stack: ExitStack, changes: str = TO_COME) -> None:
        (folder / "to-come").mkdir()
        (folder / "to-come" / "sitecustomize.py").write_text(changes)
        self.data_dir = folder / "data"
        self._stack = stack
        self._to_come = {"PYTHONPATH": os.pathsep.join([str(folder / "to-come"), str(ROOT)])}

    def run(self, command: str, *, to_come: bool) -> Routelake:
        made = Routelake(self.data_dir, command, environment=self._to_come if to_come else None)
        self._stack.callback(made.kill)
        return made.start(wait_ready_s=None)

    def gateway(self, *, to_come: bool) -> Routelake:
        made = self.run("gateway", to_come=to_come)
        made.wait_listening(WAIT_S)
        return made

    def level(self) -> int:
        """Of events, as the lake says."""
        file = self.data_dir / "lake" / "lake.json"
        return int(json.loads(file.read_text()).get("events", 1)) if file.exists() else 0


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path, stack)


def is_aside(gateway: Routelake) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.http_port}/metrics", timeout=30) as answer:
        return "\nroutelake_live_view_fallback 1.0" in answer.read().decode()


def put(gateway: Routelake, value: str) -> None:
    assert ask(gateway.namesrv_addr, codes.PUT_KV_CONFIG, namespace="n", key="k", value=value).code == codes.SUCCESS


def shows(value: str, *gateways: Routelake) -> None:
    """Each comes to answer so, and none of them loses the route meanwhile."""

    def shown() -> bool:
        assert all(route(gateway.namesrv_addr, "orders") for gateway in gateways)
        answers = [ask(one.namesrv_addr, codes.GET_KV_CONFIG, namespace="n", key="k") for one in gateways]
        return all((answer.ext or {}).get("value") == value for answer in answers)

    wait_until(shown, WAIT_S, f"all gateways to show {value}")


def test_fold_first_then_gateways_and_never_back(scene: Scene) -> None:
    fold = scene.run("fold", to_come=False)
    old = [scene.gateway(to_come=False) for _ in range(2)]
    for gateway in old:
        gateway.wait_ready()
    body = broker("broker-a", topics=("orders", "refunds"), heartbeatTimeoutMillis=3_600_000)
    old[0].send("POST", "/v1/brokers/register", body, 60)
    wait_until(lambda: all(route(one.namesrv_addr, "orders") for one in old), WAIT_S, "the route at both")
    assert scene.level() == EVENT_LEVEL

    assert fold.stop() == 0
    fold = scene.run("fold", to_come=True)
    wait_until(lambda: scene.level() == EVENT_LEVEL + 1, WAIT_S, "the lake to have the level of the new fold")
    put(old[0], "by an old one")
    shows("by an old one", *old)
    wait_until(lambda: all(map(is_aside, old)), WAIT_S, "the old gateways to follow the tables alone")

    new = [scene.gateway(to_come=True)]
    assert old[0].stop() == 0
    put(old[1], "by the old one that is left")
    shows("by the old one that is left", old[1], *new)
    put(new[0], "by a new one")
    shows("by a new one", old[1], *new)
    restarted = scene.gateway(to_come=False)  # as after a crash in the middle of it
    shows("by a new one", restarted)
    new.append(scene.gateway(to_come=True))
    assert [one.stop() for one in (old[1], restarted)] == [0, 0]
    put(new[1], "all are new")
    shows("all are new", *new)
    assert not any(map(is_aside, new))

    assert fold.stop() == 0
    back = process("fold", "--data-dir", scene.data_dir)
    assert back.returncode == 2, back.stderr
    levels = f"events of level {EVENT_LEVEL + 1}, and this version reads only up to {EVENT_LEVEL}"
    assert f"its event log may contain {levels}" in back.stderr
    assert "Upgrade routelake first" in back.stderr
    shows("all are new", *new)


def test_after_a_new_format_of_the_checkpoint_the_old_fold_goes_on_from_the_tables(tmp_path: Path) -> None:
    """As docs/how-to/operate/upgrade-rollback.md says: delete the folder that the preflight names. Nothing is lost."""
    with ExitStack() as stack:
        scene = Scene(tmp_path, stack, NEW_CHECKPOINT)
        gateway = scene.gateway(to_come=False)
        checkpoint = scene.data_dir / "checkpoints" / "fold"

        def folded(value: str, *, to_come: bool) -> None:
            fold = scene.run("fold", to_come=to_come)
            put(gateway, value)
            wait_until(lambda: value in values(scene.data_dir), WAIT_S, f"{value} in the tables")
            assert fold.stop() == 0

        folded("by this release", to_come=False)
        folded("by the newer release", to_come=True)
        judged = process("doctor", scene.data_dir, "--preflight")
        assert judged.returncode == 1, judged.stdout
        assert "WRONG  checkpoint" in judged.stdout
        assert f"{checkpoint} has format {CHECKPOINT_FORMAT + 1}" in judged.stdout
        refused = process("fold", "--data-dir", scene.data_dir)
        assert refused.returncode == 2
        assert "was written by a newer routelake" in refused.stderr
        shutil.rmtree(checkpoint)
        assert process("doctor", scene.data_dir, "--preflight").returncode == 0
        folded("by this release again", to_come=False)
        assert gateway.stop() == 0
        assert process("doctor", scene.data_dir).returncode == 0


def values(data_dir: Path) -> set[str]:
    lake = data_dir / "lake"
    return {row["value"] for row in lakes.rows(lake, "kvConfigTable")} if (lake / "lake.json").exists() else set()
