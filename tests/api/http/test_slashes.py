# SPDX-License-Identifier: Apache-2.0
"""Names with a slash, which RocketMQ's wire lets in, can be named in a path as %2F. A line end is part of a name, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from dev.support.local import LocalGateway, LocalLake
from tests.examples.parts import config, register

NAMES = ["a/b", "/", "a//b/", "a/timeline", "%2F", "a%2Fb", "../x", "ü/\u8def", "a/b c"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    with (
        LocalLake(Path(tmp_path_factory.mktemp("slashes"))) as lake,
        lake.gateway(http_port=0) as gateway,
        gateway.connect() as client,
    ):
        for number, name in enumerate(NAMES):
            topics = [config(name), config(f"only-{number}")]
            sent = register(name, f"10.0.0.{number}:10911", topics=topics, cluster=name)
            assert client.call(sent.request()).code == 0
        yield gateway


def ask(gateway: LocalGateway, method: str, path: str, **more: object) -> httpx.Response:
    # httpx would make %2F a slash of a path that it is given as text
    url = httpx.URL(gateway.http_url).copy_with(raw_path=path.encode())
    return httpx.request(method, url, timeout=60, trust_env=False, **more)  # type: ignore[arg-type]


def encoded(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")


def test_reads(gateway: LocalGateway) -> None:
    last = gateway.gateway.live_view.offset
    for number, name in enumerate(NAMES):
        found = ask(gateway, "GET", f"/v1/brokers/{encoded(name)}?wait_for={last}&reads=committed&wait_timeout=30000")
        assert (found.status_code, found.json()["brokerName"]) == (200, name)
        assert found.json()["brokerAddrs"] == {"0": f"10.0.0.{number}:10911"}
        for query in ("", "?reads=live"):  # as the fast path and as the application have it
            route = ask(gateway, "GET", f"/v1/topics/{encoded(name)}/route{query}")
            assert [each["brokerName"] for each in route.json()["brokerDatas"]] == [name]
        for page in (f"brokers/{encoded(name)}/timeline", f"topics/{encoded(name)}/timeline"):
            assert ask(gateway, "GET", f"/v1/{page}").json()["intervals"], page
        for page in ("changes", "blame"):
            assert ask(gateway, "GET", f"/v1/topics/{encoded(name)}/{page}").status_code == 200
        listed = ask(gateway, "GET", f"/v1/brokers?cluster={encoded(name)}")
        assert listed.status_code == 400 or [each["brokerName"] for each in listed.json()["brokers"]] == [name]


def test_a_slash_of_the_path_is_none_of_a_name(gateway: LocalGateway) -> None:
    assert ask(gateway, "GET", "/v1/brokers/a/b").json()["type"].endswith("no-such-endpoint")
    assert ask(gateway, "GET", "/v1%2Fbrokers%2Fa%2Fb").json()["type"].endswith("no-such-endpoint")
    assert ask(gateway, "GET", "/v1/brokers/a%2Ftimeline").json()["brokerName"] == "a/timeline"
    assert "intervals" in ask(gateway, "GET", "/v1/brokers/a%2Fb/timeline").json()


def test_writes(gateway: LocalGateway) -> None:
    for name in NAMES:
        for path in (f"brokers/{encoded(name)}/wipe-write-perm", f"brokers/{encoded(name)}/add-write-perm"):
            answer = ask(gateway, "POST", f"/v1/{path}")
            assert answer.status_code == 200 and 2 in answer.json().values(), answer.text
        place = f"/v1/kv/{encoded(name)}/{encoded(name)}"
        assert ask(gateway, "PUT", place, json={"value": name}).status_code == 200
        assert ask(gateway, "GET", place).json() == {"namespace": name, "key": name, "value": name}
        assert ask(gateway, "GET", f"/v1/kv/{encoded(name)}").json() == {"namespace": name, "table": {name: name}}
        assert ask(gateway, "DELETE", place).json()["outcome"] == "applied"
        assert ask(gateway, "DELETE", f"/v1/topics/{encoded(name)}").json()["outcome"] == "applied"
        assert ask(gateway, "GET", f"/v1/topics/{encoded(name)}/route?wait_for=0").status_code in (400, 404)


def test_a_name_with_a_line_end_reaches_its_endpoint(gateway: LocalGateway) -> None:
    for name in ("a%0Ab", "a%0A", "%0A"):
        for method, path in (("PUT", f"kv/n/{name}"), ("DELETE", f"topics/{name}"), ("GET", f"topics/{name}/changes")):
            answer = ask(gateway, method, f"/v1/{path}", **({"json": {"value": "v"}} if method == "PUT" else {}))
            assert not answer.json().get("type", "").endswith("no-such-endpoint")
