# SPDX-License-Identifier: Apache-2.0
"""The decision: every request code, every role, every mode."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.codes import RequestCode
from security.identity import ANONYMOUS, Identity, Unproven
from security.notices import INTERVAL_S, Notices
from security.policy import REASONS, AuthMode, Claim, Policy, authorize
from security.roles import BOUND, NEEDED, Role, role_of

R, B, A = Role.READER, Role.BROKER, Role.ADMIN

# Written by hand, from what stock peers send: a code without a row fails.
MATRIX: dict[RequestCode, Role | None] = {
    RequestCode.PUT_KV_CONFIG: A,
    RequestCode.GET_KV_CONFIG: R,
    RequestCode.DELETE_KV_CONFIG: A,
    RequestCode.REGISTER_BROKER: B,
    RequestCode.UNREGISTER_BROKER: B,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: R,
    RequestCode.GET_BROKER_CLUSTER_INFO: R,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: A,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: R,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: A,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: B,
    RequestCode.GET_KVLIST_BY_NAMESPACE: R,
    RequestCode.GET_TOPICS_BY_CLUSTER: R,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: R,
    RequestCode.GET_UNIT_TOPIC_LIST: R,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: R,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: R,
    RequestCode.UPDATE_NAMESRV_CONFIG: A,
    RequestCode.GET_NAMESRV_CONFIG: A,
    RequestCode.QUERY_DATA_VERSION: B,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: A,
    RequestCode.GET_BROKER_MEMBER_GROUP: B,
    RequestCode.BROKER_HEARTBEAT: B,
    **dict.fromkeys(
        (
            # What brokers and clients are asked, and a NameServer is not.
            RequestCode.SEND_MESSAGE,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.HEART_BEAT,
            RequestCode.UNREGISTER_CLIENT,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.GET_TOPIC_STATS_INFO,
            RequestCode.DELETE_TOPIC_IN_BROKER,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.GET_TOPIC_CONFIG,
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        )
    ),
}

READER, BROKER, ADMIN = (Identity(role.word, role, by="certificate") for role in Role)
WHO: dict[str, Identity | Unproven] = {"nobody": ANONYMOUS, "reader": READER, "broker": BROKER, "admin": ADMIN}


@pytest.mark.parametrize("mode", AuthMode)
@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("code", RequestCode, ids=lambda code: code.name)
def test_every_code_by_every_role_in_every_mode(code: RequestCode, who: str, mode: AuthMode) -> None:
    needed = MATRIX[code]
    assert NEEDED.get(code) is needed
    identity = WHO[who]
    may = needed is not None and isinstance(identity, Identity) and identity.role >= needed
    verdict = authorize(Policy(mode), NEEDED.get(code), identity, is_tls=False)
    if mode is AuthMode.OFF or may:
        assert verdict == (False, "", "")
        return
    is_enforced = mode is AuthMode.ENFORCE or (mode is AuthMode.ENFORCE_WRITES and needed is not R)
    assert verdict.is_refused is is_enforced
    assert verdict.reason == (
        "unknown-request" if needed is None else "role" if isinstance(identity, Identity) else "anonymous"
    )
    assert verdict.reason in REASONS


def test_unknown_request_codes_are_refused() -> None:
    assert authorize(Policy(AuthMode.ENFORCE_WRITES), NEEDED.get(9_999), ADMIN, is_tls=True).is_refused


def test_whoever_speaks_for_a_broker_needs_its_role() -> None:
    assert {NEEDED[code] for code in BOUND} == {B}


@pytest.mark.parametrize(
    ("clusters", "names", "claim", "objection"),
    [
        ((), (), Claim("c2", "b2", "c2"), ""),
        (("c1",), (), Claim("c1", "b1", None), ""),
        (("c1",), (), Claim("c1", "b1", "c1"), ""),
        (("c1",), (), Claim("c2", "b1", "c1"), "not to cluster 'c2'"),
        (("c1",), (), Claim("c1", "b2", "c2"), "belongs to cluster 'c2'"),
        (("c1",), (), Claim(None, "b1", "c1"), ""),
        (("c1",), (), Claim(None, "b1", None), "no cluster has a brokerName 'b1'"),
        ((), ("b1",), Claim("c9", "b1", None), ""),
        ((), ("b1",), Claim("c1", "b2", None), "not to brokerName 'b2'"),
        ((), ("b1",), Claim("c1", None, None), "not to brokerName null"),
        (("c1",), ("b1",), Claim("c1", "b1", "c1"), ""),
        (("c1",), ("b1",), Claim("c2", "b1", None), "not to cluster 'c2'"),
    ],
)
def test_a_bound_broker(clusters: tuple[str, ...], names: tuple[str, ...], claim: Claim, objection: str) -> None:
    broker = Identity("b", B, "signature", frozenset(clusters), frozenset(names))
    verdict = authorize(Policy(AuthMode.ENFORCE), B, broker, [claim], is_tls=False)
    assert verdict.is_refused is bool(objection)
    assert objection in verdict.remark
    assert not authorize(Policy(AuthMode.ENFORCE), B, ADMIN, [claim], is_tls=False).is_refused


@pytest.mark.parametrize("by", ["signature", "token", "certificate", "address"])
def test_admin_rights_over_plain_tcp_follow_the_policy(by: str) -> None:
    admin, reader = (Identity(role.word, role, by=by) for role in (A, R))  # type: ignore[arg-type]

    def refused(identity: Identity, *, is_tls: bool = False, **policy: Any) -> bool:
        return authorize(Policy(AuthMode.ENFORCE, **policy), R, identity, is_tls=is_tls).reason == "plaintext"

    assert refused(admin) is (by == "signature"), "whoever heard it can send it as something else"
    assert not refused(admin, admin_plaintext=True)
    assert not refused(reader)
    assert refused(reader, require_tls=True) is (by in ("signature", "token"))
    assert not refused(admin, is_tls=True)
    assert not refused(reader, is_tls=True, require_tls=True)


def test_a_refusal_has_the_reason_of_the_missing_identity() -> None:
    verdict = authorize(Policy(AuthMode.ENFORCE), R, Unproven("unknown-key", "AccessKey 'x' ..."), is_tls=False)
    assert verdict == (True, "unknown-key", "AccessKey 'x' ...")


def test_roles_have_names() -> None:
    assert [role_of(word) for word in ("reader", "broker", "admin", "Admin", "")] == [R, B, A, None, None]


def test_notices_are_bounded() -> None:
    notices: Notices[object] = Notices()
    assert [notices.due("a", "a1", now) for now in (100.0, 100.1, 100.0 + INTERVAL_S)] == [1, 0, 2]
    told = sum(bool(notices.due(kind, kind, 200.0)) for kind in range(100_000))
    assert told == 5
    assert all(len(share.kinds) <= 1_000 for share in notices._shares.values())
    assert notices.due("b", "b", 201.0) == 1


def test_a_flood_of_kinds_takes_nothing_from_another_share() -> None:
    """A stranger makes up kinds without end. Refusals that name an account are logged nevertheless, all of them."""
    notices: Notices[str] = Notices()
    told = {"stranger": 0, "account": 0}
    for second in range(600):
        now = 1_000.0 + second
        for number in range(300):
            told["stranger"] += notices.due((second, number), "stranger", now, "anonymous")
        told["account"] += notices.due("ops", "account", now, "bad-signature")
        for what, count in notices.overdue(now):
            told[what] += count
    assert told["account"] >= 540
    assert told["stranger"] < 5 * 600
    waiting = sum(kind.count for share in notices._shares.values() for kind in share.kinds.values())
    forgotten = notices.forgotten()
    assert set(forgotten) == {"anonymous"}
    assert sum(told.values()) + sum(forgotten.values()) + waiting == 600 * 301
    assert notices.forgotten() == {}


def test_a_reported_kind_of_refusal_that_ends_is_dropped() -> None:
    notices: Notices[str] = Notices()
    notices.due("a", "a", 100.0)
    assert notices.overdue(100.0 + INTERVAL_S) == []
    assert not any(share.kinds for share in notices._shares.values())


def test_nothing_that_was_counted_is_left_untold() -> None:
    notices: Notices[object] = Notices()
    assert [notices.due("a", number, 100.0) for number in range(7)] == [1, 0, 0, 0, 0, 0, 0]
    assert notices.overdue(100.0 + INTERVAL_S - 1) == []
    assert notices.overdue(100.0 + INTERVAL_S) == [(6, 6)]
    assert notices.overdue(1_000.0) == []
    told = [notices.due(kind, kind, 2_000.0) for kind in range(12)]
    assert sum(told) == 5
    assert [what for now in (2_000.5, 2_001.0, 2_003.0) for what, _ in notices.overdue(now)] == [*range(5, 12)]
