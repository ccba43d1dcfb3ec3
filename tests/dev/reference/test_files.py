# SPDX-License-Identifier: Apache-2.0
"""Each file that a gateway and a fold write into a data directory is on the page of files."""

from __future__ import annotations

from pathlib import Path

from dev.model import codes
from dev.model.wire import Request
from dev.reference.files import declared, undeclared
from dev.support.local import LocalLake
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES


def test_files_of_a_gateway_and_a_fold_are_declared(tmp_path: Path) -> None:
    with LocalLake(tmp_path, log_url=f"sqlite://{tmp_path}/events.db") as lake, lake.gateway() as gateway:
        with gateway.connect() as client:
            client.call(Request(codes.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}))
        assert (tmp_path / "events.db").exists() and (tmp_path / "lake" / "lake.json").exists()
        assert undeclared(tmp_path) == []
        (tmp_path / "lake" / "unknown.json").touch()
        assert undeclared(tmp_path) == ["lake/unknown.json"]


def test_tables_are_declared() -> None:
    for table in (*ALL_TABLES, *INTERVAL_TABLES):
        assert declared(f"lake/{table.name}/_delta_log/00000000000000000000.json"), table.name
