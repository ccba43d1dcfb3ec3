# SPDX-License-Identifier: Apache-2.0
"""The KV configuration is bounded: both listeners say so."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from dev.model import codes
from dev.model.wire import Request
from dev.support.http_api import HttpApi, problem
from dev.support.local import LocalLake
from schemas.codes import ResponseCode
from schemas.events import Actor, PutKvConfig, encode, routing_key
from schemas.limits import KV_ENTRY_BYTES, MAX_KV_BYTES

FULL = PutKvConfig(
    actor=Actor(gateway="g", via="remoting"), namespace="n", key="k", value="v" * (MAX_KV_BYTES - KV_ENTRY_BYTES - 2)
)
ENTRY = (routing_key(FULL), encode(FULL))


def test_over_http(tmp_path: Path) -> None:
    with closing(HttpApi(tmp_path)) as api:
        api.fold.pause()
        api.log.append([ENTRY])
        rejected = problem(api.put("/v1/kv/n/more", {"value": "v"}), 413, "too-large")
        assert rejected["reason"] == "KV_TABLE_FULL"
        assert str(MAX_KV_BYTES) in rejected["detail"]
        assert api.put("/v1/kv/n/k", {"value": "v"}).status_code == 200
        assert api.put("/v1/kv/n/more", {"value": "v"}).status_code == 200


def test_over_remoting(tmp_path: Path) -> None:
    def put(key: str, value: str = "v") -> Request:
        return Request(codes.PUT_KV_CONFIG, {"namespace": "n", "key": key, "value": value})

    def refused(answer: Any) -> None:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert str(MAX_KV_BYTES) in (answer.remark or "")

    with LocalLake(tmp_path, folds=False) as lake, lake.gateway() as gateway, gateway.connect() as client:
        lake.log.append([ENTRY])
        refused(client.call(put("more")))
        assert client.call(put("k")).code == ResponseCode.SUCCESS
        assert client.call(put("more")).code == ResponseCode.SUCCESS
