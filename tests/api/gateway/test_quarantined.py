# SPDX-License-Identifier: Apache-2.0
"""A command that a rule fails on was acknowledged, is kept in quarantineTable, and neither API says OK to it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dev.model import codes
from dev.model.wire import Request
from dev.support.http_api import HttpApi, problem
from dev.support.local import LocalLake
from nameserver.state_machine import step
from schemas.codes import ResponseCode
from schemas.events import DeleteTopic, PutKvConfig, RegisterTopic, WipeWritePerm
from tests.examples.parts import ADDR1, T1, A, register, row

KV = {"namespace": "n", "key": "k", "value": "v"}
ROWS = {"queueDatas": [row(A)]}
COMMANDS = {
    "put": Request(codes.PUT_KV_CONFIG, KV),
    "delete-topic": Request(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": T1}),
    "wipe": Request(codes.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": A}),
    "register-topic": Request(codes.REGISTER_TOPIC_IN_NAMESRV, {"topic": T1}, json.dumps(ROWS).encode()),
    "update-config": Request(codes.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true"),
}


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that fail on everything but registrations."""

    def failing(*_: Any) -> Any:
        raise OverflowError("a defect")

    monkeypatch.setitem(step._KV_RULES, PutKvConfig, failing)
    for command in (DeleteTopic, WipeWritePerm, RegisterTopic):
        monkeypatch.setitem(step._GROUP_RULES, command, failing)


@pytest.mark.usefixtures("defect")
@pytest.mark.parametrize("request_", COMMANDS.values(), ids=COMMANDS)
def test_over_remoting(tmp_path: Path, request_: Request) -> None:
    with LocalLake(tmp_path) as lake, lake.gateway(allow_config_update=True) as gateway, gateway.connect() as client:
        assert client.call(register(A, ADDR1).request()).code == codes.SUCCESS
        answer = client.call(request_)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "quarantineTable" in (answer.remark or "")


@pytest.mark.usefixtures("defect")
def test_over_http(tmp_path: Path) -> None:
    with closing(HttpApi(tmp_path)) as api:
        found = problem(api.put("/v1/kv/n/k", {"value": "v"}), 500, "internal-error")
    assert found["reason"] == "QUARANTINED"
    assert found["offset"] > 0
