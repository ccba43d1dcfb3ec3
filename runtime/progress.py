# SPDX-License-Identifier: Apache-2.0
"""Progress lines of `serve` for a person: one for each step, and one from time to time during a long step."""

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
"""Silence after which a line says what is waited for."""

_MOST_BYTES: Final = 1024 * 1024
_ANSWER_S: Final = 1.0
"""How long one look may hold up the supervisor."""


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
        """The start begins now.

        Args:
            ready_url: Of /readyz.
            spark: Whether a fold is started, too, and with it Spark.
            say: Where lines go, without what stands in front of them.
            clock: Seconds.
        """
        self._ready_url = ready_url
        self._spark = spark
        self._say = say
        self._clock = clock
        self._began_s = clock()
        self._said_s = self._began_s
        self._gateway_answers = False

    def look(self) -> bool:
        """Ask /readyz, say what is new. Returns whether it is ready: a gateway at the head of the log needs no fold."""
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
        """The document of /readyz, ready or not; None while nobody answers as a gateway does."""
        try:
            found = json.loads(ask_gateway(self._ready_url, _ANSWER_S)[1])
        except (OSError, HTTPException, ValueError):
            return None
        return found if isinstance(found, dict) and isinstance(found.get("ready"), bool) else None


def ask_gateway(url: str, timeout_s: float) -> tuple[int, bytes]:
    """GET from a gateway on this machine: without a proxy, and whatever name its certificate has.

    Returns:
        Status and body of the answer.

    Raises:
        OSError, http.client.HTTPException: Nobody answers as a web server does.
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
        connection.request("GET", at.path, headers={"Host": f"127.0.0.1:{connection.port}"})
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES)
    finally:
        connection.close()


def _reasons(found: dict[str, Any] | None) -> str:
    if found is None:
        return "the gateway does not answer yet"
    checks = found.get("checks", {}).values()
    return "; ".join(dict.fromkeys(check["reason"] for check in checks if not check["ok"])) or "no check names a reason"
