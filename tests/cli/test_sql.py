# SPDX-License-Identifier: Apache-2.0
"""`routelake sql`: tables, views and macros, in every form; a session is a process, and so is what is piped into it."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from dev.peers.routelake import ROOT
from dev.support import events as make
from dev.support.command import command, environment, process
from dev.support.drive import drive
from dev.support.generated_logs import written
from dev.support.terminals import terminal


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Epoch by epoch: registered, wiped, deleted."""
    folder = tmp_path_factory.mktemp("sql")
    records = written([(0, make.register("a:1", name="a")), (1, make.wipe("a")), (1, make.delete_topic("T"))])
    drive(folder / "lake", [[record] for record in records])
    return folder


def cli(data: Path, *args: str) -> CompletedProcess[str]:
    return command("sql", "--data-dir", data, *args)


def test_a_question_in_each_form(data: Path) -> None:
    query = "SELECT brokerName, perm FROM route_at('T', 1); SELECT count(*) AS n FROM changes"
    found = cli(data, query)
    assert found.returncode == 0, found.stderr
    lines = [line.split() for line in found.stdout.splitlines()]
    assert lines[:3] == [["#brokerName", "#perm"], ["a", "6"], ["#n"]]
    rows = [
        json.loads(line) for line in cli(data, "FROM routeCommitTable ORDER BY epoch", "--json").stdout.splitlines()
    ]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert rows[0]["eventTime"].endswith("Z")
    assert rows[0]["versions"]["topicQueueTable"] == 1
    text = cli(
        data,
        "SELECT topic, before, eventTime FROM diff_between(1, 3) JOIN (SELECT max(eventTime) AS eventTime "
        "FROM changes_between(2, now())) ON true WHERE topic = 'T'",
        "--csv",
    ).stdout
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["topic"], json.loads(row["before"])["perm"]) == ("T", 6)
    assert cli(data, "SELECT range AS i FROM range(5)", "--limit", "2").stdout.splitlines() == [
        *("#i", "0", "1"),
        "there are more rows. Set --limit to show more (2)",
    ]
    assert cli(data, "SELECT range AS i FROM range(5)", "--limit", "2", "--csv").stdout.split() == ["i", "0", "1"]


def test_statements_from_standard_input(data: Path) -> None:
    words = ("sql", "--data-dir", data)
    found = process(
        *words, stdin="CREATE TABLE mine AS FROM live_at(now());\nSELECT brokerName AS ';' FROM mine; -- done"
    )
    assert (found.returncode, found.stdout.split()) == (0, ["#;", "a"]), found.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["SELECT nothing"], 1, "nothing"),
        (["FROM route_at('T', 'yesterday')"], 1, "yesterday"),
        (["DELETE FROM topicQueueTable"], 1, "delete"),
        (["--json", "--csv", "SELECT 1"], 2, "--json and --csv cannot be used together"),
        (["--data-dir", "nothing", "SELECT 1"], 2, "there is no lake in"),
    ],
)
def test_what_is_refused(data: Path, words: list[str], code: int, says: str) -> None:
    found = cli(data, *words)
    assert (found.returncode, found.stdout) == (code, "")
    assert says in found.stderr
    assert found.stderr.startswith("routelake: ")
    assert found.stderr.count("\n") == 1


def test_a_session(data: Path) -> None:
    """A person's terminal: a statement over two lines, a slip, and on it goes."""
    master, slave = terminal()
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "sql", "--data-dir", str(data)],
        cwd=ROOT,
        env=environment(),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        os.write(master, b"SELECT nothing;\nSELECT count(*) AS epochs\nFROM routeCommitTable;\n\x04")
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(master)
        os.close(slave)
    assert process.returncode == 0, errors
    assert "3" in out.split()
    assert "route_at(topic, as_of)" in errors
    assert "nothing" in errors


def test_no_text_of_a_csv_is_a_formula_and_numbers_stay_numbers(data: Path) -> None:
    """The senders of registrations choose the names of topics."""
    query = (
        "SELECT '=HYPERLINK(1)' AS \"=a\", ' @SUM(1)' AS b, chr(9) || 'x' AS c, -5 AS d, -1.50::DECIMAL(9,2) AS e, "
        "-2.5::DOUBLE AS f, (-170141183460469231731687303715884105728)::HUGEINT AS g, 'a;=b' AS h, {'x': '=1'} AS i, "
        "'\uff1d1' AS j, 'plain' AS k"
    )
    text = cli(data, query, "--csv").stdout
    names, row = csv.reader(io.StringIO(text))
    assert names == ["'=a", *"bcdefghijk"]
    large = "-170141183460469231731687303715884105728"
    assert row[:7] == ["'=HYPERLINK(1)", "' @SUM(1)", "'\tx", "-5", "-1.50", "-2.5", large]
    assert row[7:] == ["a;=b", '{"x":"=1"}', "'\uff1d1", "plain"]
    assert '"a;=b"' in text
