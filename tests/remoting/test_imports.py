# SPDX-License-Identifier: Apache-2.0
"""The codec does no I/O: none of its modules imports, directly or through another of ours, what could."""

from __future__ import annotations

import grimp
import pytest

CODEC = (
    "answers",
    "commands",
    "connection",
    "frame",
    "names",
    "proxy_protocol",
    "registration",
    "reply",
    "route_query",
)
FORBIDDEN = {"asyncio", "socket", "ssl", "time", "logging", "threading", "select", "uvloop", "structlog"}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("schemas", "api", include_external_packages=True, cache_dir=None)


@pytest.mark.parametrize("module", CODEC)
def test_the_codec_does_no_io(graph: grimp.ImportGraph, module: str) -> None:
    assert graph.find_upstream_modules(f"api.remoting.{module}") & FORBIDDEN == set()
