# SPDX-License-Identifier: Apache-2.0
"""Who may what over remoting, with a gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.gateway.large_registrations import LARGE_BODY_BYTES
from dev.model import codes
from dev.model.wire import Request, Response
from dev.support.accounts import ACCOUNTS, sign
from dev.support.local import LocalGateway
from dev.support.loops import until
from schemas.events import AccessRefused, decode
from security.admission.access_control import CHECK_S
from security.policy import AuthMode
from security.roles import NEEDED, Role
from tests.api.remoting.gateways import a_gateway
from tests.examples.parts import C1, C2, T1, A, B, config, mapping, register, unregister, version, who

ROUTE = Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1})
MASTER = register(A, "10.0.0.1:10911").request()
CLUSTER = Request(codes.GET_BROKER_CLUSTER_INFO)
DELETE = Request(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": T1})


def refused(answer: Response, remark: str) -> None:
    assert (answer.code, answer.body) == (codes.NO_PERMISSION, b"")
    assert remark in (answer.remark or ""), answer.remark


def metric(gateway: LocalGateway, **labels: str) -> float:
    return gateway.parts.metrics.registry.get_sample_value("routelake_auth_refused_total", labels) or 0.0


def test_the_remark_names_the_missing_role(tmp_path: Path) -> None:
    with a_gateway(tmp_path) as (gateway, client):
        refused(client.call(MASTER), "AccessKey and Signature")
        refused(client.call(sign(MASTER, "who", "secret")), "AccessKey 'who' is not known here")
        refused(client.call(sign(MASTER, "broker", "wrong!")), "Signature of AccessKey 'broker' does not match")
        refused(client.call(Request(MASTER.code, {**MASTER.ext, "AccessKey": "broker"}, MASTER.body)), "is missing")
        refused(client.call(sign(MASTER, "reader")), "reader is a reader: this needs the role broker")
        assert client.call(sign(MASTER, "broker")).code == codes.SUCCESS
        assert client.call(sign(ROUTE, "reader")).code == codes.SUCCESS
        refused(client.call(ROUTE), "AccessKey and Signature")
        refused(client.call(sign(DELETE, "broker")), "needs the role admin")
        assert client.call(sign(DELETE, "admin")).code == codes.SUCCESS
        assert client.call(sign(ROUTE, "reader")).code == codes.TOPIC_NOT_EXIST
        refused(client.call(sign(Request(10), "admin")), "no role may send this request")
        assert metric(gateway, mode="enforce", reason="role", role="broker") == 1
        assert metric(gateway, mode="enforce", reason="anonymous", role="reader") == 1


@pytest.mark.parametrize("binary", [False, True])
def test_the_fast_lane_is_judged(tmp_path: Path, binary: bool) -> None:
    """The gateway recognises an earlier header by its bytes, from any client. The decision for this client may differ."""
    with (
        a_gateway(tmp_path) as (gateway, _),
        gateway.connect(binary=binary) as client,
        gateway.connect(binary=binary) as other,
    ):
        assert client.call(sign(MASTER, "broker")).code == codes.SUCCESS
        for _ in range(3):
            assert client.call(sign(ROUTE, "reader")).code == codes.SUCCESS
            assert other.call(sign(ROUTE, "reader")).code == codes.SUCCESS
            refused(other.call(sign(ROUTE, "reader", "wrong!")), "does not match")
            refused(other.call(ROUTE), "AccessKey and Signature")
            refused(client.call(Request(ROUTE.code, sign(ROUTE, "reader").ext, b"body")), "does not match")
        lane = gateway.parts.handler.inline
        passed = [query for query in lane._known.values() if query.passed is gateway.parts.access.generation]
        assert len(passed) == int(binary), "JSON with blanks is decoded each time"


def test_every_request_that_is_answered_by_every_role(tmp_path: Path) -> None:
    """A handler without a row is not allowed to any role. `tests/security/test_policy.py` has the rows and the modes."""
    with a_gateway(tmp_path) as (gateway, client):
        assert set(gateway.parts.handler._handlers) == set(NEEDED)
        for code, needed in NEEDED.items():
            request = Request(int(code), {"topic": T1, **who(A, "10.0.0.1:10911")})
            assert client.call(request).code == codes.NO_PERMISSION
            for role in Role:
                answer = client.call(sign(request, role.word))
                is_refused = answer.code == codes.NO_PERMISSION and "this needs the role" in (answer.remark or "")
                assert is_refused is (role < needed), (code, role, answer)


def test_a_bound_broker_speaks_for_its_own(tmp_path: Path) -> None:
    theirs = register(B, "10.0.0.2:10911").request()
    elsewhere = register("broker-c", "10.0.0.2:10911", cluster=C2).request()
    with a_gateway(tmp_path) as (gateway, client):
        assert client.call(sign(theirs, "broker")).code == codes.SUCCESS
        assert client.call(sign(elsewhere, "broker")).code == codes.SUCCESS
        assert client.call(sign(MASTER, "bound")).code == codes.SUCCESS
        end = gateway.log.end()
        for taken_over, remark in (
            (theirs, "not to brokerName 'broker-b'"),
            (register(A, "10.9.9.9:10911", cluster=C2).request(), "not to cluster 'cluster-b'"),
            (register("broker-c", "10.9.9.9:10911").request(), "belongs to cluster 'cluster-b'"),
            (unregister(B, "10.0.0.2:10911").request(), "not to brokerName"),
            (Request(codes.BROKER_HEARTBEAT, who(B, "10.0.0.2:10911")), "not to brokerName"),
            (Request(codes.QUERY_DATA_VERSION, who(B, "10.0.0.2:10911")), "not to brokerName"),
            (Request(codes.REGISTER_BROKER, {"clusterName": C1}), "not to brokerName null"),
            (
                Request(
                    codes.REGISTER_TOPIC_IN_NAMESRV,
                    {"topic": "new"},
                    b'{"queueDatas":[{"brokerName":"broker-b","readQueueNums":1,"writeQueueNums":1,"perm":6}]}',
                ),
                "not to brokerName 'broker-b'",
            ),
        ):
            refused(client.call(sign(taken_over, "bound")), remark)
        written = [decode(record.payload) for record in gateway.log.read(end.next_offset)]
        assert {type(event) for event in written} <= {AccessRefused}
        assert client.call(sign(Request(codes.BROKER_HEARTBEAT, who(A, "10.0.0.1:10911")), "bound")).code == 0
        assert client.call(sign(unregister(A, "10.0.0.1:10911").request(), "bound")).code == codes.SUCCESS


@pytest.mark.parametrize("is_large", [False, True])
def test_a_bound_broker_maps_no_static_topic_of_anothers(tmp_path: Path, is_large: bool) -> None:
    """RouteInfoManager puts a mapping under the bname that it names, whichever broker sends it."""
    topics = [config(f"t-{number:04}") for number in range(1_500 if is_large else 2)]

    def maps(bname: str, epoch: int) -> Request:
        at = version(counter=epoch)
        return register(A, "10.0.0.1:10911", topics=topics, mappings=[mapping("static", bname, epoch)], at=at).request()

    theirs = register(B, "10.0.0.2:10911", topics=[config("static"), config(T1)], mappings=[mapping("static", B, 5)])
    with a_gateway(tmp_path) as (gateway, client):
        assert is_large is (len(maps(A, 1).body) > LARGE_BODY_BYTES)
        assert client.call(sign(theirs.request(), "broker")).code == codes.SUCCESS
        before, end = client.call(sign(Request(ROUTE.code, {"topic": "static"}), "reader")).body, gateway.log.end()
        refused(client.call(sign(maps(B, 1), "bound")), "not to brokerName 'broker-b'")
        assert client.call(sign(Request(ROUTE.code, {"topic": "static"}), "reader")).body == before
        assert {type(decode(record.payload)) for record in gateway.log.read(end.next_offset)} <= {AccessRefused}
        assert client.call(sign(maps(A, 2), "bound")).code == codes.SUCCESS
        assert client.call(sign(maps(B, 3), "broker")).code == codes.SUCCESS, "an account that is bound to none may"
        refused(client.call(sign(maps(B, 3), "bound")), "not to brokerName 'broker-b'")


def test_a_captured_read_of_an_admin_deletes_nothing(tmp_path: Path) -> None:
    """The request code is not signed: over plain TCP a listener has everything it takes."""
    with a_gateway(tmp_path, admin_plaintext=False) as (_, client):
        assert client.call(sign(MASTER, "broker")).code == codes.SUCCESS
        captured = sign(ROUTE, "admin").ext
        refused(client.call(Request(codes.DELETE_TOPIC_IN_NAMESRV, captured)), "its signature was sent without TLS")
        assert client.call(sign(ROUTE, "reader")).code == codes.SUCCESS
        captured = sign(ROUTE, "reader").ext
        refused(client.call(Request(codes.DELETE_TOPIC_IN_NAMESRV, captured)), "reader is a reader")


def test_one_way_requests_are_judged(tmp_path: Path) -> None:
    from dataclasses import replace

    with a_gateway(tmp_path) as (gateway, client):
        client.send(replace(MASTER, oneway=True))
        refused(client.call(CLUSTER), "AccessKey")
        assert not gateway.gateway.live_view.view.groups
        client.send(replace(sign(MASTER, "broker"), oneway=True))
        until(lambda: bool(gateway.gateway.live_view.view.groups))


def test_a_connection_that_was_refused_unregisters_nobody(tmp_path: Path) -> None:
    with a_gateway(tmp_path) as (gateway, client), gateway.connect() as broker:
        assert broker.call(sign(MASTER, "broker")).code == codes.SUCCESS
        with gateway.connect() as stranger:
            refused(stranger.call(MASTER), "AccessKey")
        assert client.call(sign(ROUTE, "reader")).code == codes.SUCCESS
        until(lambda: len(gateway.parts.server.connections) == 2)
        assert gateway.gateway.live_view.view.live_rows(A)


@pytest.mark.parametrize("mode", [AuthMode.OFF, AuthMode.AUDIT, AuthMode.ENFORCE_WRITES])
def test_modes_on_the_way(tmp_path: Path, mode: AuthMode) -> None:
    with a_gateway(tmp_path, mode) as (gateway, client):
        writes = mode is AuthMode.ENFORCE_WRITES
        if writes:
            refused(client.call(MASTER), "AccessKey")
        else:
            assert client.call(MASTER).code == codes.SUCCESS
        assert client.call(sign(MASTER, "broker")).code == codes.SUCCESS
        for _ in range(3):
            assert client.call(ROUTE).code == codes.SUCCESS
            assert client.call(CLUSTER).code == codes.SUCCESS
        if mode is AuthMode.OFF:
            assert gateway.parts.server.gate is None
            assert b"routelake_auth" not in gateway.parts.metrics.text()
            return
        assert metric(gateway, mode=mode, reason="anonymous", role="reader") == 6
        assert metric(gateway, mode=mode, reason="anonymous", role="broker") == 1


def test_by_address(tmp_path: Path) -> None:
    """As brokers before 5.3 do, which cannot sign."""
    text = """
accounts:
  - {accessKey: old, role: broker, whiteRemoteAddress: 127.0.0.*, brokerNames: broker-a}
  - {accessKey: reader, secretKey: of-reader}
"""
    with a_gateway(tmp_path, text=text) as (_, client):
        assert client.call(MASTER).code == codes.SUCCESS
        for _ in range(3):
            assert client.call(ROUTE).code == codes.SUCCESS
            assert client.call(sign(ROUTE, "who", "secret")).code == codes.SUCCESS, "a key of the brokers' ACL"
            refused(client.call(sign(ROUTE, "reader", "wrong!")), "does not match")
        refused(client.call(register(B, "10.0.0.2:10911").request()), "old is bound to other brokers")


def test_accounts_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with a_gateway(tmp_path) as (gateway, client):
        access, path = gateway.parts.access, tmp_path / "acl.yml"
        assert client.call(sign(MASTER, "broker")).code == codes.SUCCESS
        assert client.call(sign(ROUTE, "reader")).code == codes.SUCCESS
        path.write_text(ACCOUNTS.replace("of-reader", "of-reader-2"))
        until(lambda: client.call(sign(ROUTE, "reader")).code == codes.NO_PERMISSION, 30 * CHECK_S)
        assert client.call(sign(ROUTE, "reader", "of-reader-2")).code == codes.SUCCESS
        path.write_text(ACCOUNTS.replace("admin: true", "admin: perhaps"))
        until(lambda: access.problem is not None, 30 * CHECK_S)
        assert client.call(sign(ROUTE, "reader", "of-reader-2")).code == codes.SUCCESS
        assert b"routelake_auth_file_failing 1.0" in gateway.parts.metrics.text()
        path.write_text(ACCOUNTS)
        until(lambda: client.call(sign(ROUTE, "reader")).code == codes.SUCCESS, 30 * CHECK_S)
        assert access.problem is None


def test_a_large_body_is_hashed_aside(tmp_path: Path) -> None:
    from tests.examples.parts import config

    large = register(A, "10.0.0.1:10911", topics=[config(f"topic-{number}") for number in range(4_000)]).request()
    assert len(large.body) > 256 * 1024
    with a_gateway(tmp_path) as (_, client):
        refused(client.call(sign(large, "broker", "wrong!")), "does not match")
        assert client.call(sign(large, "broker")).code == codes.SUCCESS
