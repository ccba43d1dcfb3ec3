# SPDX-License-Identifier: Apache-2.0
"""Whether somebody beyond this machine could change routes without being asked who they are."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from api.http.naming_rules import is_loopback
from cli.preflight import Listen
from schemas.errors import SetupError

if TYPE_CHECKING:
    from api.http.settings import HttpSettings


def check_exposed(http: Listen, remoting: Listen, *, remoting_asks: bool, http_asks: bool, insecure: bool) -> None:
    """Refuse to listen beyond this machine where nobody is asked who they are, unless that was said.

    Args:
        http: Of --http.
        remoting: Of --remoting.
        remoting_asks: Whether changes need an account, or every connection a client certificate.
        http_asks: The same over HTTP, where a token does, too.
        insecure: Whether --insecure was said.

    Raises:
        SetupError: It was not.
    """
    if insecure:
        return
    found = [(remoting, "--remoting", "change routes")] if not remoting_asks else []
    found += [(http, "--http", "read them")] if not http_asks else []
    for listen, option, what in found:
        if is_beyond(listen):
            raise SetupError(
                f"{option} {listen} can be reached from other machines, and whoever does can {what}: "
                "give it accounts with --auth FILE (docs/explanation/security.md), or take clients with a certificate "
                "alone (--tls-mode enforcing --tls-client-ca FILE), or say --insecure if the network is trusted."
            )


def check_proxied(http: HttpSettings, *, asks: bool) -> None:
    """Refuse to stand behind a proxy where nobody who writes is asked who they are.

    Args:
        http: Settings of the HTTP API.
        asks: Whether changes need an account.

    Raises:
        SetupError: There are trusted hosts, and neither tokens nor accounts.
    """
    if http.trusted_hosts and not (asks or http.tokens or http.anonymous_writes):
        raise SetupError(
            "ROUTELAKE_HTTP_TRUSTED_HOSTS means that a proxy stands before the gateway, and behind a proxy no write "
            "is local: give the gateway tokens with ROUTELAKE_HTTP_TOKENS, or accounts with --auth FILE "
            "(docs/reference/http-api.md#behind-a-proxy)."
        )


def is_beyond(listen: Listen) -> bool:
    """Whether other machines could reach it."""
    if is_loopback(listen.host):
        return False
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return True
    return not all(is_loopback(str(info[4][0])) for info in found)
