# SPDX-License-Identifier: Apache-2.0
"""Waiting for routelake's view: until an event has been folded, until a route looks as it should."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from dev.benchmarks.harness.frames import Link, route_query
from dev.benchmarks.harness.peers import RoutelakeServer


def readiness(lake: RoutelakeServer) -> dict[str, Any]:
    """Return the answer of /readyz, ready or not; empty while nothing answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{lake.http_port}/readyz", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        found = json.load(error)
    except OSError:
        return {}
    return found


def is_visible(lake: RoutelakeServer, offset: int) -> bool:
    """Return whether a log offset is visible, asked like other waiting clients: with ``wait_for``, for five seconds."""
    url = f"http://127.0.0.1:{lake.http_port}/v1/clusters?wait_for={offset}"
    try:
        with urllib.request.urlopen(url, timeout=30):
            return True
    except OSError:
        return False


def route_rows(link: Link, topic: str) -> dict[str, int]:
    """``{brokerName: writeQueueNums}`` of a route; empty without a route."""
    answer = link.call(route_query(topic))
    if answer.code or not answer.body:
        return {}
    return {row["brokerName"]: row["writeQueueNums"] for row in json.loads(answer.body)["queueDatas"]}
