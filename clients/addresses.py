# SPDX-License-Identifier: Apache-2.0
"""Addresses of servers as people write them, the one parser of the command line: ``a``, ``a:9876; [::1]:9876/``.

A NameServer's port is 9876 where none is written. ``http://a:8080`` is a routelake asked over HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from schemas.errors import SetupError

MAX_PORT: Final = 65535
NAMESRV_PORT: Final = 9876

_HOST: Final = re.compile(r"[^\s/@?#:;,\[\]]+|\[[0-9A-Fa-f:.]+(%\w+)?\]")
_SCHEMES: Final = ("http", "https")


def is_http(address: str) -> bool:
    """Whether it is asked over HTTP."""
    return "://" in address


def namesrv_addresses(addresses: str | Sequence[str], option: str = "-n", *, http: bool = False) -> list[str]:
    """The NameServers of a list, in order.

    Args:
        addresses: A text as `namesrvAddr` holds it, separated by ``;`` or ``,``; or the parts.
        option: What the message names when it cannot be read.
        http: Whether ``http://host:port`` will do.

    Returns:
        ``host:port`` or ``http://host:port`` each, without repetitions.

    Raises:
        SetupError: Nothing in it, or a part that is no address.
    """
    parts = re.split("[;,]", addresses) if isinstance(addresses, str) else addresses
    found = [
        _http_address(part.strip(), option) if http and is_http(part) else host_port(part, option, NAMESRV_PORT)
        for part in parts
        if part.strip()
    ]
    if not found:
        forms = "'host:9876;other:9876'" + (" or 'http://host:8080'" if http else "")
        raise SetupError(f"{option} names no NameServer: give {option} {forms}, or set NAMESRV_ADDR")
    return list(dict.fromkeys(found))


def host_port(text: str, option: str, default_port: int | None = None) -> str:
    """One address.

    Args:
        text: ``host:port`` or ``[::1]:port``; a slash at its end and spaces around it are ignored.
        option: What the message names.
        default_port: For ``host`` alone.

    Returns:
        ``host:port``.

    Raises:
        SetupError: It is no address with a port of 1 to 65535, or one to ask over HTTP.
    """
    address = text.strip().removesuffix("/")
    example = f"HOST:PORT, for example 127.0.0.1:{default_port or NAMESRV_PORT}"
    if is_http(address):
        host = urlsplit(address).netloc.rpartition("@")[2].partition(":")[0] or "host"
        raise SetupError(
            f"{option}: {text!r} is an HTTP address, and this speaks RocketMQ's own protocol: give the port of the "
            f"NameServer instead, {host}:{default_port or NAMESRV_PORT}"
        )
    if " " in address:
        raise SetupError(f"{option}: {text!r} is no address: separate addresses by ';', 'host:9876;other:9876'")
    host, port = _split(address)
    if _HOST.fullmatch(host) is None or host.isdigit():
        brackets = ": an IPv6 address stands in brackets, [::1]:9876" if address.count(":") > 1 else ""
        raise SetupError(f"{option}: {text!r} is no address{brackets or f': expected {example}'}")
    if port is None and default_port is not None:
        return f"{host}:{default_port}"
    if port is None or not port.isascii() or not port.isdigit() or not 0 < int(port) <= MAX_PORT:
        raise SetupError(f"{option}: {text!r} is no address: expected {example}")
    return f"{host}:{int(port)}"


def _split(address: str) -> tuple[str, str | None]:
    """Host, in its brackets if it has some, and port; None where there is no colon."""
    host, colon, port = address.rpartition(":")
    return (host, port) if colon and not address.endswith("]") else (address, None)


def _http_address(address: str, option: str) -> str:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    beyond = parts.path.strip("/") or parts.query or parts.fragment or parts.username or parts.password
    if parts.scheme not in _SCHEMES or not parts.hostname or beyond or port == 0 or " " in address:
        raise SetupError(
            f"{option}: {address!r} is no address: expected http://HOST:PORT, for example http://127.0.0.1:8080"
        )
    return f"{parts.scheme}://{parts.netloc}"
