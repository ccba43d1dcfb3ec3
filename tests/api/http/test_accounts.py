# SPDX-License-Identifier: Apache-2.0
"""Accounts over HTTP: every operation by every role."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from api.http.openapi import operation_id
from api.http.settings import HttpSettings
from dev.support.accounts import ACCOUNTS, TOKENS, accounts_file, hashed, policy
from dev.support.http_api import HttpApi, broker, problem
from dev.support.loops import until
from schemas.events import AccessRefused, Actor, PutKvConfig, decode
from schemas.kv import NAMESRV_CONFIG
from security.policy import AuthMode
from security.roles import OPERATIONS, Role
from tests.api.http.wire import PATH, exchange, get, wires

R, B, A = Role.READER, Role.BROKER, Role.ADMIN
HEARTBEAT = {"clusterName": "c1", "brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911"}

# operationId: role, method, path, body. An operation without a row fails.
MATRIX: dict[str, tuple[Role | None, str, str, Any]] = {
    "health": (None, "GET", "/healthz", None),
    "ready": (None, "GET", "/readyz", None),
    "foldHealth": (None, "GET", "/healthz/fold", None),
    "nameServers": (None, "GET", "/rocketmq/nsaddr", None),
    "metrics": (R, "GET", "/metrics", None),
    "getClusters": (R, "GET", "/v1/clusters", None),
    "listBrokers": (R, "GET", "/v1/brokers", None),
    "getBroker": (R, "GET", "/v1/brokers/broker-a", None),
    "getTopicChanges": (R, "GET", "/v1/topics/orders/changes", None),
    "listEpochs": (R, "GET", "/v1/epochs", None),
    "listChanges": (R, "GET", "/v1/changes", None),
    "getDiff": (R, "GET", "/v1/diff?from=1", None),
    "getTopicTimeline": (R, "GET", "/v1/topics/orders/timeline", None),
    "getBrokerTimeline": (R, "GET", "/v1/brokers/broker-a/timeline", None),
    "getTopicBlame": (R, "GET", "/v1/topics/orders/blame", None),
    "listReports": (R, "GET", "/v1/reports", None),
    "getReport": (R, "GET", "/v1/reports/alive", None),
    "getActivity": (R, "GET", "/v1/activity", None),
    "getLifelines": (R, "GET", "/v1/lifelines", None),
    "listenEvents": (R, "GET", "/v1/events?wait_for=99999999&wait_timeout=0", None),  # who may, waits in vain
    "listTopics": (R, "GET", "/v1/topics", None),
    "getTopicRoute": (R, "GET", "/v1/topics/orders/route", None),
    "listKv": (R, "GET", "/v1/kv/ns", None),
    "getKv": (R, "GET", "/v1/kv/ns/k", None),
    "getSelfPreservation": (R, "GET", "/v1/self-preservation", None),
    "registerBroker": (B, "POST", "/v1/brokers/register", broker()),
    "heartbeat": (B, "POST", "/v1/brokers/heartbeat", HEARTBEAT),
    "unregisterBroker": (B, "POST", "/v1/brokers/unregister", {**HEARTBEAT, "brokerId": 0}),
    "deleteTopic": (A, "DELETE", "/v1/topics/orders", None),
    "wipeWritePerm": (A, "POST", "/v1/brokers/broker-a/wipe-write-perm", None),
    "addWritePerm": (A, "POST", "/v1/brokers/broker-a/add-write-perm", None),
    "putKv": (A, "PUT", "/v1/kv/ns/k", {"value": "v"}),
    "deleteKv": (A, "DELETE", "/v1/kv/ns/k", None),
    "setSelfPreservation": (A, "PUT", "/v1/self-preservation", {"percent": 0}),
    "getConfig": (A, "GET", "/v1/config", None),
    "endSelfPreservation": (A, "POST", "/v1/self-preservation/end", None),
}
UNNAMED = {
    "/openapi.json": R,
    "/docs": R,
    "/": None,
    "/console": None,  # files without data
    "/console/": None,
    "/console/sites.json": R,
    "/console/session": None,
    "/console/{file}": None,
    "/rocketmq/nsaddr-{unit_name}": None,
}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def make(make_api: Any, folder: Path, mode: AuthMode, **more: Any) -> HttpApi:
    api: HttpApi = make_api(
        policy=policy(mode), accounts=accounts_file(folder), fold=False, clock_interval_s=3600.0, **more
    )
    return api


@pytest.mark.parametrize("mode", AuthMode)
def test_every_operation_by_every_role_in_every_mode(make_api: Any, tmp_path: Path, mode: AuthMode) -> None:
    api = make(make_api, tmp_path, mode)
    routes = [route for included in api.app.routes for route in included.original_router.routes]  # type: ignore[attr-defined]
    assert {operation_id(route) for route in routes} >= set(MATRIX)
    assert {route.path for route in routes if operation_id(route) not in MATRIX} == set(UNNAMED), "one without a row"
    assert {name: row[0] for name, row in MATRIX.items()} == OPERATIONS
    rows = [*MATRIX.values(), *((role, "GET", path, None) for path, role in UNNAMED.items())]
    for needed, method, path, body in rows:
        for who in ("nobody", "stranger", "late", "reader", "broker", "admin"):
            headers = {} if who == "nobody" else bearer(f"token-{who}")
            answer = api.send(method, path, **({} if body is None else {"json": body}), headers=headers)
            role = {"reader": R, "broker": B, "admin": A}.get(who)
            may = needed is None or (role is not None and role >= needed)
            is_enforced = mode is AuthMode.ENFORCE or (mode is AuthMode.ENFORCE_WRITES and needed is not R)
            if may or not is_enforced:
                assert answer.status_code not in (401, 403), (method, path, who, answer.text)
            elif role is None:
                problem(answer, 401, "unauthorized")
                assert answer.headers["www-authenticate"].startswith("Bearer")
            else:
                found = problem(answer, 403, "forbidden")
                assert found["detail"] == f"{who} is a {who}: this needs the role {needed.word}"  # type: ignore[union-attr]


def test_the_history_has_the_user_of_a_write(make_api: Any, tmp_path: Path) -> None:
    api = make(make_api, tmp_path, AuthMode.ENFORCE)
    answer = api.post("/v1/brokers/register", broker(), headers=bearer("token-broker"), peer=("192.0.2.7", 4711))
    assert answer.status_code == 200
    actor = decode(next(r for r in api.log.read(0) if r.offset == answer.json()["offset"]).payload).actor
    assert (actor.user, actor.via, actor.peer) == ("broker", "http", "192.0.2.7:4711")


def test_a_bound_broker(make_api: Any, tmp_path: Path) -> None:
    api = make(make_api, tmp_path, AuthMode.ENFORCE)
    bound = bearer("token-bound")
    assert api.register(broker("broker-c", cluster="cluster-b", host=3), headers=bearer("token-broker")).is_success
    assert api.register(broker("broker-a", cluster="cluster-a"), headers=bound).is_success
    before = api.log.end()
    for body, why in (
        (broker("broker-b", cluster="cluster-a"), "not to brokerName 'broker-b'"),
        (broker("broker-a", cluster="c9"), "not to cluster 'c9'"),
        (broker("broker-c", cluster="cluster-a"), "belongs to cluster 'cluster-b'"),
    ):
        names = {name: body[name] for name in ("clusterName", "brokerName", "brokerAddr")}
        for path, sent in (("register", body), ("heartbeat", names), ("unregister", {**names, "brokerId": 0})):
            answer = api.post(f"/v1/brokers/{path}", sent, headers=bound)
            assert why in problem(answer, 403, "forbidden")["detail"]
    assert {type(event) for event in api.written_since(before)} <= {AccessRefused}


def test_a_bound_broker_changes_nothing_in_the_route_of_anothers_topic(make_api: Any, tmp_path: Path) -> None:
    api = make(make_api, tmp_path, AuthMode.ENFORCE)

    def registers(name: str, host: int, user: str, bname: str, epoch: int, **more: Any) -> Any:
        topics = ("static", f"of-{name}")
        body = broker(name, topics=topics, cluster="cluster-a", host=host, counter=epoch, **more)
        static = {"topic": "static", "bname": bname, "totalQueues": 1, "epoch": epoch, "currIdMap": {"0": epoch}}
        body["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = {"static": static}
        return api.register(body, headers=bearer(f"token-{user}"))

    assert registers("broker-b", 2, "broker", "broker-b", 5).is_success

    def route(topic: str) -> Any:
        return api.get(f"/v1/topics/{topic}/route", headers=bearer("token-reader")).json()

    before = route("static")
    assert before["topicQueueMappingByBroker"]["broker-b"]["epoch"] == 5
    found = problem(registers("broker-a", 1, "bound", "broker-b", 1), 403, "forbidden")
    assert "not to brokerName 'broker-b'" in found["detail"]
    assert registers("broker-c", 2, "bound", "broker-c", 1, filterServerList=["10.9.9.9:1"]).is_success
    assert route("of-broker-c")["filterServerTable"] == {"10.0.0.2:10911": ["10.9.9.9:1"]}
    assert route("of-broker-b")["filterServerTable"] == {}
    after = route("static")  # which both have, at one address
    assert after["topicQueueMappingByBroker"]["broker-b"] == before["topicQueueMappingByBroker"]["broker-b"]
    assert [each["brokerName"] for each in after["brokerDatas"]] == ["broker-b", "broker-c"]
    assert after["filterServerTable"] == {}


def test_a_long_poll_is_refused_when_its_account_is_gone(make_api: Any, tmp_path: Path) -> None:
    api = make(make_api, tmp_path, AuthMode.ENFORCE)
    assert api.register(broker(), headers=bearer("token-broker")).is_success
    path, reader = "/v1/topics/orders/route", bearer("token-reader")
    tag = api.get(path, headers=reader).headers["etag"]
    poll = api.begin("GET", f"{path}?wait=60", headers={**reader, "if-none-match": tag})
    until(lambda: api.app.context.watch.waiting == 1)
    (tmp_path / "acl.yml").write_text(ACCOUNTS.replace(hashed("token-reader"), hashed("token-another")))
    until(lambda: api.get(path, headers=reader).status_code == 401, 30)
    assert api.delete("/v1/topics/orders", headers=bearer("token-admin")).is_success
    problem(poll.result(30), 401, "unauthorized")


def test_tokens_of_before_are_admins(make_api: Any, tmp_path: Path) -> None:
    api = make(make_api, tmp_path, AuthMode.ENFORCE, http=HttpSettings(tokens={"alice": "of-alice"}))
    assert api.register(broker(), headers=bearer("of-alice")).is_success
    assert api.delete("/v1/topics/orders", headers=bearer("of-alice")).is_success
    assert api.get("/v1/topics", headers=bearer("of-alice")).is_success
    problem(api.get("/v1/topics"), 401, "unauthorized")


def test_while_migrating_what_held_before_holds(make_api: Any, tmp_path: Path) -> None:
    """Mode log opens nothing: a write from elsewhere needs what it needed before, or an account."""
    far = ("192.0.2.7", 4711)
    api = make(make_api, tmp_path, AuthMode.AUDIT)
    problem(api.register(broker(), peer=far), 403, "forbidden")
    assert api.register(broker(), peer=far, headers=bearer("token-broker")).is_success
    assert api.register(broker()).is_success
    api = make(make_api, tmp_path, AuthMode.AUDIT, http=HttpSettings(tokens={"alice": "x"}, protect_reads=True))
    problem(api.get("/v1/topics"), 401, "unauthorized")
    assert api.get("/v1/topics", headers=bearer("token-reader")).is_success
    value = api.app.context.metrics.registry.get_sample_value
    labels = {"mode": "audit", "reason": "anonymous", "role": "reader"}
    assert value("routelake_auth_refused_total", labels) == 1


def _without_offset(part: bytes) -> bytes:
    """What is answered, wherever the log is: a refusal gets onto it, too, a moment later."""
    return re.sub(rb"x-routelake-offset: \d+\r\n", b"", part)


@pytest.mark.parametrize("mode", [AuthMode.ENFORCE_WRITES, AuthMode.ENFORCE])
def test_the_fast_path_is_judged(make_api: Any, tmp_path: Path, mode: AuthMode) -> None:
    api = make(make_api, tmp_path, mode)
    assert api.register(broker(), headers=bearer("token-broker")).is_success
    fast, slow = wires(api)
    for headers, may in (
        ([], False),
        ([b"Authorization: Bearer token-reader"], True),
        ([b"authorization: bearer  token-admin "], True),
        ([b"Authorization: Bearer token-late"], False),
        ([b"Authorization: Bearer \xff\xfe"], False),
        ([b"Authorization: Basic token-reader"], False),
        ([b"Authorization: Bearer nonsense"], False),
    ):
        request = get(PATH, *headers)
        one, other = ([_without_offset(part) for part in exchange(api, wire, [request])] for wire in (fast, slow))
        assert one == other
        assert one[0].startswith(b"HTTP/1.1 200 OK") is (may or mode is AuthMode.ENFORCE_WRITES), one


def refusals(metrics: str) -> list[str]:
    found = [line for line in metrics.splitlines() if line.startswith("routelake_auth_refused_total")]
    return [line for line in found if not line.endswith(" 0.0")]


@pytest.mark.parametrize("mode", [AuthMode.AUDIT, AuthMode.ENFORCE_WRITES])
def test_where_reads_are_open_nobody_is_named_who_has_a_session(make_api: Any, tmp_path: Path, mode: AuthMode) -> None:
    api = make(make_api, tmp_path, mode)
    assert api.register(broker(), headers=bearer("token-broker")).is_success
    fast, _ = wires(api)
    scope = {"scheme": "http", "server": ("127.0.0.1", 8080), "headers": []}
    session = fast.app.context.sessions.begin(scope, "token-reader").partition(";")[0].encode()
    for headers, named in (([b"Cookie: " + session], 0), ([b"Cookie: a=b"], 1), ([], 2)):
        assert exchange(api, fast, [get(PATH, *headers)])[0].startswith(b"HTTP/1.1 200 OK")
        found = refusals(api.app.context.metrics.text().decode())
        assert len(found) == min(named, 1)
        assert not named or found[0].endswith(f" {named}.0")
    assert fast.fast.hits == 1, "who shows nothing is answered by the fast path"


def test_a_bad_file_is_told(make_api: Any, tmp_path: Path) -> None:
    api = make(make_api, tmp_path, AuthMode.ENFORCE)
    assert api.get("/readyz").json()["checks"]["accounts"] == {"ok": True}
    (tmp_path / "acl.yml").write_text("accounts: 7")
    file = api.app.context.guard._access._file  # type: ignore[union-attr]
    assert file is not None
    until(file.check)
    found = api.get("/readyz", headers=bearer(TOKENS["reader"])).json()
    assert found["checks"]["accounts"] == {"ok": False, "reason": "line 1: accounts must be a list"}
    assert api.get("/v1/topics", headers=bearer(TOKENS["reader"])).is_success
    (tmp_path / "acl.yml").write_text(ACCOUNTS)


SECRETS = "account 'payments-admin' (line 2): token: /run/secrets/ops-token cannot be read"


@pytest.mark.parametrize("mode", [AuthMode.AUDIT, AuthMode.ENFORCE_WRITES, AuthMode.ENFORCE])
def test_only_readers_get_the_reasons_of_a_failed_check(make_api: Any, tmp_path: Path, mode: AuthMode) -> None:
    api = make(make_api, tmp_path, mode)
    file = api.access._file
    assert file is not None
    file.problem = SECRETS
    for who in ("nobody", "stranger", "late"):
        headers = {} if who == "nobody" else bearer(f"token-{who}")
        for path in ("/readyz", "/readyz?strict", "/healthz/fold", "/healthz"):
            text = api.get(path, headers=headers).text
            for secret in ("payments-admin", "/run/secrets", '"version"', '"gateway"', "the fold has not run"):
                assert secret not in text, (path, who)
        checks = api.get("/readyz", headers=headers).json()["checks"]
        assert checks["accounts"] == {"ok": False, "reason": "see the gateway's log, or ask as a reader"}
        assert checks["eventLog"] == {"ok": True}
    for who in ("reader", "broker", "admin"):
        headers = bearer(f"token-{who}")
        assert api.get("/readyz", headers=headers).json()["checks"]["accounts"]["reason"] == SECRETS
        assert "the fold has not run" in api.get("/healthz/fold", headers=headers).json()["reason"]
        assert api.get("/healthz", headers=headers).json()["gateway"] == "gw"


@pytest.mark.parametrize(
    ("mode", "sees"),
    [
        (AuthMode.ENFORCE_WRITES, {"nobody": False, "reader": False, "broker": False, "admin": True}),
        (AuthMode.AUDIT, {"nobody": True, "reader": True}),
    ],
)
def test_values_of_settings_are_for_admins(
    make_api: Any, tmp_path: Path, mode: AuthMode, sees: dict[str, bool]
) -> None:
    """Who may not send GET_NAMESRV_CONFIG sees that a setting changed, not to what; KV values are everybody's."""
    api: HttpApi = make_api(policy=policy(mode), accounts=accounts_file(tmp_path))
    actor = Actor(gateway="gw", via="remoting", peer="10.0.0.9:1")
    for namespace, value in ((NAMESRV_CONFIG, "true"), (NAMESRV_CONFIG, "false"), ("ns", "mine")):
        event = PutKvConfig(actor=actor, namespace=namespace, key="orderMessageEnable", value=value)
        assert api.loop.run(api.gateway.propose(event, None)).visible
        api.settled()  # an epoch each
    for who, is_shown in sees.items():
        headers = {} if who == "nobody" else bearer(TOKENS[who])
        rows = api.get("/v1/changes?command=PUT_KV_CONFIG", headers=headers).json()["changes"]
        settings = [each for each in rows if each["key"]["namespace"] == NAMESRV_CONFIG]
        commands = [each["key"]["value"] for each in settings if "tableName" not in each]
        after = [each["after"]["value"] for each in settings if "tableName" in each]
        assert commands == after == (["false", "true"] if is_shown else ["***", "***"])
        assert ["before" in each for each in settings if "tableName" in each] == [True, False]
        assert {each["key"]["key"] for each in settings} == {"orderMessageEnable"}
        assert [each["after"]["value"] for each in rows if each not in settings and "after" in each] == ["mine"]
        answer = api.get("/v1/changes", headers={**headers, "accept": "text/csv"})
        assert ("true" in answer.text) is is_shown
        found = api.get(f"/v1/diff?from={rows[-1]['epoch']}", headers=headers).json()["differences"]
        values = {each["key"]["namespace"]: (each["before"], each["after"]) for each in found}
        assert values == {
            NAMESRV_CONFIG: ({"value": "true"}, {"value": "false"}) if is_shown else ({"value": "***"},) * 2,
            "ns": (None, {"value": "mine"}),
        }
