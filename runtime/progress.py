# SPDX-License-Identifier: Apache-2.0
"""Progress lines of `serve`: one for each step, and one every few seconds during a long step."""

from __future__ import annotations

import json
import ssl
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

STILL_EVERY_S: Final = 10.0
"""Time without a line after which a line reports the reason for the wait, in seconds."""

_MOST_BYTES: Final = 1024 * 1024
_ANSWER_S: Final = 1.0
"""Time limit for an answer of /readyz, in seconds. The supervisor waits for it."""


def _say(line: str) -> None:
    print(f"routelake: {line}", file=sys.stderr, flush=True)


class Startup:
    """Progress of a start, from /readyz. Lines go to standard error."""

    def __init__(
        self,
        ready_url: str,
        *,
        spark: bool,
        say: Callable[[str], None] = _say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to measure the start.

        Args:
            ready_url: URL of /readyz.
            spark: Whether a fold, and with it Spark, is started too.
            say: Callback for lines, without their prefix.
            clock: Monotonic clock, in seconds.
        """
        self._ready_url = ready_url
        self._spark = spark
        self._say = say
        self._clock = clock
        self._began_s = clock()
        self._said_s = self._began_s
        self._gateway_answers = False

    def look(self) -> bool:
        """Ask /readyz, print news, and return whether the gateway is ready. With a live view it needs no fold."""
        found = self._ask()
        is_ready = found is not None and bool(found["ready"])
        took_s = self._clock() - self._began_s
        if found is not None and not self._gateway_answers:
            self._gateway_answers = True
            self._tell(f"gateway ready in {took_s:.1f} s{'; starting Spark ...' if self._spark else ''}")
        elif not is_ready and self._clock() - self._said_s >= STILL_EVERY_S:
            self._tell(f"not ready after {took_s:.0f} s: {_reasons(found)}")
        return is_ready

    def _tell(self, line: str) -> None:
        self._said_s = self._clock()
        self._say(line)

    def _ask(self) -> dict[str, Any] | None:
        """Return the document of /readyz, ready or not, or None if no gateway answers."""
        try:
            found = json.loads(ask_gateway(self._ready_url, _ANSWER_S)[1])
        except (OSError, HTTPException, ValueError):
            return None
        return found if isinstance(found, dict) and isinstance(found.get("ready"), bool) else None


def ask_gateway(url: str, timeout_s: float) -> tuple[int, bytes]:
    """Send a GET to a gateway on this machine, without a proxy and without a check of its certificate's name.

    Returns:
        Status and body of the answer.

    Raises:
        OSError, http.client.HTTPException: No valid HTTP answer came.
    """
    at = urlsplit(url)
    host = at.hostname or ""
    if at.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: HTTPConnection = HTTPSConnection(host, at.port, timeout=timeout_s, context=context)
    else:
        connection = HTTPConnection(host, at.port, timeout=timeout_s)
    try:
        connection.request(
            "GET", f"{at.path}?{at.query}" if at.query else at.path, headers={"Host": f"127.0.0.1:{connection.port}"}
        )
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES)
    finally:
        connection.close()


def _reasons(found: dict[str, Any] | None) -> str:
    if found is None:
        return "the gateway does not answer yet"
    checks = found.get("checks", {}).values()
    return "; ".join(dict.fromkeys(check["reason"] for check in checks if not check["ok"])) or "no check names a reason"
