# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/how-to/operate/backup-restore.md as they stand, and what shows whether a backup came back."""

from __future__ import annotations

import subprocess
import urllib.error
from pathlib import Path

from dev.peers.java import wait_until
from dev.peers.routelake import ROOT, Routelake
from dev.support.pages import OPERATE, run_by


def blocks(data_dir: Path, backup: Path) -> tuple[str, str]:
    """What takes a backup, and what verifies and restores it."""
    found = run_by(OPERATE / "backup-restore.md", "tests/e2e/backups.py")
    take, *bring_back = [block.replace("DATA_DIR", str(data_dir)).replace("BACKUP", str(backup)) for block in found]
    assert len(bring_back) == 2
    return take, "".join(bring_back)


def shell(block: str) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-euc", block], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def put(server: Routelake, key: str) -> None:
    """Acknowledged, and in the tables."""
    offset = server.send("PUT", f"/v1/kv/orders/{key}", {"value": key}, 60)["offset"]
    wait_until(lambda: has(server, key, f"?reads=committed&wait_for={offset}"), 90, f"{key} to be in the tables")


def has(server: Routelake, key: str, query: str = "") -> bool:
    try:
        return bool(server.get(f"/v1/kv/orders/{key}{query}"))
    except urllib.error.HTTPError as error:
        assert error.code in (404, 503)
        return False
