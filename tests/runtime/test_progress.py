# SPDX-License-Identifier: Apache-2.0
"""What is said until `serve` is ready."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from dev.peers.java import free_port
from runtime import progress
from runtime.progress import STILL_EVERY_S, Startup


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway here answers, however busy the machine is."""
    monkeypatch.setattr(progress, "_ANSWER_S", 60.0)


@contextmanager
def gateway(answer: dict[str, Any]) -> Iterator[str]:
    """Answers /readyz with what the dictionary holds at the time; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer).encode()
            answer["asked"] = self.path
            self.send_response(200 if answer.get("ready") else 503)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/readyz"
        finally:
            server.shutdown()
            thread.join()


def test_a_line_for_each_step_and_no_silent_gap() -> None:
    lines: list[str] = []
    now_s = 100.0
    answer: dict[str, Any] = {
        "ready": False,
        "checks": {"eventLog": {"ok": True}, "fold": {"ok": False, "reason": "no fold"}},
    }
    with gateway(answer) as url:
        startup = Startup(url, spark=True, say=lines.append, clock=lambda: now_s)
        now_s += 1.25
        assert not startup.look()
        assert not startup.look()
        assert lines == ["gateway ready in 1.2 s; starting Spark ..."]
        for _ in range(2):
            now_s += STILL_EVERY_S
            assert not startup.look()
        assert lines[1:] == ["not ready after 11 s: no fold", "not ready after 21 s: no fold"]
        answer["ready"] = True
        assert startup.look()
    assert len(lines) == 3


def test_a_gateway_at_the_head_is_ready_before_spark_is() -> None:
    lines: list[str] = []
    with gateway({"ready": True, "checks": {"fold": {"ok": False, "reason": "no fold"}}}) as url:
        assert Startup(url, spark=True, say=lines.append, clock=lambda: 0.0).look()
    assert lines == ["gateway ready in 0.0 s; starting Spark ..."]


def test_the_gateway_is_asked_with_the_query_of_the_url() -> None:
    answer: dict[str, Any] = {"ready": True, "checks": {}}
    with gateway(answer) as url:
        assert Startup(f"{url}?strict", spark=True, say=lambda line: None).look()
    assert answer["asked"] == "/readyz?strict"


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with gateway({"ready": True, "checks": {}}) as url:
        assert Startup(url, spark=False, say=lambda line: None).look()


def test_a_gateway_that_does_not_answer_and_one_that_is_somebody_else() -> None:
    lines: list[str] = []
    with gateway({"hello": "world"}) as other:
        for url in (f"http://127.0.0.1:{free_port()}/readyz", other):
            clock = iter([0.0, *[STILL_EVERY_S] * 3])
            assert not Startup(url, spark=False, say=lines.append, clock=clock.__next__).look()
    assert lines == ["not ready after 10 s: the gateway does not answer yet"] * 2


def test_gateways_alone_start_no_spark() -> None:
    lines: list[str] = []
    with gateway({"ready": False, "checks": {}}) as url:
        assert not Startup(url, spark=False, say=lines.append, clock=lambda: 0.0).look()
    assert lines == ["gateway ready in 0.0 s"]
