# SPDX-License-Identifier: Apache-2.0
"""What the standard library's loggers say comes out as every other line does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT

PROGRAM = """
import logging, structlog
from runtime.logs import configure
configure("gateway")
logging.getLogger("routelake.remoting").debug("hidden")
logging.getLogger("routelake.remoting").info("of %s", "the library")
logging.getLogger("asyncio").info("Using selector")
logging.getLogger("kafka").error("broker is away")
structlog.get_logger().info("of ours")
"""


@pytest.mark.parametrize(("level", "lines"), [("info", ["of the library", "of ours"]), ("warning", [])])
def test_the_standard_library_s_loggers_reach_the_log_at_its_level(level: str, lines: list[str]) -> None:
    environment = {**os.environ, "ROUTELAKE_LOG_FORMAT": "json", "ROUTELAKE_LOG_LEVEL": level}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    printed = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in printed] == lines
    assert all((line["process"], line["level"]) == ("gateway", "info") for line in printed)


@pytest.mark.parametrize(
    ("command", "variable", "expected"),
    [
        ("serve", "ROUTELAKE_LOG_LEVEL", "debug, info, warning, error"),
        ("gateway", "ROUTELAKE_LOG_FORMAT", "text, json"),
        ("fold", "ROUTELAKE_LOG_LEVEL", "debug, info, warning, error"),
    ],
)
def test_an_unknown_level_or_format_prevents_the_start(
    tmp_path: Path, command: str, variable: str, expected: str
) -> None:
    environment = {**os.environ, variable: "loud", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"routelake: {variable} is 'loud': expected one of {expected}.\n"
    assert not list(tmp_path.iterdir())
