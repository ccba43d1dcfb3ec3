# SPDX-License-Identifier: Apache-2.0
"""docs/how-to/integrate/route-client.md shows what happens: its commands and its code are run."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from dev.support.command import process
from dev.support.live import LiveRoutelake, register, run

PAGE = (Path(ROOT) / "docs" / "how-to" / "integrate" / "route-client.md").read_text()
COMMANDS = re.findall(r"^\$ ./routelake route (.+)\n((?:(?!\$ |```).*\n)+)", PAGE, re.MULTILINE)
EXAMPLES = re.findall(r"```python\n(.+?)```\n```text\n(.+?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRoutelake]:
    lake = LiveRoutelake(tmp_path_factory.mktemp("lake"))
    run(register(lake, "broker-a", "orders", cluster="DefaultCluster", host=1))
    run(register(lake, "broker-a", "orders", cluster="DefaultCluster", host=2, brokerId=1))
    run(register(lake, "broker-b", "orders", cluster="DefaultCluster", host=3))
    yield lake
    lake.close()


def live(text: str, lake: LiveRoutelake) -> str:
    return text.replace("http://127.0.0.1:8080", lake.http_url).replace("127.0.0.1:9876", lake.namesrv_addr)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_page_has_examples() -> None:
    assert len(COMMANDS) == 3
    assert len(EXAMPLES) == PAGE.count("```python") == 2


@pytest.mark.parametrize(("command", "expected"), COMMANDS)
def test_command(shown: LiveRoutelake, command: str, expected: str) -> None:
    done = process("route", *(word.strip("'") for word in live(command, shown).split()))
    if expected.startswith("{"):
        expected = expected.replace("\n ", "")
    assert lines(done.stdout + done.stderr) == lines(live(expected, shown))


@pytest.mark.parametrize(("code", "expected"), EXAMPLES)
def test_example(shown: LiveRoutelake, code: str, expected: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(live(code, shown), "route-client.md", "exec"), {"__name__": "__main__"})
    assert lines(printed.getvalue()) == lines(expected)
