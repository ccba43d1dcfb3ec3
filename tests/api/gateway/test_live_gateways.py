# SPDX-License-Identifier: Apache-2.0
"""Which gateways are there, by what they wrote."""

from __future__ import annotations

import pytest

from api.gateway.live_gateways import address_of_id, live_addresses


@pytest.mark.parametrize(
    ("gateway_id", "address"),
    [
        ("10.0.0.1:9876", "10.0.0.1:9876"),
        ("rl-0.rl.ns.svc:9876", "rl-0.rl.ns.svc:9876"),
        ("host:9876/2", "host:9876"),
        ("[fd00::1]:9876", "[fd00::1]:9876"),
        ("gw", None),
        ("east/one", None),
        ("a;b:9876", None),
        ("fd00::1:9876", None),
        ("host:123456", None),
        ("", None),
    ],
)
def test_an_id_is_an_address_or_names_none(gateway_id: str, address: str | None) -> None:
    assert address_of_id(gateway_id) == address


def test_those_who_wrote_lately() -> None:
    heard = {
        "b:9876": 100_000,
        "a:9876/1": 99_000,
        "a:9876/2": 98_000,
        "gone:9876": 84_999,
        "late:9876": 85_000,
        "x": 100_000,
    }
    assert live_addresses(heard, "b:9876", 5.0) == ["a:9876", "b:9876", "late:9876"]


def test_a_gateway_that_answers_is_listed() -> None:
    assert live_addresses({}, "me:9876", 5.0) == ["me:9876"]
    assert live_addresses({"other:9876": 60_000, "me:9876": 1}, "me:9876", 5.0) == ["me:9876", "other:9876"]
    assert live_addresses({}, "nobody", 5.0) == []
