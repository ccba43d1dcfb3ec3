# SPDX-License-Identifier: Apache-2.0
"""Schemathesis asks every operation of /openapi.json whatever it allows, and what it does not, with a token and without.

Never an answer from 500 on but 503; every status, content type and body is one that the description has.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dev.model import codes
from dev.support.accounts import accounts_file, policy, sign
from dev.support.local import LocalGateway, LocalLake
from security.policy import AuthMode
from security.roles import OPERATIONS
from tests.examples.parts import A, config, put, register

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
TOPICS = [config("orders"), config("payments")]
ENDLESS = {"listenEvents"}
EXAMPLES = 4
DEEP_S = 300.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    folder: Path = tmp_path_factory.mktemp("openapi")
    with (
        LocalLake(folder) as lake,
        lake.gateway(policy=policy(AuthMode.ENFORCE), accounts=accounts_file(folder), http_port=0) as gateway,
        gateway.connect() as client,
    ):
        for send, who in (
            (
                register(
                    A,
                    "10.0.0.1:10911",
                ),
                "broker",
            ),
            (put("n", "k", "v"), "admin"),
        ):
            assert client.call(sign(send.request(), who)).code == codes.SUCCESS
        yield gateway


@pytest.fixture(scope="module")
def operations(gateway: LocalGateway) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{gateway.http_url}/openapi.json", headers=bearer("reader"))
    found: list[Any] = [cast("Ok[Any]", result).ok() for result in schema.get_all_operations()]
    return [operation for operation in found if name_of(operation) not in ENDLESS]


def name_of(operation: Any) -> str:
    name: str = operation.definition.raw["operationId"]
    return name


def bearer(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token-{user}"} if user else {}


def ask(operation: Any, user: str, examples: int, number: int, seen: Counter[int]) -> None:
    """Ask one operation some times."""

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def one(case: Any) -> None:
        response = case.call(headers=bearer(user), timeout=120)  # a read may ask to wait for 30 s
        seen[response.status_code] += 1
        assert response.status_code < 500 or response.status_code == 503, response.text
        if not user and OPERATIONS[name_of(operation)] is not None:
            # 429: after 1,000 refusals, by quota.
            assert response.status_code in (400, 401, 429), response.text
        case.validate_response(response, checks=CHECKS)

    one()


@pytest.mark.parametrize("user", ["admin", ""], ids=["with a token", "without"])
def test_every_operation(operations: list[Any], user: str) -> None:
    seen: Counter[int] = Counter()
    for operation in operations:
        ask(operation, user, EXAMPLES if user else 1, 0, seen)
    print(dict(seen))


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_five_minutes(operations: list[Any]) -> None:
    end_s, first, seen = time.monotonic() + DEEP_S, time.time_ns() >> 16, Counter[int]()
    number = first
    while time.monotonic() < end_s:
        for operation in operations:
            for user in ("admin", "broker", "reader", ""):
                ask(operation, user, 10, number, seen)
        number += 1
    print(f"seeds {first} to {number}: {dict(seen)}")
