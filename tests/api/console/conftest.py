# SPDX-License-Identifier: Apache-2.0
"""A browser, and a gateway with a console for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from dev.support.browser import chromium
from dev.support.local import LocalGateway, LocalLake


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


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
