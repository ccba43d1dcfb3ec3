# SPDX-License-Identifier: Apache-2.0
"""The SQL of docs/tutorial/first-route.md, word for word: the route before the topic was deleted, and who deleted it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import distribution, files
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dev.peers.routelake import ROOT
from dev.support import events as make
from dev.support.command import command
from dev.support.drive import drive
from dev.support.generated_logs import written

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]

PAGE = ROOT / "docs" / "tutorial" / "first-route.md"
CHOOSE = ROOT / "docs" / "how-to" / "analyze" / "choose-a-table.md"


def block(language: str, page: Path = PAGE) -> str:
    """The page's code in a language."""
    found = re.search(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
    assert found is not None, f"the page shows nothing in {language}"
    return found.group(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/lake: epoch 1 registers orders, which is deleted later; other brokers come, and one registers again.

    So the tables have files of appends and of merges, which could not always be filtered together (docs/adr/0009).
    """
    folder = tmp_path_factory.mktemp("first-route")
    (folder / "data").mkdir()
    names = ("orders", "TBW102", "audit")
    both, more = make.topics(*names), make.topics(*names, row=make.ROW._replace(perm=4))
    history = [
        make.register(table=both),
        make.register("c:1", name="c", table=both),
        make.register("d:1", name="d", table=both),
        make.register("c:1", name="c", table=more, version=make.V2),
        make.delete_topic("orders"),
        make.register("e:1", name="e", table=make.topics("other", "TBW102")),
    ]
    drive(folder / "data" / "lake", [[record] for record in written([(1_000, event) for event in history])])
    return folder


@pytest.mark.usefixtures("in_shared_session")
def test_spark_sql(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that has ./data, from standard input; then the join of two tables at one epoch."""
    monkeypatch.chdir(folder)
    done = command("spark-sql", stdin=f"{block('sql')}\n{block('sql', CHOOSE)}")
    assert done.returncode == 0, done.stderr
    version, route, who, versions, joined = done.stdout.split("\n\n")[:5]
    assert re.search(r"\|1 +\|1 +\|", versions), versions
    assert re.search(r"\|orders\|b +\|\w+ +\|8 +\|", joined), joined
    assert re.search(r"\|1 +\|", version), version
    assert re.search(r"\|b +\|orders\|8 +\|8 +\|6 +\|", route), route
    assert "DELETE_TOPIC_IN_NAMESRV" in who
    peer = make.actor().peer
    assert peer is not None
    assert peer in who


def test_duckdb(folder: Path) -> None:
    """With nothing but what the page's pip line installs."""
    (line,) = re.findall(r"`pip install ([^`]+)`", PAGE.read_text())
    site = folder / "site-packages"
    _only(site, line.split())
    now = """
queues = table("topicQueueTable")
print("now", duckdb.sql("select count(*) from queues where topic = 'TBW102'").fetchall())"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", block("python") + now],
        cwd=folder,
        env={"PYTHONPATH": str(site), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"b\s*│\s*8\s*│\s*6", done.stdout), done.stdout
    assert "now [(4,)]" in done.stdout
    assert f"DELETE_TOPIC_IN_NAMESRV {make.actor().peer}" in done.stdout


def _only(site: Path, names: list[str]) -> None:
    """A folder of packages with these distributions and what they need."""
    wanted, todo = set[str](), list(names)
    while todo:
        name = todo.pop().lower().replace("_", "-")
        if name not in wanted:
            wanted.add(name)
            needs = map(Requirement, distribution(name).requires or [])
            todo += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    site.mkdir()
    for name in wanted:
        for file in files(name) or []:
            top = site / file.parts[0]
            if file.parts[0] not in ("..", "__pycache__") and not top.exists():
                top.symlink_to(Path(str(distribution(name).locate_file(file.parts[0]))))
