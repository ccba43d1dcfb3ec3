# SPDX-License-Identifier: Apache-2.0
"""Bad input gets a clear refusal, and nothing lands on the log. Numbers in brackets are those of the field guide §4."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api.http.settings import HttpSettings
from dev.support.http_api import JSON, HttpApi, broker, problem

REGISTER = "/v1/brokers/register"


@contextmanager
def nothing_lands(api: HttpApi) -> Iterator[None]:
    before = api.log.end()
    yield
    assert api.written_since(before) == []


def changed(path: str, value: Any) -> dict[str, Any]:
    """A good registration with one field set; ``path`` in dots, ``-name`` removes."""
    said = json.loads(json.dumps(broker()))
    *parents, last = path.split(".")
    target = said
    for parent in parents:
        target = target[parent]
    if last.startswith("-"):
        del target[last[1:]]
    else:
        target[last] = value
    return said


WRAPPER = "topicConfigSerializeWrapper"
VERSION = f"{WRAPPER}.dataVersion"
TABLE = f"{WRAPPER}.topicConfigTable"

FIELDS: list[tuple[str, Any, str]] = [
    # [26] brokerId
    ("brokerId", -1, "brokerId"),
    ("brokerId", 2**63, "brokerId"),
    ("brokerId", "0", "brokerId"),
    ("brokerId", 0.0, "brokerId"),
    ("brokerId", True, "brokerId"),
    ("brokerId", None, "brokerId"),
    # [27] ports and addresses
    *(
        ("brokerAddr", addr, "brokerAddr")
        for addr in (
            *("10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:70000", "10.0.0.1:-1", "10.0.0.1:08", "10.0.0.1", ":10911", ""),
            *(
                "10.0.0.256:10911",
                "10.0.0:10911",
                "1.2.3.4.5:10911",
                "[::g]:10911",
                "::1:10911",
                "a b:10911",
                "-a:10911",
            ),
            *("10.0.0.1:10911\n", "10.0.0.1:1\u0660", "a..b:1", f"{'a' * 64}:1", f"{'a.' * 200}b:1", "http://a:1"),
        )
    ),
    ("haServerAddr", "10.0.0.1:70000", "haServerAddr"),
    ("filterServerList", ["10.0.0.9:31000", "nonsense"], "filterServerList[1]"),
    ("filterServerList", "10.0.0.9:31000", "filterServerList"),
    # [28] names
    *(
        (f"{TABLE}.{topic}", {}, f"{TABLE}[{json.dumps(topic)}]")
        for topic in ("x/y", " ", "a\u0000b", "\u202erevo", "a" * 60 + "ß")
    ),
    (f"{TABLE}.{'a' * 128}", {}, f"{TABLE}.{'a' * 128}"),
    (f"{TABLE}.%RETRY%{'a' * 249}", {}, f"{TABLE}.%RETRY%{'a' * 249}"),
    ("brokerName", "", "brokerName"),
    ("brokerName", "a/b", "brokerName"),
    ("brokerName", "b" * 128, "brokerName"),
    ("clusterName", "c d", "clusterName"),
    ("clusterName", "\u0442", "clusterName"),
    ("zoneName", "", "zoneName"),
    ("zoneName", "z\u0000", "zoneName"),
    ("zoneName", "z" * 128, "zoneName"),
    # [32] unknown and missing fields
    ("brokerIdd", 0, "brokerIdd"),
    (f"{TABLE}.orders.perms", 6, f"{TABLE}.orders.perms"),
    ("-brokerName", None, "brokerName"),
    (f"{WRAPPER}.-dataVersion", None, VERSION),
    (f"{VERSION}.-counter", None, f"{VERSION}.counter"),
    # numbers within their bounds
    (f"{TABLE}.orders.perm", 16, f"{TABLE}.orders.perm"),
    (f"{TABLE}.orders.perm", -1, f"{TABLE}.orders.perm"),
    (f"{TABLE}.orders.readQueueNums", -1, f"{TABLE}.orders.readQueueNums"),
    (f"{TABLE}.orders.writeQueueNums", 65_536, f"{TABLE}.orders.writeQueueNums"),
    (f"{TABLE}.orders.topicSysFlag", 2**31, f"{TABLE}.orders.topicSysFlag"),
    (f"{TABLE}.orders.topicFilterType", "ANY", f"{TABLE}.orders.topicFilterType"),
    (f"{TABLE}.orders.topicName", "payments", TABLE),
    (f"{TABLE}.orders.attributes", {"a": 1}, f"{TABLE}.orders.attributes.a"),
    (f"{VERSION}.counter", -1, f"{VERSION}.counter"),
    (f"{VERSION}.timestamp", 2**63, f"{VERSION}.timestamp"),
    (f"{VERSION}.stateVersion", "1", f"{VERSION}.stateVersion"),
    ("heartbeatTimeoutMillis", 0, "heartbeatTimeoutMillis"),
    ("heartbeatTimeoutMillis", 2**40, "heartbeatTimeoutMillis"),
    ("enableActingMaster", "true", "enableActingMaster"),
    (f"{WRAPPER}.topicQueueMappingInfoMap", {"orders": {}}, f"{WRAPPER}.topicQueueMappingInfoMap.orders.bname"),
    (
        f"{WRAPPER}.topicQueueMappingInfoMap",
        {"orders": {"bname": "b", "currIdMap": {"01": 1}}},
        f"{WRAPPER}.topicQueueMappingInfoMap.orders.currIdMap.01",
    ),
    (
        f"{WRAPPER}.topicQueueMappingInfoMap",
        {"orders": {"bname": "b", "topic": "payments"}},
        f"{WRAPPER}.topicQueueMappingInfoMap",
    ),
    (WRAPPER, [], WRAPPER),
    (TABLE, None, TABLE),
]


@pytest.mark.parametrize(("path", "value", "field"), FIELDS, ids=[f"{path}={value!r:.20}" for path, value, _ in FIELDS])
def test_a_field_that_breaks_a_rule_is_named(unfolded: HttpApi, path: str, value: Any, field: str) -> None:
    with nothing_lands(unfolded):
        found = problem(unfolded.register(changed(path, value)), 422, "bad-body")
    if len(field) > 200:
        field = field[:40]
        assert found["errors"][0]["field"].startswith(field)
    else:
        assert field in [error["field"] for error in found["errors"]], found["errors"]
    assert all(error["message"] for error in found["errors"])
    assert found["code"] == 1


def test_every_broken_rule_is_listed(unfolded: HttpApi) -> None:
    said = changed("brokerId", -1) | {"brokerAddr": "x", "nonsense": 1}
    with nothing_lands(unfolded):
        found = problem(unfolded.register(said), 422, "bad-body")
    assert {error["field"] for error in found["errors"]} == {"brokerId", "brokerAddr", "nonsense"}


@pytest.mark.parametrize(
    "addr",
    ["10.0.0.1:1", "[::1]:65535", "[fe80::1:2]:10911", "broker-0.brokers.mq.svc.cluster.local:10911", "my_host:10911"],
)
def test_good_addresses(unfolded: HttpApi, addr: str) -> None:
    assert unfolded.register(changed("brokerAddr", addr)).status_code == 200


@pytest.mark.parametrize("topic", ["a" * 127, "%RETRY%" + "g" * 248, "%DLQ%x", "A-z_0|9%", "TBW102"])
def test_good_topics(unfolded: HttpApi, topic: str) -> None:
    assert unfolded.register(changed(f"{TABLE}.{topic}", {})).status_code == 200


GOOD = json.dumps(broker()).encode()
TEXTS: list[tuple[str, bytes, str]] = [
    # [23] no JSON
    ("nothing", b"", "the body is empty"),
    ("cut short", GOOD[:-1], "not JSON"),
    ("two values", GOOD + b"{}", "not JSON"),
    ("single quotes", GOOD.replace(b'"', b"'"), "not JSON"),
    ("trailing comma", GOOD[:-1] + b",}", "not JSON"),
    ("not UTF-8", GOOD.replace(b"orders", b"\xff\xfe"), "UTF-8"),
    ("UTF-16", json.dumps(broker()).encode("utf-16"), "UTF-8"),
    ("byte order mark", b"\xef\xbb\xbf" + GOOD, "not JSON"),
    ("nested", b"[" * 100_000 + b"]" * 100_000, "nested"),
    ("numeric keys", GOOD.replace(b'"orders"', b"0"), "not JSON"),
    # [24] NaN, Infinity
    ("NaN", GOOD.replace(b'"brokerId": 0', b'"brokerId": NaN'), "NaN"),
    ("Infinity", GOOD.replace(b'"brokerId": 0', b'"brokerId": Infinity'), "Infinity"),
    ("-Infinity", GOOD.replace(b'"brokerId": 0', b'"brokerId": -Infinity'), "-Infinity"),
    ("a number of 5000 digits", GOOD.replace(b'"brokerId": 0', b'"brokerId": ' + b"9" * 5000), "digits"),
    # [25] duplicate keys
    ("duplicate", GOOD[:-1] + b', "brokerId": 1}', "brokerId"),
    ("duplicate topic", GOOD.replace(b'"payments": ', b'"orders": '), "orders"),
    ("lone surrogate", GOOD.replace(b"orders", b"\\ud800"), "surrogate"),
]


@pytest.mark.parametrize(("data", "says"), [case[1:] for case in TEXTS], ids=[case[0] for case in TEXTS])
def test_a_body_that_is_not_json_is_refused(unfolded: HttpApi, data: bytes, says: str) -> None:
    with nothing_lands(unfolded):
        found = problem(unfolded.send("POST", REGISTER, content=data, headers=JSON), 400, "bad-request")
    assert says in found["detail"]


def test_a_float_that_overflows_is_no_integer(unfolded: HttpApi) -> None:
    data = GOOD.replace(b'"brokerId": 0', b'"brokerId": 1e999')
    with nothing_lands(unfolded):
        problem(unfolded.send("POST", REGISTER, content=data, headers=JSON), 422, "bad-body")


@pytest.mark.parametrize("value", [[], "text", 1, None, True])
def test_a_body_that_is_no_object(unfolded: HttpApi, value: Any) -> None:
    with nothing_lands(unfolded):
        problem(unfolded.send("POST", REGISTER, content=json.dumps(value).encode(), headers=JSON), 422, "bad-body")


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        *("application/json; charset=utf-16", "application/json;charset='utf-32'", "text/plain; a=application/json"),
        *("application/xml", "application/json, text/plain", "application/jsonp", "json", "application", "*/*"),
        "",
        None,
    ],
)
def test_other_content_types(unfolded: HttpApi, kind: str | None) -> None:  # [31]
    headers = {} if kind is None else {"content-type": kind}
    with nothing_lands(unfolded):
        problem(unfolded.send("POST", REGISTER, content=GOOD, headers=headers), 415, "unsupported-media-type")


@pytest.mark.parametrize(
    "kind",
    [
        *("application/json", "Application/JSON;charset=UTF-8", 'application/json;charset="utf-8"'),
        *("application/json;charset=utf8", "application/json ; charset = utf-8", "APPLICATION/JSON; CHARSET=UTF8"),
        *("application/json;", "application/json; ;", "application/json;odata=verbose", "application/json; q=1; v=2"),
        *("application/json; charset=us-ascii", "application/json; charset=nobody-knows", "application/json; charset="),
        *('application/json; profile="a;b"; charset=utf-8', "\tapplication/json\t"),
    ],
)
def test_good_content_types(unfolded: HttpApi, kind: str) -> None:
    assert unfolded.send("POST", REGISTER, content=GOOD, headers={"content-type": kind}).status_code == 200


def compressed(api: HttpApi, data: bytes, encoding: str = "gzip") -> Any:
    return api.send("POST", REGISTER, content=data, headers={**JSON, "content-encoding": encoding})


def test_gzip_bombs_end_at_the_limit(make_api: Any) -> None:  # [30]
    api: HttpApi = make_api(fold=False, clock_interval_s=3600.0, http=HttpSettings(max_body_bytes=1024 * 1024))
    bomb = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join([*(bomb.compress(b"[" * 1_000_000) for _ in range(300)), bomb.flush()])
    assert len(data) < 1024 * 1024
    with nothing_lands(api):
        problem(compressed(api, data), 413, "too-large")
    assert api.app.context.budget.free == api.app.context.settings.max_bodies_bytes


@pytest.mark.parametrize(
    "data",
    [gzip.compress(GOOD)[:-9], b"nonsense", gzip.compress(GOOD) + b"x", zlib.compress(GOOD), b""],
    ids=["cut short", "no gzip", "trailing", "zlib", "empty"],
)
def test_broken_gzip(unfolded: HttpApi, data: bytes) -> None:
    with nothing_lands(unfolded):
        problem(compressed(unfolded, data), 400, "bad-request")


@pytest.mark.parametrize("encoding", ["GZIP", "x-gzip", "X-Gzip ", "identity, gzip", "gzip,", ""])
def test_gzip_under_all_its_names(unfolded: HttpApi, encoding: str) -> None:
    data = gzip.compress(GOOD) if encoding else GOOD
    assert compressed(unfolded, data, encoding).status_code == 200


@pytest.mark.parametrize("encoding", ["deflate", "br", "zstd", "gzip, gzip"])
def test_other_encodings(unfolded: HttpApi, encoding: str) -> None:
    with nothing_lands(unfolded):
        answer = compressed(unfolded, gzip.compress(GOOD), encoding)
    problem(answer, 415, "unsupported-media-type")
    assert answer.headers["accept-encoding"] == "gzip"


def test_bodies_larger_than_allowed(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, clock_interval_s=3600.0, http=HttpSettings(max_body_bytes=1000))
    with nothing_lands(api):
        problem(api.send("POST", REGISTER, content=b" " * 1001, headers=JSON), 413, "too-large")
        parts = (b" " * 100 for _ in range(11))
        problem(api.loop.run(api.client().post(REGISTER, content=_each(parts), headers=JSON)), 413, "too-large")
        # Only a registration may be large.
        small = make_api(fold=False, http=HttpSettings(max_small_body_bytes=100))
        problem(small.send("POST", "/v1/brokers/heartbeat", content=b" " * 101, headers=JSON), 413, "too-large")


async def _each(parts: Any) -> Any:
    for part in parts:
        yield part


def test_too_many_values(unfolded: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.validation.MAX_JSON_VALUES", 1000)
    monkeypatch.setattr("api.http.validation._LARGE", 100)
    with nothing_lands(unfolded):
        data = b"[" + b"[]," * 2000 + b"[]]"
        problem(unfolded.send("POST", REGISTER, content=data, headers=JSON), 413, "too-large")


TOPICS = ["..%2Fx", "%20", "a" * 128, "a%00b", "%E2%80%AErevo", "%FF", "a%09b", "a%2Fb", "a.b"]


@pytest.mark.parametrize("topic", TOPICS)
def test_topics_in_paths(unfolded: HttpApi, topic: str) -> None:  # [28]
    with nothing_lands(unfolded):
        for answer in (unfolded.get(f"/v1/topics/{topic}/route"), unfolded.delete(f"/v1/topics/{topic}")):
            found = problem(answer, 400, "bad-parameter")
            assert found["errors"][0]["field"] == "topic"


def test_an_empty_topic_in_a_path(unfolded: HttpApi) -> None:
    problem(unfolded.get("/v1/topics//route"), 400, "bad-parameter")
    problem(unfolded.delete("/v1/topics/"), 400, "bad-parameter")


def test_names_in_admin_paths(unfolded: HttpApi) -> None:
    with nothing_lands(unfolded):
        problem(unfolded.post("/v1/brokers/a%20b/wipe-write-perm"), 400, "bad-parameter")
        problem(unfolded.post("/v1/brokers/a%00/add-write-perm"), 400, "bad-parameter")
        problem(unfolded.put("/v1/kv/ns/a%00b", {"value": "1"}), 400, "bad-parameter")
        problem(unfolded.put(f"/v1/kv/ns/{'k' * 1025}", {"value": "1"}), 400, "bad-parameter")
        problem(unfolded.put("/v1/kv/%20/k", {"value": "1"}), 400, "bad-parameter")
        problem(unfolded.put("/v1/kv/ns/k", {"value": 1}), 422, "bad-body")
        problem(unfolded.put("/v1/kv/ns/k", {"value": "v" * (256 * 1024 + 1)}), 422, "bad-body")
        problem(unfolded.put("/v1/kv/ns/k", {}), 422, "bad-body")
        problem(unfolded.delete("/v1/topics/orders?cluster="), 400, "bad-parameter")
        problem(unfolded.delete("/v1/topics/orders?clusterName=c1"), 400, "bad-parameter")


PARAMETERS = [
    *(f"wait_for={value}" for value in ("-1", "1.5", "x", "", "+1", "1e3", "9" * 30, "%D9%A1", "1_0", str(2**63))),
    *(f"wait_for=1&wait_timeout={value}" for value in ("-1", "30001", "x", "1.5")),
    *(f"wait={value}" for value in ("-1", "NaN", "nan", "inf", "-inf", "300.1", "1e2", "", "0x1", "1s", "+1")),  # [35]
    "asOf=1",
    "wait=1&wait=2",
    "as_of=1&wait=1",
]


@pytest.mark.parametrize("query", PARAMETERS)
def test_parameters_of_a_route(unfolded: HttpApi, query: str) -> None:
    problem(unfolded.get(f"/v1/topics/orders/route?{query}"), 400, "bad-parameter")


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=10001", "limit=ten", "cursor=%00", "cursor=!!", "cluster=a%20b", "cluster=", "x=1"],
)
def test_parameters_of_the_topic_list(unfolded: HttpApi, query: str) -> None:
    problem(unfolded.get(f"/v1/topics?{query}"), 400, "bad-parameter")


@pytest.mark.parametrize(
    "header",
    ['"', "", ",,,", "W/", '"a', "nonsense", '"5-" x', "\xff", '"' + "a" * 10_000, '"1-none', "W/W/", " " * 10_000],
)
def test_garbage_in_if_none_match_is_ignored(api: HttpApi, header: str) -> None:  # [33]
    api.register(broker("garbage", topics=("garbage-1", "garbage-2"), host=40))
    for query in ("", "?wait=30", "?wait_for=0"):
        answer = api.get(f"/v1/topics/garbage-1/route{query}", headers={b"if-none-match": header.encode("latin-1")})
        assert answer.status_code == 200


def test_a_spoofed_host_may_neither_write_nor_read_here_and_is_not_believed(unfolded: HttpApi) -> None:  # [36]
    for host in (
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost@evil",
        "",
        "a b",
        "127.0.0.1, evil",
    ):
        with nothing_lands(unfolded):
            problem(unfolded.register(broker(), headers={"host": host}), 403, "unknown-host")
            problem(unfolded.delete("/v1/topics/orders", headers={"host": host}), 403, "unknown-host")
            problem(unfolded.get("/v1/topics/orders/route", headers={"host": host}), 403, "unknown-host")
        answer = unfolded.get("/", headers={"host": host}, peer=("192.0.2.7", 4711))
        assert answer.headers["location"] == "docs"
        moved = unfolded.get("/v1/clusters/", headers={"host": host}, peer=("192.0.2.7", 4711))
        assert moved.status_code == 404
        assert "location" not in moved.headers
    for host in ("127.0.0.1", "localhost:1", "[::1]:8080", "LOCALHOST", "10.1.2.3:8080"):
        assert unfolded.register(broker(), headers={"host": host}).status_code == 200


def test_unknown_paths_and_methods(unfolded: HttpApi) -> None:
    assert problem(unfolded.get("/v2"), 404, "no-such-endpoint")["code"] == 3
    problem(unfolded.get("/v1/topics/orders"), 405, "method-not-allowed")
    answer = unfolded.send("PUT", "/v1/topics/orders/route")
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"]
    problem(unfolded.send("GET", REGISTER.replace("register", "register/")), 404, "no-such-endpoint")
