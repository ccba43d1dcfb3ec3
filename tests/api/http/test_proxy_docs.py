# SPDX-License-Identifier: Apache-2.0
"""The proxies of docs/reference/http-api.md stand before a gateway as they are written there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from api.http.settings import from_environment
from dev.support.local import LocalGateway, LocalLake
from dev.support.loops import until
from dev.support.proxies import HAProxy, Nginx, Proxy

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "http-api.md").read_text(encoding="utf-8")
TOKEN = "0123456789abcdef"
WIPE = "v1/brokers/broker-a/wipe-write-perm"


def example(language: str, port: int) -> str:
    """The one block of that language, for a gateway at a port."""
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(text).replace("127.0.0.1:8080", f"127.0.0.1:{port}")


PROXIES: dict[str, tuple[str, Callable[[str], Proxy]]] = {
    "nginx": ("rl/", lambda lines: Nginx({"documented": lines})),
    "haproxy": ("", lambda lines: HAProxy({"documented": lines})),
}
"""Name of each example: path of the gateway behind it, and the proxy with its lines."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    variables = {"TOKENS": f"alice={TOKEN}", "TRUSTED_HOSTS": "mq.example.com", "TLS_IN_FRONT": "true"}
    settings = from_environment({f"ROUTELAKE_HTTP_{name}": value for name, value in variables.items()})
    with (
        LocalLake(tmp_path_factory.mktemp("lake")) as lake,
        lake.gateway(http=settings, remoting_port=None, http_port=0) as gateway,
    ):
        yield gateway


@pytest.mark.parametrize("name", list(PROXIES))
def test_a_proxy_as_documented(gateway: LocalGateway, name: str) -> None:
    prefix, make = PROXIES[name]
    host = {"host": "mq.example.com"}
    with (
        make(example(name, gateway.http_port)) as proxy,
        httpx.Client(base_url=f"{proxy.url}/{prefix}", trust_env=False) as client,
    ):
        until(lambda: client.get("healthz").status_code == 200)
        assert client.get("v1/topics", headers=host, timeout=60).status_code == 200
        assert client.get("v1/topics", headers={"host": "evil.example"}).status_code == 403
        assert client.get("readyz", headers={"host": "evil.example"}).status_code == 200
        assert client.post(WIPE, headers=host).status_code == 401
        assert client.post(WIPE, headers={**host, "authorization": f"Bearer {TOKEN}"}).status_code == 200
        page = {**host, "origin": "https://mq.example.com", "sec-fetch-site": "same-origin"}
        login = client.post("console/session", headers=page, json={"token": TOKEN})
        assert login.status_code == 200
        assert login.headers["set-cookie"].startswith("__Host-")
        with client.stream("GET", "v1/events?from=0", headers=host) as stream:
            assert next(stream.iter_lines()).startswith("retry:")
