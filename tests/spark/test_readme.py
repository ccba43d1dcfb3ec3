"""The questions of the README, word for word: what was the route before the topic was deleted, and who deleted it?"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fold import events as make
from tests.fold.logs import batches, written
from tests.tables.drive import drive

pytestmark = pytest.mark.jvm

README = Path(__file__).resolve().parents[2] / "README.md"


def block(language: str) -> str:
    """The README's code in a language."""
    found = re.search(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None, f"the README shows nothing in {language}"
    return found.group(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/lake: epoch 2 registers orders, epoch 3 deletes it."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "data").mkdir()
    history = [
        make.put("n", "k"),
        make.register(table=make.topics("orders", "TBW102")),
        make.delete_topic("orders"),
    ]
    drive(folder / "data" / "lake", list(batches(written([(1_000, event) for event in history]), [1])))
    return folder


def test_spark_sql(spark: SparkSession, folder: Path) -> None:
    text = re.sub(r"--[^\n]*", "", block("sql")).replace("data/lake", str(folder / "data" / "lake"))
    version, route, who = (spark.sql(statement).collect() for statement in text.split(";") if statement.strip())
    assert [list(row) for row in version] == [[1]]
    assert [(row["brokerName"], row["readQueueNums"], row["perm"]) for row in route] == [("b", 8, 6)]
    assert [row["command"] for row in who] == ["DELETE_TOPIC_IN_NAMESRV"]
    assert who[0]["peer"] == make.actor().peer


def test_duckdb(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "readme.py"
    script.write_text(block("python"))
    monkeypatch.chdir(folder)
    runpy.run_path(str(script))
    printed = capsys.readouterr().out
    assert "DELETE_TOPIC_IN_NAMESRV" in printed
    assert re.search(r"b\s*│\s*8\s*│\s*6", printed), printed
