# SPDX-License-Identifier: Apache-2.0
"""A data directory of any name works, or is refused by name before anything is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cli.options import check_path
from dev.peers.routelake import ROOT
from dev.support.command import environment, told
from lake.delta.ddl import open_lake
from schemas.errors import SetupError

USABLE = [
    "路由 数据",
    "a'b\"c",
    "a%b",
    "a#b?c",
    "a:b*c",
    "{a}",
    "a@b@c",
    "<a;b>`&=!+()",
    "~",
    "$HOME",
    "${env:HOME}",
    " a ",
    "é",
    "s3:",
    "-x",
]
REFUSED = {
    "a\\b": "backslash",
    "a\\u0041": "backslash",
    "a,b": "comma",
    "a[b": "one of [ ] ^ |",
    "a]b": "one of [ ] ^ |",
    "a^b": "one of [ ] ^ |",
    "a|b": "one of [ ] ^ |",
    "a%41b": "% with two digits",
    "a\nb": "control character",
    "a\x01b": "control character",
    "a\x7fb": "control character",
    "a\udcffb": "not UTF-8",
    "x" * 256: "more than 255 bytes",
    "路" * 90: "more than 255 bytes",
    "/".join(["x" * 100] * 5): "more than 400 bytes",
}
COMMANDS = {
    "serve": ["serve", "--data-dir", "{}"],
    "gateway": ["gateway", "--data-dir", "{}"],
    "fold": ["fold", "--data-dir", "{}"],
    "lake": ["fold", "--lake", "{}"],
    "shared": ["fold", "--shared-dir", "{}", "--master", "spark://127.0.0.1:1"],
    "backup": ["backup", "copy", "--data-dir", "{}"],
    "restore": ["restore", "copy", "--data-dir", "{}"],
    "doctor": ["doctor", "{}"],
    "history": ["history", "changes", "--data-dir", "{}"],
    "verify": ["history", "verify", "--data-dir", "{}"],
    "sql": ["sql", "SELECT 1", "--data-dir", "{}"],
    "spark-sql": ["spark-sql", "SELECT 1", "--data-dir", "{}"],
    "event-log": ["event-log", "copy", "--to", "kafka://127.0.0.1:1/t", "--data-dir", "{}"],
    "lake get": ["lake", "get", "s3://bucket/prefix", "{}"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(("name", "why"), REFUSED.items(), ids=map(ascii, range(len(REFUSED))))
def test_every_command_refuses_it_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], name: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = told(*(word.replace("{}", name) for word in words))
    assert (code, said.count("\n")) == (2, 1), said
    assert why in said
    assert "Choose another folder" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", USABLE)
def test_tables_are_in_a_folder_of_such_a_name_and_nowhere_else(tmp_path: Path, name: str) -> None:
    data_dir = tmp_path / name
    check_path(data_dir, "--data-dir")
    data_dir.mkdir()
    tables = open_lake(data_dir / "lake", retention_days=30)
    assert tables
    assert all((data_dir / "lake" / table / "_delta_log").is_dir() for table in tables)
    rows = pa.table({"a": [1, 2]})
    for mode in ("append", "append", "overwrite"):
        write_deltalake(str(data_dir / "more"), rows, mode=mode)  # by another way in delta-rs than an open table's
    assert DeltaTable(str(data_dir / "more")).to_pyarrow_table().num_rows == 2
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_a_link_or_the_current_folder_leads_to_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "a,b"
    odd.mkdir()
    (tmp_path / "link").symlink_to(odd)
    with pytest.raises(SetupError, match="comma"):
        check_path(tmp_path / "link", "--data-dir")
    monkeypatch.chdir(odd)
    with pytest.raises(SetupError, match="comma"):
        check_path(Path("data"), "--data-dir")


def test_bytes_of_a_command_line_that_are_not_utf_8(tmp_path: Path) -> None:
    done = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"cli.main", b"gateway", b"--data-dir", os.fsencode(tmp_path) + b"/\xff"],
        cwd=ROOT,
        env=environment(LC_ALL="C"),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert b"not UTF-8" in done.stderr
    assert list(tmp_path.iterdir()) == []
