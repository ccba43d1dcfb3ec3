# SPDX-License-Identifier: Apache-2.0
"""The KV configuration is bounded: both listeners say so, by what is visible and by what the fold rejected."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from schemas.codes import ResponseCode
from schemas.events import Actor, PutKvConfig, encode, routing_key
from schemas.limits import KV_ENTRY_BYTES, MAX_KV_BYTES
from tests.model import codes
from tests.model.wire import Request
from tests.support.http_api import HttpApi, problem
from tests.support.local import LocalLake
from tests.support.loops import until

FULL = PutKvConfig(
    actor=Actor(gateway="g", via="remoting"), namespace="n", key="k", value="v" * (MAX_KV_BYTES - KV_ENTRY_BYTES - 2)
)
ENTRY = (routing_key(FULL), encode(FULL))


def test_over_http(tmp_path: Path) -> None:
    with closing(HttpApi(tmp_path)) as api:
        api.fold.pause()
        api.log.append([ENTRY])
        before = api.log.end()
        asked = api.begin("PUT", "/v1/kv/n/more", json={"value": "v"})
        until(lambda: api.written_since(before))
        api.fold.resume()
        rejected = problem(asked.result(60), 413, "too-large")
        assert rejected["reason"] == "KV_TABLE_FULL"
        assert str(MAX_KV_BYTES) in rejected["detail"]
        api.settled()
        before = api.log.end()
        seen = problem(api.put("/v1/kv/n/more", {"value": "v"}), 413, "too-large")
        assert str(MAX_KV_BYTES) in seen["detail"]
        assert api.written_since(before) == []
        assert api.put("/v1/kv/n/k", {"value": "v"}).status_code == 200
        api.settled()
        assert api.put("/v1/kv/n/more", {"value": "v"}).status_code == 200


def test_over_remoting(tmp_path: Path) -> None:
    def put(key: str, value: str = "v") -> Request:
        return Request(codes.PUT_KV_CONFIG, {"namespace": "n", "key": key, "value": value})

    def refused(answer: Any) -> None:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert str(MAX_KV_BYTES) in (answer.remark or "")

    with LocalLake(tmp_path) as lake, lake.gateway() as one, lake.gateway(gateway_id="two", visible_wait_s=0.0) as two:
        lake.fold.pause()
        lake.log.append([ENTRY])
        before = lake.log.end().next_offset
        with one.connect() as client:
            opaque = client.send(put("more"))
            until(lambda: lake.log.end().next_offset > before)
            lake.fold.resume()
            refused(client.receive(opaque))
        with two.connect() as client:
            until(lambda: two.gateway.view.kv.get("n"))
            refused(client.call(put("more")))
