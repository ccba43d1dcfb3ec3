# SPDX-License-Identifier: Apache-2.0
"""docs/how-to/operate/operations.md, "Back-up and restore": its commands as they stand, and what shows whether a backup came back."""

from __future__ import annotations

import re
import subprocess
import urllib.error
from pathlib import Path

from dev.peers.java import wait_until
from dev.peers.routelake import ROOT, Routelake

OPERATIONS = ROOT / "docs" / "how-to" / "operate" / "operations.md"


def blocks(data_dir: Path, backup: Path) -> list[str]:
    (section,) = re.findall(r"^## Back-up and restore$(.*?)^## ", OPERATIONS.read_text(), re.DOTALL | re.MULTILINE)
    found = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return [block.replace("DATA_DIR", str(data_dir)).replace("BACKUP", str(backup)) for block in found]


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
