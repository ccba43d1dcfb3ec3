# SPDX-License-Identifier: Apache-2.0
"""A browser, and a gateway with a console for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from playwright.sync_api import Browser

from dev.support.browser import Watched, chromium
from dev.support.local import LocalGateway, LocalLake
from dev.support.two_hours import two_hours
from eventlog.base import now_ms


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


IN_AN_EPOCH: Final = 20


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    """A gateway with the two hours behind it."""
    records = two_hours()
    shift_ms = now_ms() - records[-1].event_time_ms
    passed_ms = [0]
    with LocalLake(tmp_path_factory.mktemp("lived"), clock=lambda: passed_ms[0] or now_ms()) as lake:
        for number, record in enumerate(records):
            passed_ms[0] = record.event_time_ms + shift_ms
            [appended] = lake.log.append([(record.key, record.payload)])
            if number % IN_AN_EPOCH == 0:
                lake.fold.wait_for(appended.offset)
        lake.fold.wait_for(appended.offset)
        # The log's time stands still from here on, so no broker expires, however long the pages take.
        with lake.gateway(remoting_port=None, http_port=0) as gateway:
            yield gateway


class Console:
    """A gateway with a console, and a short history in it."""

    def __init__(
        self, folder: Path, headers: dict[str, str] | None = None, scheme: str = "http", **settings: Any
    ) -> None:
        self.lake = LocalLake(folder)
        self.lake.start()
        self.gateway: LocalGateway = self.lake.gateway(remoting_port=None, http_port=0, **settings)
        self.gateway.start()
        self.url = f"{scheme}://127.0.0.1:{self.gateway.http_port}"
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=60, verify=False)

    def send(self, method: str, path: str, body: Any = None) -> int:
        """A write, and that the tables have it; its offset."""
        answer = self.client.request(method, path, **({} if body is None else {"json": body}))
        assert answer.status_code == 200, answer.text
        offset: int = answer.json()["offset"]
        found = self.client.get("/v1/epochs", params={"limit": 1, "wait_for": offset, "wait_timeout": 30_000})
        assert found.status_code == 200, found.text
        return offset

    def close(self) -> None:
        self.client.close()
        self.gateway.stop()
        self.lake.close()


@pytest.fixture
def tab(browser: Browser, console: Console) -> Iterator[Watched]:
    """A page of the module's own `console`."""
    found = Watched(browser, console.url)
    yield found
    found.close()
