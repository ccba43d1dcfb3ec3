# SPDX-License-Identifier: Apache-2.0
"""Behind a proxy that strips a path from addresses, every link leads to where it should."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin

import httpx
import pytest

from dev.support.browser import Watched, chromium
from dev.support.http_api import broker
from dev.support.local import LocalGateway, LocalLake
from dev.support.loops import until
from dev.support.proxies import Nginx

PREFIX = "/rl"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    with (
        LocalLake(tmp_path_factory.mktemp("lake")) as lake,
        lake.gateway(remoting_port=None, http_port=0) as gateway,
    ):
        for host in (1, 2, 3):
            body = broker(f"broker-{host}", host=host)
            answer = httpx.post(f"{gateway.http_url}/v1/brokers/register", json=body, timeout=60, trust_env=False)
            assert answer.status_code == 200
        yield gateway


@pytest.fixture(scope="module")
def proxied(gateway: LocalGateway) -> Iterator[str]:
    """The address of the gateway's root behind an nginx."""
    with Nginx({"own": f"location {PREFIX}/ {{ proxy_pass http://127.0.0.1:{gateway.http_port}/; }}"}) as proxy:
        yield f"{proxy.url}{PREFIX}/"


def fetch(url: str) -> httpx.Response:
    return httpx.get(url, timeout=60, trust_env=False)


def test_redirects(proxied: str) -> None:
    for path, leads_to in (("", "docs"), ("console", "console/")):
        answer = fetch(proxied + path)
        assert answer.status_code == 307
        target = urljoin(proxied + path, answer.headers["location"])
        assert target == proxied + leads_to
        assert fetch(target).status_code == 200


def test_the_documents(proxied: str) -> None:
    page = fetch(f"{proxied}docs")
    links = re.findall(r"href=[\"']?([^\"' >]+)", page.text)
    assert links
    for link in links:
        assert fetch(urljoin(str(page.url), link)).status_code == 200, link
    document = fetch(f"{proxied}openapi.json")
    servers = [urljoin(str(document.url), server["url"]) for server in document.json()["servers"]]
    assert [server.rstrip("/") + "/" for server in servers] == [proxied]


@pytest.mark.parametrize("path", ["v1/changes?limit=1", "v1/changes?topic=orders&limit=1", "v1/reports/alive?limit=1"])
def test_the_next_page(gateway: LocalGateway, proxied: str, path: str) -> None:
    until(lambda: "link" in fetch(proxied + path).headers)
    seen, url = [], proxied + path
    while url:
        answer = fetch(url)
        assert answer.status_code == 200, answer.text
        seen.append(answer.content)
        found = answer.links.get("next")
        url = urljoin(url, found["url"]) if found else ""
        assert not url or url.startswith(proxied)
        if len(seen) == 3:
            break
    assert len(set(seen)) == len(seen) > 1


def test_no_answer_names_a_path_of_the_root(proxied: str) -> None:
    for path in ("", "docs", "console", "console/", "v1/changes?limit=1", "v1/topics?limit=1", "v1/nothing"):
        for name, value in fetch(proxied + path).headers.items():
            assert not re.search(r"(^|<)(/|https?:)", value), (path, name, value)


def test_the_console(proxied: str) -> None:
    with chromium() as browser:
        watched = Watched(browser, proxied.rstrip("/"))
        page = watched.go("topics")
        page.get_by_text("orders").first.wait_for()
        watched.close()
