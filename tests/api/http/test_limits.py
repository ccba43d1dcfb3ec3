# SPDX-License-Identifier: Apache-2.0
"""What one event may carry over HTTP: the bounds of every listener, named in the refusal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dev.support.http_api import HttpApi, broker, problem
from schemas import limits


def too_many_topics() -> dict[str, Any]:
    return {f"{number:06}": {} for number in range(limits.MAX_TOPICS + 1)}


def too_many_ids() -> dict[str, Any]:
    return {"t": {"bname": "b", "currIdMap": {str(number): 0 for number in range(limits.MAX_MAPPINGS)}}}


def long_names() -> dict[str, Any]:
    return {f"%RETRY%{number:06}{'t' * 240}": {} for number in range(130_000)}


@pytest.mark.parametrize(
    ("field", "value", "status", "limit"),
    [
        ("topicConfigTable", too_many_topics, 422, limits.MAX_TOPICS),
        ("topicQueueMappingInfoMap", too_many_ids, 422, limits.MAX_MAPPINGS),
        ("topicConfigTable", long_names, 413, limits.MAX_EVENT_BYTES),
    ],
)
def test_a_registration(
    tmp_path: Path, field: str, value: Callable[[], dict[str, Any]], status: int, limit: int
) -> None:
    with closing(HttpApi(tmp_path, fold=False)) as api:
        before = api.log.end()
        body = broker()
        body["topicConfigSerializeWrapper"][field] = value()
        answer = api.register(body)
        problem(answer, status, "bad-body" if status == 422 else "too-large")
        assert str(limit) in answer.text
        assert api.written_since(before) == []


def test_a_kv_value_is_measured_in_bytes(tmp_path: Path) -> None:
    with closing(HttpApi(tmp_path)) as api:
        assert api.put("/v1/kv/n/k", {"value": "v" * limits.MAX_KV_VALUE_BYTES}).status_code == 200
        answer = api.put("/v1/kv/n/k", {"value": "\N{SNOWMAN}" * (limits.MAX_KV_VALUE_BYTES // 3 + 1)})
        problem(answer, 422, "bad-body")
        assert str(limits.MAX_KV_VALUE_BYTES) in answer.text
