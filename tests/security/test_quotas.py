# SPDX-License-Identifier: Apache-2.0
"""The settings of quotas as operators write them, and what they promise together."""

from __future__ import annotations

import pytest

from schemas.errors import SetupError
from security.quotas import MB, NAMES, Limiter, Quotas, Rate, parse


def test_without_a_word_the_defaults_hold() -> None:
    assert parse([]) == Quotas()
    assert parse([""]) == Quotas()


def test_values_as_people_write_them() -> None:
    found = parse(["connections=5", "brokers=off, new-names-per-min = 60:1000", "topics=7", "topics=8"])
    assert found.connections == 5
    assert found.brokers is None
    assert found.new_names_per_min == Rate(60, 1000)
    assert found.topics == 8


def test_of_a_rate_alone_the_burst_keeps_its_proportion() -> None:
    assert parse(["admin-requests-per-s=100"]).admin_requests_per_s == Rate(100, 20_000)


@pytest.mark.parametrize(
    "entry",
    ["connections", "connections=", "connections=0", "connections=-1", "connections=5:6", "connections=many",
     "reads-per-s=1:2:3", "reads-per-s=0:5", "reads-per-s=5:", "nothing=5", "=5", "connections=٣"],
)  # fmt: skip
def test_what_cannot_be_understood_is_named(entry: str) -> None:
    with pytest.raises(SetupError, match="--quota"):
        parse([entry])


def test_the_defaults_can_be_given_again() -> None:
    def text(value: int | Rate | None) -> str:
        if isinstance(value, Rate):
            return f"{value.per_period:g}:{value.burst:g}"
        return "off" if value is None else str(value)

    assert parse([f"{name}={text(getattr(Quotas(), name.replace('-', '_')))}" for name in NAMES]) == Quotas()


def test_an_hour_of_one_peer_comes_to_less_than_a_gigabyte() -> None:
    rates = [rate for name, rate in _rates(Quotas()).items() if "_mb_" in name]
    assert len(rates) == 3
    assert sum(rate.per_period + rate.burst for rate in rates) * MB < 1_000_000_000


def test_a_refusal_names_the_limit_the_peer_and_the_option() -> None:
    limiter = Limiter(parse(["admin-requests-per-s=1:2", "brokers=3"]))
    assert [limiter.take("admin-requests-per-s", "10.0.0.1", 0.0) for _ in range(2)] == [None, None]
    refusal = limiter.take("admin-requests-per-s", "10.0.0.1", 0.0)
    assert refusal is not None
    assert refusal.retry_after_s == 1.0
    assert refusal.remark == (
        "quota admin-requests-per-s: 1 admin requests a second, 2 at once, for 10.0.0.1 "
        "(--quota admin-requests-per-s=...); nothing was written"
    )
    assert limiter.take("broker-requests-per-s", "10.0.0.1", 0.0) is None
    assert limiter.take("admin-requests-per-s", "10.0.0.2", 0.0) is None
    assert limiter.count("brokers", "10.0.0.1", 3) is None
    found = limiter.count("brokers", "10.0.0.1", 4)
    assert found is not None
    assert found.remark.startswith("quota brokers: 3 brokers, for 10.0.0.1")


def test_what_is_off_is_never_refused() -> None:
    limiter = Limiter(parse(["reads-per-s=off", "topics=off"]))
    assert all(limiter.take("reads-per-s", "a", 0.0) is None for _ in range(100_000))
    assert limiter.count("topics", "a", 10**12) is None


def _rates(quotas: Quotas) -> dict[str, Rate]:
    found = {name: getattr(quotas, name) for name in quotas.__struct_fields__}
    return {name: rate for name, rate in found.items() if isinstance(rate, Rate)}
