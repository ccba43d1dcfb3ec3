# SPDX-License-Identifier: Apache-2.0
"""Refusal of requests that a web page makes its visitor's browser send, before anything else is done with them.

*Cross-site writes* (CSRF). A page of another site can make a browser send requests to this gateway. Some of them need
no preflight. Every method except the safe ones (RFC 9110, 9.2.1) is checked by Sec-Fetch-Site. Only ``same-origin`` (a
page of this gateway) and ``none`` (the user's own action) may pass. Browsers send that header only to secure origins
and localhost. Without it Origin decides, which browsers send with every such request: it must name the host and port
of the Host header. A request with neither header does not come from a browser. Pattern: Go's net/http
CrossOriginProtection.

*Clients without a certificate*, where one is required (tls.server.need.client.auth=require), may read only health,
because probes have none. Health is answered for any Host header.

*DNS rebinding*. An attacker can point the name of a page at an address of this machine. To the browser such a page is
same-origin. Only the Host header, which still has the page's name, shows it. So a request from this machine, also a
read, must name an IP address, localhost, this machine or a trusted host. The same holds for a browser's write from
elsewhere. If trusted hosts are configured, it holds for every read from anywhere, because a page can also be pointed at
an address of an intranet. Requests that need a token are not checked, because no such page has one.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from api.http.naming_rules import is_loopback
from api.http.problems import CROSS_SITE, FORBIDDEN, UNKNOWN_HOST, Problem
from api.http.settings import HttpSettings

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

PROBES: Final = frozenset({"/healthz", "/healthz/fold", "/readyz"})
"""Paths of health and readiness, which every client may read."""
_PASSING: Final = frozenset({b"same-origin", b"none"})
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")
_LONGEST_HOST: Final = 300
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Client = tuple[str, int] | None


class TrustedOrigins:
    """Check of a request by method and headers. One for the whole application, so that no endpoint can be left out."""

    def __init__(self, settings: HttpSettings) -> None:
        """Look up this machine's names."""
        self._writes_need_token = bool(settings.tokens)
        self._reads_need_token = self._writes_need_token and settings.protect_reads
        self._judges_all = bool(settings.trusted_hosts)
        self._names = settings.trusted_hosts | {socket.gethostname().lower()}
        self._is_known = lru_cache(256)(self._look_up)
        # A resolver that does not answer takes half a minute: the start does not wait for it.
        threading.Thread(target=self._add_qualified_name, name="fqdn", daemon=True).start()

    def _add_qualified_name(self) -> None:
        """Add this machine's name with its domain, so that a Prometheus on this machine may use it for its targets."""
        self._names |= {socket.getfqdn().lower().rstrip(".")}
        self._is_known = lru_cache(256)(self._look_up)  # a new cache, because the old answers may be wrong now

    def refusal(self, scope: Scope) -> Problem | None:
        """Return why a request must not pass; None if it may."""
        is_probe = scope.get("path") in PROBES
        if scope.get("state", {}).get("lacks_certificate") and not is_probe:
            return Problem(FORBIDDEN, "a client certificate is required (tls.server.need.client.auth=require)")
        client = scope["client"]
        if scope["method"] in SAFE_METHODS:
            if is_probe:
                return None
            host = next((value for name, value in scope["headers"] if name == b"host"), None)
            return None if host is None or self.allows_read(client, host) else _unknown_host(host)
        fetch_site = _values(scope, b"sec-fetch-site")
        origins = _values(scope, b"origin")
        if fetch_site:
            if not _PASSING.issuperset(fetch_site):
                return _cross_site("Sec-Fetch-Site", fetch_site)
        elif not all(_is_same_origin(origin, _values(scope, b"host")) for origin in origins):
            return _cross_site("Origin", origins)
        if self._writes_need_token or not (_is_from_here(client) or fetch_site or origins):
            return None
        hosts = _values(scope, b"host")
        return None if hosts and all(map(self._is_known, hosts)) else _unknown_host(b", ".join(hosts))

    def allows_read(self, client: Client, host: bytes | None) -> bool:
        """Return whether a request with a safe method passes.

        Args:
            client: Host and port of the client.
            host: The Host header; None without one.
        """
        if host is None or self._reads_need_token or not (self._judges_all or _is_from_here(client)):
            return True
        return self._is_known(host)

    def _look_up(self, header: bytes) -> bool:
        found = _HOST.fullmatch(header.decode("latin-1")) if len(header) <= _LONGEST_HOST else None
        if found is None:
            return False
        host = found[1].lower().rstrip(".")
        if is_loopback(host) or host.endswith(".localhost") or host in self._names:
            return True
        try:
            ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            return False
        return True


def _is_from_here(client: Client) -> bool:
    return client is None or is_loopback(client[0])


def _unknown_host(host: bytes) -> Problem:
    return Problem(
        UNKNOWN_HOST,
        f"the Host header says {host[:_LONGEST_HOST].decode('latin-1')!r}: name an IP address, localhost or this "
        "machine, or tell the gateway its names in ROUTELAKE_HTTP_TRUSTED_HOSTS",
    )


def _values(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]


def _is_same_origin(origin: bytes, hosts: list[bytes]) -> bool:
    """Return whether an Origin header (RFC 6454, 7) names host and port of the one Host header. ``null`` does not."""
    try:
        parts = urlsplit(origin.decode("ascii"))
        default = _DEFAULT_PORTS.get(parts.scheme)
        found = _HOST.fullmatch(hosts[0].decode("ascii")) if len(hosts) == 1 else None
        if found is None or default is None or not parts.hostname:
            return False
        own = (found[1].strip("[]").lower(), int(found[2]) if found[2] else default)
        return own == (parts.hostname, default if parts.port is None else parts.port)
    except ValueError:
        return False


def _cross_site(header: str, values: list[bytes]) -> Problem:
    shown = b", ".join(values)[:_LONGEST_HOST].decode("latin-1")
    return Problem(
        CROSS_SITE, f"a page of another site sent this write through a browser ({header}: {shown}), which is refused"
    )
