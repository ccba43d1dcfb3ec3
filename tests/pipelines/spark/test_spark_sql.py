# SPDX-License-Identifier: Apache-2.0
"""`./routelake spark-sql`: the tables by name, nothing written, errors in a line, exit codes that say how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from dev.support import any_lake
from dev.support.command import command
from dev.support.terminals import terminal
from pipelines.spark_sql import statements

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]

COMMAND = [sys.executable, "-m", "cli.main", "spark-sql"]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data o'dd ü")
    any_lake.write(directory / "lake")
    return directory


def contents(folder: Path) -> dict[Path, str]:
    return {path: sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("text", "whole", "rest"),
    [
        ("", [], ""),
        ("select 1", [], "select 1"),
        ("select 1;", ["select 1"], ""),
        (";; select 1 ;\n;select\n2; x", ["select 1", "select\n2"], "x"),
        ("select ';', \"a;b\", `c;d` from t;", ["select ';', \"a;b\", `c;d` from t"], ""),
        (r"select 'it\'s; so';", [r"select 'it\'s; so'"], ""),
        ("-- not; this\nselect 1 -- nor; that\n;", ["select 1"], ""),
        ("select 1 /* nor; this\n */ + 1; select '/*';", ["select 1   + 1", "select '/*'"], ""),
        ("select '--';", ["select '--'"], ""),
        ("select 'open; ", [], "select 'open;"),
        ("select 1 /* open;", [], "select 1 /* open;"),
    ],
)
def test_statements_end_with_semicolons(text: str, whole: list[str], rest: str) -> None:
    assert statements(text) == (whole, rest)


def test_no_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said at once, and none is made."""
    monkeypatch.chdir(tmp_path)
    done = command("spark-sql", "--data-dir", "nowhere", "select 1")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("routelake: there is no lake in ")
    assert "--data-dir" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("in_shared_session")
def test_views(data_dir: Path) -> None:
    """A view over another view, which is over a table that the statement does not name."""
    query = "select count(*) > 0 as has_rows from unwritableTopics; select count(*) > 0 as has_rows from changes"
    done = command("spark-sql", "--data-dir", data_dir, "-o", "json", query)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ['{"has_rows":true}', '{"has_rows":true}']


@pytest.mark.usefixtures("in_shared_session")
def test_a_query_that_fails(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before it is printed; then one line, and 1."""
    before = contents(data_dir)
    query = (
        "select key, value from kvconfigtable where key = 'k0'; select 'ü' as a, null as b; select id from range(2000);"
    )
    query += "select * from nope"
    monkeypatch.chdir(tmp_path)
    done = command("spark-sql", "--data-dir", data_dir, "-o", "json", query)
    numbers = [f'{{"id":{number}}}' for number in range(2000)]
    assert done.stdout.splitlines() == ['{"key":"k0","value":"other"}', '{"a":"ü","b":null}', *numbers]
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("routelake: [TABLE_OR_VIEW_NOT_FOUND]")
    assert contents(data_dir) == before
    assert not list(tmp_path.iterdir()), "nothing is left where it was started"


def test_a_session_at_a_terminal(data_dir: Path, tmp_path: Path) -> None:
    """It survives mistakes, reads old versions and refuses to write."""
    before = contents(data_dir)
    typed = [
        "show tables;",
        "select count(*) as in_two_lines",
        "from topicQueueTable version as of 0;",
        "selec 1;",
        "select nope from kvConfigTable;",
        "select * from kvConfigTable version as of 4711;",
        "select assert_true(1 = 2);",
        "insert into kvConfigTable values ('a', 'b', 'c');",
        "with x as (select 'a', 'b', 'c') insert into kvConfigTable select * from x;",
        "delete from kvConfigTable;",
        "optimize kvConfigTable;",
        "vacuum kvConfigTable;",
        "drop table kvConfigTable;",
        "create temp view mine as select count(*) as n from kvConfigTable;",
        "select n as mine_has from mine;",
        "select _change_type from table_changes('kvConfigTable', 0) where key = 'k1' order by _commit_version;",
    ]
    master, slave = terminal()
    try:
        os.write(master, ("\n".join(typed) + "\n\x04").encode())
        done = subprocess.run(
            [*COMMAND, "--data-dir", str(data_dir)],
            cwd=tmp_path,
            env={**ENVIRON, "TERM": "dumb"},
            stdin=slave,
            capture_output=True,
            text=True,
            timeout=280,
        )
    finally:
        os.close(master)
        os.close(slave)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("routelake: ")]
    beginnings = [
        "[PARSE_SYNTAX_ERROR]",
        "[UNRESOLVED_COLUMN",
        "",  # Delta's own words for a version that there is not
        "[USER_RAISED_EXCEPTION]",
        *["this session is read-only"] * 6,
    ]
    assert len(said) == len(beginnings), done.stderr
    for line, beginning in zip(said, beginnings, strict=True):
        assert line.startswith(f"routelake: {beginning}")
    assert "4711" in said[2]
    for shown in ("kvconfigtable", "routecommittable", "in_two_lines", "mine_has", "delete"):
        assert shown in done.stdout, done.stdout
    assert "Traceback" not in done.stderr
    assert '"ts"' not in done.stderr, "PySpark's own log"
    assert contents(data_dir) == before
