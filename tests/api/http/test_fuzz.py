# SPDX-License-Identifier: Apache-2.0
"""Whatever is sent: an answer below 500, problem+json when refused, and nothing on the log then."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from api.http.answers import ProblemDetails
from dev.support.http_api import JSON, HttpApi, broker, parsed
from schemas.events import RegisterBroker

FUZZ = settings(
    deadline=None,
    max_examples=min(150, 3 * settings().max_examples // 2),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

texts = st.text(max_size=12) | st.sampled_from(["orders", "10.0.0.1:10911", "", "%", "NaN", "-1", "\u0000", "\ud800"])
leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)


def check(api: HttpApi, answer: httpx.Response, before: Any) -> None:
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        found = parsed(answer, ProblemDetails)
        assert found.status == answer.status_code
        if answer.status_code not in (409, 503):
            assert api.written_since(before) == []
    elif answer.request.method != "GET":
        written = api.written_since(before)
        if len(written) == 2:  # a broker that has expired a moment ago: its topics were needed after all
            assert isinstance(written[0], RegisterBroker) and written[0].topic_config_table is None
            written.pop(0)
        assert len(written) == 1


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += paths_of(inner, (*path, key))
    return found


FULL = broker(
    heartbeatTimeoutMillis=1, enableActingMaster=True, zoneName="z", filterServerList=["10.0.0.9:31000"], brokerId=3
)
FULL["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = {
    "orders": {"bname": "b", "scope": "s", "totalQueues": 1, "epoch": 1, "dirty": True, "currIdMap": {"0": 0}}
}


@st.composite
def registrations(draw: st.DrawFn) -> Any:
    """A good registration with something put in another's place."""
    said: Any = json.loads(json.dumps(FULL))
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from(paths_of(said)))
        if not path:
            return draw(values)
        target = said
        for key in path[:-1]:
            target = target[key]
        action = draw(st.sampled_from(("value", "gone", "key")))
        if action == "value" or isinstance(target, list):
            target[path[-1]] = draw(values)
        elif action == "gone":
            del target[path[-1]]
        else:
            target[draw(texts)] = target.pop(path[-1])
    return said


@given(said=registrations())
@FUZZ
def test_registrations(unfolded: HttpApi, said: Any) -> None:
    before = unfolded.log.end()
    check(
        unfolded, unfolded.send("POST", "/v1/brokers/register", content=json.dumps(said).encode(), headers=JSON), before
    )


@given(
    target=st.sampled_from(
        [
            ("POST", "/v1/brokers/register"),
            ("POST", "/v1/brokers/heartbeat"),
            ("POST", "/v1/brokers/unregister"),
            ("PUT", "/v1/kv/ns/k"),
        ]
    ),
    data=st.binary(max_size=200)
    | st.builds(lambda value: json.dumps(value).encode(), values)
    | st.builds(lambda at, junk: json.dumps(FULL).encode()[:at] + junk, st.integers(0, 700), st.binary(max_size=3)),
    encoding=st.sampled_from([None, None, "gzip", "identity", "x"]),
)
@FUZZ
def test_bodies(unfolded: HttpApi, target: tuple[str, str], data: bytes, encoding: str | None) -> None:
    before = unfolded.log.end()
    headers = JSON if encoding is None else {**JSON, "content-encoding": encoding}
    check(unfolded, unfolded.send(*target, content=data, headers=headers), before)


segments = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20).map(lambda text: quote(text, safe="")) | (
    st.sampled_from(["orders", "%FF", "%00", "%2F", "%2e%2e", "%RETRY%25g", "a" * 300, "*", "route", "changes"])
)
queries = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("wait_for", "wait_timeout", "as_of", "wait", "limit", "cursor", "prefix", "cluster", "before"),
                *("after", "since", "until", "x", "from", "to", "topic", "brokerName", "command", "peer", "user"),
            ]
        ),
        st.sampled_from(["0", "1", "-1", "", "x", "NaN", "2026-01-01T00:00:00Z", "9999999999999999999"])
        | st.text(st.characters(blacklist_categories=["Cs"]), max_size=10),
    ),
    max_size=3,
)


@given(
    method=st.sampled_from(["GET", "GET", "GET", "DELETE", "POST", "PUT"]),
    shape=st.sampled_from(
        [
            *("/v1/topics/{}/route", "/v1/topics/{}/changes", "/v1/topics/{}", "/v1/topics", "/v1/brokers"),
            *("/v1/brokers/{}", "/v1/brokers/{}/wipe-write-perm", "/v1/brokers/{}/add-write-perm", "/v1/clusters"),
            *("/v1/kv/{}", "/v1/kv/{}/{}", "/v1/epochs", "/v1/changes", "/v1/diff", "/{}"),
            *("/v1/topics/{}/timeline", "/v1/topics/{}/blame", "/v1/brokers/{}/timeline"),
            "/v1/{}",
        ]
    ),
    names=st.tuples(segments, segments),
    query=queries,
    tag=st.none() | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12),
)
@example("GET", "/v1/topics/{}/route", ("%RETRY%25g", ""), [("as_of", "1")], None)
@example("GET", "/v1/topics/{}/route", ("orders", ""), [("wait_for", "0"), ("wait_timeout", "0")], "*")
@FUZZ
def test_paths_queries_and_tags(
    api: HttpApi,
    unfolded: HttpApi,
    method: str,
    shape: str,
    names: tuple[str, str],
    query: list[tuple[str, str]],
    tag: str | None,
) -> None:
    url = shape.format(*names) + ("?" + "&".join(f"{name}={quote(value)}" for name, value in query) if query else "")
    headers = {} if tag is None else {"if-none-match": tag}
    if ("wait_for", "1") in query or any(name == "wait" for name, _ in query):
        url += "&wait_timeout=1"  # twice is refused, too
    before = unfolded.log.end()
    check(unfolded, unfolded.send(method, url, headers=headers), before)
    if method == "GET":
        answer = api.get(url, headers=headers)
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
