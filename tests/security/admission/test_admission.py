# SPDX-License-Identifier: Apache-2.0
"""Admission: one decision on permission and quota, by the same identity over remoting and HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from api.gateway.metrics import Metrics
from dev.support import events as make
from dev.support.accounts import TOKENS, accounts_file, policy
from dev.support.http_api import HttpApi
from nameserver.view.snapshot import RouteView
from schemas.errors import AccessDeniedError, QuotaError
from schemas.events import Actor, AnyEvent, encode
from security.admission.access_control import AccessControl, Refused
from security.admission.admission import Admission, Sender
from security.admission.quotas import GatewayQuotas
from security.identity import Identity
from security.policy import AuthMode
from security.quotas import Quotas, Rate
from security.roles import Role

NEVER = 1e-9
"""Of a rate: what flows in during a test is nothing."""
VIEW = RouteView.empty()
BOUND = Identity("bound", Role.BROKER, "token", frozenset({"c"}), frozenset({"b"}))
SENDERS = [
    Sender(Actor(gateway="g", via=via, peer=f"10.0.0.{host}:5", user="bound"), "registerBroker", BOUND)
    for host, via in enumerate(("remoting", "http"))
]


@pytest.fixture
def refusals() -> list[Refused]:
    return []


@pytest.fixture
def control(tmp_path: Path, refusals: list[Refused]) -> AccessControl:
    control = AccessControl(policy(AuthMode.ENFORCE), accounts_file(tmp_path), Metrics().observe_access)
    control.follow(refusals.append)
    return control


def admit(admission: Admission, sender: Sender | None, event: AnyEvent) -> bool:
    return admission.event(sender, event, encode(event), VIEW, 0) is not None


@pytest.mark.parametrize("sender", SENDERS, ids=("remoting", "http"))
@pytest.mark.parametrize(
    "event",
    [
        make.register("a:1", name="x", cluster="c"),
        make.register("a:1", name="b", cluster="d"),
        make.register("a:1", name="b", cluster="c", topic_queue_mapping_info_map={"T": make.mapping("T", "x")}),
        make.register("a:1", name="x", cluster="c", slim=True),
        make.heartbeat("a:1", name="x", cluster="c"),
        make.unregister("a:1", name="x", cluster="c"),
        make.register_topic("T", name="x"),
    ],
    ids=("name", "cluster", "mapping", "topicless", "heartbeat", "unregister", "topic"),
)
def test_no_event_for_anothers_broker_is_admitted(
    control: AccessControl, refusals: list[Refused], sender: Sender, event: AnyEvent
) -> None:
    admission = Admission(access=control)
    with pytest.raises(AccessDeniedError, match="bound is bound to other brokers"):
        admit(admission, sender, event)
    assert not admission.quotas.charged_bytes, "a refused event costs nothing"
    assert [(refused.via, refused.verdict.reason) for refused in refusals] == [(sender.actor.via, "bound")]
    assert admit(admission, None, event), "an event of the gateway's own needs no permission"


@pytest.mark.parametrize("sender", SENDERS, ids=("remoting", "http"))
def test_a_broker_is_authorized_and_a_refusal_recorded_once_for_each_request(
    tmp_path: Path, refusals: list[Refused], sender: Sender
) -> None:
    control = AccessControl(policy(AuthMode.AUDIT), accounts_file(tmp_path), Metrics().observe_access)
    control.follow(refusals.append)
    admission = Admission(access=control)
    theirs = make.register("a:1", name="x", cluster="c")
    sender = admission.request(sender, Role.BROKER, [("c", "x")], VIEW)
    assert admit(admission, admission.authorize_brokers(sender, [("c", "x")], VIEW), theirs)
    assert len(refusals) == 1


def test_both_protocols_draw_on_the_same_quotas(control: AccessControl) -> None:
    limits = Quotas(broker_requests_per_s=Rate(NEVER, 2), heartbeat_mb_per_h=Rate(NEVER, 0.0002))
    admission = Admission(GatewayQuotas(limits), control)
    for sender in SENDERS:
        admission.request(sender, Role.BROKER)
    for sender in SENDERS:
        with pytest.raises(QuotaError, match="broker-requests-per-s"):
            admission.request(sender, Role.BROKER)
    event = make.heartbeat("a:1", name="b", cluster="c")
    events = [msgspec.structs.replace(event, actor=sender.actor) for sender in SENDERS]
    assert admit(admission, SENDERS[0], events[0])
    with pytest.raises(QuotaError, match="heartbeat-mb-per-h"):
        admit(admission, SENDERS[1], events[1])


@pytest.fixture
def api(tmp_path: Path) -> Iterator[HttpApi]:
    api = HttpApi(
        tmp_path,
        fold=False,
        clock_interval_s=3600.0,
        policy=policy(AuthMode.ENFORCE),
        accounts=accounts_file(tmp_path),
        quotas=Quotas(reads_per_s=Rate(NEVER, 3)),
    )
    yield api
    api.close()


def read(api: HttpApi, user: str, host: int) -> int:
    headers = {"authorization": f"Bearer {TOKENS.get(user, user)}"}
    return api.get("/v1/clusters", headers=headers, peer=(f"10.0.0.{host}", 5)).status_code


def test_reads_over_http_count_for_their_user_once_its_token_was_accepted(api: HttpApi) -> None:
    assert [read(api, "reader", 1) for _ in range(5)] == [200] * 4 + [429]
    assert read(api, "broker", 1) == 200, "another user behind the same address"
    assert [read(api, "broker", 1) for _ in range(3)] == [200, 200, 200]
    assert read(api, "reader", 1) == 429
    assert read(api, "reader", 2) == 200, "the first read from an address counts for the address"
    assert read(api, "reader", 2) == 429, "and the next one for the user"


def test_a_quota_does_not_tell_whether_a_guessed_token_is_right(api: HttpApi) -> None:
    assert [read(api, f"guess-{number}", 1) for number in range(4)] == [401, 401, 401, 429]
    assert [read(api, user, 1) for user in ("wrong", "reader")] == [429, 429]
