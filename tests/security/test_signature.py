# SPDX-License-Identifier: Apache-2.0
"""ACL 1.0, by vectors of Apache's own classes (reference: AclUtils, AclSigner of 5.5.0)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from security.signature import ACCESS_KEY, SIGNATURE, ZONE_FIELDS, is_signed_by, sign, signed

# brokerId, brokerName, brokerAddr and so on of a 103, in whatever order; the values go into the content by key.
REGISTRATION = {
    "SecurityToken": "tok",
    "AccessKey": "AK",
    "brokerAddr": "10.0.0.1:10911",
    "bodyCrc32": "0",
    "brokerId": "0",
    "brokerName": "broker-a",
    "clusterName": "c1",
    "compressed": "false",
    "haServerAddr": "10.0.0.1:10912",
}

texts = st.text(max_size=12)
fields = st.dictionaries(st.text(max_size=8).filter(lambda name: name != SIGNATURE), texts, max_size=6)


def test_vectors() -> None:
    assert sign({"a": "rocketmq2", "b": "orders"}, b"", "12345678") == "v16wSxyxEf8y2zCbL4aQWhNf0j8="
    content = {"a": "AKtok010.0.0.1:109110broker-ac1false10.0.0.1:10912"}
    assert sign(content, b"{}", "SK") == "A353lUhsseLAe2ztJxRyABCwBaQ="


def test_values_go_in_by_the_order_of_their_keys() -> None:
    assert sign(REGISTRATION, b"{}", "SK") == "A353lUhsseLAe2ztJxRyABCwBaQ="
    assert is_signed_by("SK", {**REGISTRATION, SIGNATURE: "A353lUhsseLAe2ztJxRyABCwBaQ="}, b"{}")


def test_zone_fields_are_in_it_or_not() -> None:
    """Brokers sign after the zone hook, clients before it."""
    zone = {"__ZONE_NAME": "z1", "__ZONE_MODE": "true"}
    before = sign(REGISTRATION, b"", "SK")
    after = sign({**REGISTRATION, **zone}, b"", "SK")
    assert before != after
    for signature in (before, after):
        assert is_signed_by("SK", {**REGISTRATION, **zone, SIGNATURE: signature}, b"")
    assert not is_signed_by("SK", {**REGISTRATION, "zone": "z1", SIGNATURE: before}, b"")


def test_an_empty_value_is_none() -> None:
    """A ROCKETMQ header cannot tell them apart."""
    assert sign({**REGISTRATION, "zz": ""}, b"", "SK") == sign(REGISTRATION, b"", "SK")


def test_the_wrong_signature() -> None:
    found = signed(REGISTRATION, b"{}", "AK", "SK")
    for wrong in ("", "A353", found[SIGNATURE].lower(), found[SIGNATURE] + "=", "é", "\ud800"):
        assert not is_signed_by("SK", {**found, SIGNATURE: wrong}, b"{}")
    assert not is_signed_by("SK", REGISTRATION, b"{}")
    assert not is_signed_by("SL", found, b"{}")
    assert not is_signed_by("SK", found, b"{} ")


@given(fields, st.binary(max_size=20), st.text(min_size=1, max_size=10))
def test_what_is_signed_is_signed(given_fields: dict[str, str], body: bytes, secret: str) -> None:
    found = signed(given_fields, body, "user", secret)
    assert found[ACCESS_KEY] == "user"
    assert is_signed_by(secret, found, body)
    assert is_signed_by(secret, {**found, "__ZONE_NAME": "z"}, body) or not ZONE_FIELDS.isdisjoint(given_fields)
    assert not is_signed_by(secret + "x", found, body)
    assert not is_signed_by(secret, found, body + b"x")
    assert not is_signed_by(secret, {**found, "more": "x"}, body)


@given(st.dictionaries(texts, texts, max_size=4), st.binary(max_size=9), texts)
def test_nothing_that_is_sent_raises(given_fields: dict[str, str], body: bytes, signature: str) -> None:
    assert not is_signed_by("SK", {**given_fields, SIGNATURE: signature}, body)
