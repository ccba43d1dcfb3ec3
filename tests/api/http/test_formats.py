# SPDX-License-Identifier: Apache-2.0
"""A gateway and the formats of what it reads; docs/adr/0019. The fold's: tests/lake/delta/test_ddl.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from api.http.settings import HttpSettings
from api.main import run_gateway
from api.settings.gateway import GatewaySettings
from remoting.server.settings import RemotingSettings
from schemas.errors import SetupError
from schemas.tables import LAKE_FORMAT_VERSION
from security.policy import Policy


def test_a_lake_of_a_newer_format_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "lake.json").write_text(json.dumps({"format": LAKE_FORMAT_VERSION + 1}))
    with pytest.raises(
        SetupError, match=r"has format \d+, and this routelake reads only format \d+\. Upgrade routelake first"
    ):
        run_gateway(
            GatewaySettings("g", tmp_path),
            f"sqlite://{tmp_path}/events.db",
            http=("127.0.0.1", 0),
            remoting=("127.0.0.1", 0),
            remoting_settings=RemotingSettings(),
            http_settings=HttpSettings(),
            policy=Policy(),
            accounts=None,
        )
    assert not (tmp_path / "events.db").exists()
