# SPDX-License-Identifier: Apache-2.0
"""whiteRemoteAddress in RocketMQ's own forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from security.accounts import address_of, rule

CASES = [
    ("10.0.0.1", ["10.0.0.1", "::ffff:10.0.0.1"], ["10.0.0.2", "::1"]),
    ("*", ["10.0.0.1", "::1"], []),
    ("*.*.*.*", ["10.0.0.1"], []),
    ("*:*:*:*:*:*:*:*", ["::1"], []),
    ("10.10.103.*", ["10.10.103.0", "10.10.103.255"], ["10.10.104.1", "10.10.10.3"]),
    ("10.10.*.*", ["10.10.1.2"], ["10.11.1.2", "10.1.0.1"]),
    ("10.0.0.3-5", ["10.0.0.3", "10.0.0.5"], ["10.0.0.2", "10.0.0.6", "10.0.0.35"]),
    ("10.0.1-9.*", ["10.0.1.7", "10.0.9.255"], ["10.0.10.1", "10.0.0.1"]),
    ("10.0.0.{1,20}", ["10.0.0.1", "10.0.0.20"], ["10.0.0.2"]),
    ("10.0.0.1, 10.0.0.9", ["10.0.0.9"], ["10.0.0.2"]),
    ("10.0.0.0/8", ["10.255.0.1"], ["11.0.0.1", "::1"]),
    ("1050:0000:0000:0000:0005:0600:300c:326b", ["1050::5:600:300c:326b"], ["1050::5:600:300c:326c"]),
    ("1050:0:0:0:5:600:300c:{1,2}", ["1050::5:600:300c:2"], ["1050::5:600:300c:3"]),
    ("1050:0:0:0:5:600:300c:1-f", ["1050::5:600:300c:a"], ["1050::5:600:300c:10"]),
    ("fe80:0:0:0:*:*:*:*", ["fe80::1%eth0"], ["fe81::1", "127.0.0.1"]),
    ("fd00::/8", ["fd12::1"], ["fe80::1"]),
]


@pytest.mark.parametrize(("text", "inside", "outside"), CASES, ids=[case[0] for case in CASES])
def test_forms(text: str, inside: list[str], outside: list[str]) -> None:
    matches = rule(text)
    assert {host: matches(address_of(host)) for host in (*inside, *outside)} == {  # type: ignore[arg-type]
        **dict.fromkeys(inside, True),
        **dict.fromkeys(outside, False),
    }


@pytest.mark.parametrize(
    "text",
    ["", " ", "localhost", "10.0.0", "10.0.0.256", "10.0.0.9-3", "10.0.0.-3", "10.0.0.3-", "10.0.0.{1", "10.0.0.1}",
     "10.0.*", "10.0.0.{a}", "1-2", "10.0.0.0/40", "10.0.0.1-2-3", "+1.0.0.*", "10.0.0.1_0-20"],
)  # fmt: skip
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address rule"):
        rule(text)


def test_no_address() -> None:
    assert address_of("") is None
    assert address_of("/run/socket") is None


@given(st.text(alphabet="0123456789.*-{},:af/ ", max_size=24))
def test_any_text_is_a_rule_or_refused(text: str) -> None:
    try:
        matches = rule(text)
    except ValueError:
        return
    for host in ("10.0.0.1", "::1"):
        address = address_of(host)
        assert address is not None
        assert matches(address) in (True, False)
