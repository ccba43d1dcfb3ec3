# SPDX-License-Identifier: Apache-2.0
"""Java's HttpClient, which asks for HTTP/2 with each request, reads and writes over HTTP/1.1."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from api.http.settings import HttpSettings
from dev.peers.java_http import JavaHttpClient
from dev.support.executed import Executed
from dev.support.http_api import HttpApi, broker
from tests.api.http.test_server import Server

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpApi]:
    """A gateway that takes writes from programs that take connections, too, as Py4J makes of Java."""
    api = HttpApi(tmp_path_factory.mktemp("java"), clock_interval_s=3600.0, http=HttpSettings(anonymous_writes=True))
    yield api
    api.close()


@pytest.fixture(scope="module")
def executed(quiet: HttpApi) -> Executed:
    return Executed(quiet.app)


@pytest.fixture(scope="module")
def url(quiet: HttpApi, executed: Executed) -> Iterator[str]:
    server = Server(quiet, app=executed)
    yield server.url
    server.close()


def test_java_writes_and_reads(quiet: HttpApi, executed: Executed, url: str) -> None:
    large = broker("java", topics=[f"java-{number}" for number in range(3_000)], host=90)  # more than one packet
    with JavaHttpClient() as java:
        for asked in (
            ("POST", "/v1/brokers/register", json.dumps(large)),
            ("PUT", "/v1/kv/java/key", json.dumps({"value": "1"})),
            ("GET", "/v1/topics/java-7/route", ""),
            ("GET", "/v1/topics", "a body"),
            ("DELETE", "/v1/kv/java/key", ""),
            ("HEAD", "/v1/topics", ""),
            ("OPTIONS", "/v1/topics", ""),
            ("POST", "/v1/brokers/heartbeat", json.dumps({name: large[name] for name in KEYS})),
        ):
            method, path, body = asked
            executed.forget()
            status, answer = java.ask(method, url + path, body)
            assert status in (200, 204), answer
            assert [(one.method.decode(), one.target.decode(), one.body.decode()) for one in executed.whole] == [asked]


KEYS = ("clusterName", "brokerName", "brokerAddr")
