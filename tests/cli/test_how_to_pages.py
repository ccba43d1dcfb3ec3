# SPDX-License-Identifier: Apache-2.0
"""The commands of the pages for operators are run, in the order of each page, at a gateway with a fold and a broker.

A block that ends a process, needs another machine or a JVM says so in a comment before it (``dev/support/pages.py``).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dev.peers.java import wait_until
from dev.peers.routelake import ROOT, Routelake
from dev.support.broker_agent import broker_agent
from dev.support.fold import FoldThread
from dev.support.pages import OPERATE, Block, blocks
from eventlog.open import open_log

PAGES = sorted([*OPERATE.rglob("*.md"), *(ROOT / "docs" / "explanation").glob("[!a]*.md")])
TOPIC = "orders"
_TEST = re.compile(r"\btests/[\w/]+\.py\b")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs"))


def is_run(block: Block) -> bool:
    return not block.comment and block.language in ("", "console", "sh", "bash")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the names on the pages mean here: addresses of a gateway, a data directory, a topic."""
    folder = tmp_path_factory.mktemp("pages")
    data_dir = folder / "data"
    data_dir.mkdir()
    log = open_log(f"sqlite://{data_dir / 'events.db'}")
    gateway = Routelake(data_dir, "gateway")
    routelake = f"{sys.executable} -m cli.main"
    with FoldThread(log, data_dir / "lake"):
        try:
            gateway.start(wait_ready_s=120)
            meanings = {
                r"\./routelake(?= )": routelake,
                r"curl -s(?= )": "curl -s --fail-with-body",
                r"(?:GATEWAY|localhost):8080|\bADDRESS\b": f"127.0.0.1:{gateway.http_port}",
                r"(?:GATEWAY|localhost|127\.0\.0\.1):9876": gateway.namesrv_addr,
                r"\bDATA_DIR\b": str(data_dir),
                r"\bBACKUP\b": f"{folder}/backup-PAGE",
                r"\bTOPIC\b": TOPIC,
                r" -1h\b": " -1s",  # these tables are younger than an hour
                r"history changes (?!.*--http)": f"history changes --http 127.0.0.1:{gateway.http_port} ",
            }
            with broker_agent(gateway.namesrv_addr, folder / "store"):  # takes the admin commands of a topic
                wait_until(lambda: "broker-a" in str(gateway.get("/v1/clusters")), 60, "the broker", 0.05)
                topic = f"./routelake admin updateTopic -n GATEWAY:9876 -c DefaultCluster -t {TOPIC}"
                code, printed = shell(meant(topic, meanings))
                assert code == 0, printed
                offset = gateway.get("/readyz")["offset"]
                route = f"/v1/topics/{TOPIC}/route?reads=committed&wait_for={offset}&wait_timeout=30000"
                gateway.send("GET", route, timeout_s=60)
                meanings[r"\bEPOCH\b"] = str(gateway.get("/v1/epochs?limit=1")["epochs"][0]["epoch"])
                yield meanings
        finally:
            gateway.kill()
    log.close()


def meant(text: str, names: Mapping[str, str]) -> str:
    for pattern, value in names.items():
        text = re.sub(pattern, value, text)
    return text


def shell(script: str) -> tuple[int, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ROUTELAKE_")}
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=ROOT,
        env={**variables, "PYTHONPATH": str(ROOT), "COLUMNS": "160", "TOKEN": "no-token"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def transcript(text: str) -> Iterator[tuple[str, str]]:
    """Commands of a block, each with the output that the page shows; without prompts the block is one command."""
    if not text.startswith("$ "):
        yield text, ""
        return
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        ends = next((number for number, line in enumerate(lines, 1) if not line.endswith("\\")), len(lines))
        yield "\n".join(lines[:ends]), "\n".join(lines[ends:]).strip()


@pytest.mark.parametrize("page", [page for page in PAGES if any(map(is_run, blocks(page)))], ids=named)
def test_the_commands_of_a_page(page: Path, names: dict[str, str]) -> None:
    for block in filter(is_run, blocks(page)):
        for command, shown in transcript(block.text):
            code, printed = shell(meant(command, names).replace("backup-PAGE", f"backup-{page.stem}"))
            assert code == 0, f"{named(page)}:{block.line}: {command}\n{printed}"
            if shown:
                wanted = re.sub(r"\d+", "0", meant(shown, names))
                assert re.sub(r"\d+", "0", printed.strip()) == wanted, f"{named(page)}:{block.line}: {command}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    for block in blocks(page):
        place = f"{named(page)}:{block.line}"
        if block.run_by:
            assert page.name in (ROOT / block.run_by).read_text(encoding="utf-8"), f"{place}: {block.run_by}"
        elif block.reason:
            assert not [test for test in _TEST.findall(block.reason) if not (ROOT / test).is_file()], place
        else:
            assert is_run(block) or block.language == "text" or "routelake" not in block.text, place
