# SPDX-License-Identifier: Apache-2.0
"""Parser of server addresses for the command line and the clients: ``a``, ``a:9876; [::1]:9876/``.

The default port of a NameServer is 9876. ``http://a:8080`` is the HTTP API of a routelake.
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


_FULL_WIDTH: Final = {**{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}, "\u3002": ".", "\u3001": ","}
"""Full-width characters of input methods for Chinese or Japanese, and the ASCII characters for them."""
_QUOTES: Final = frozenset("'\"`\u2018\u2019\u201c\u201d\u300c\u300d")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


def what_is_odd(text: str) -> str | None:
    """Return the error in a text that resembles an address, and its correction, or None without an error.

    Args:
        text: One or more addresses.
    """
    for char in text:
        if char in _FULL_WIDTH:
            meant = "".join(_FULL_WIDTH.get(each, each) for each in text)
            return f"it holds the full-width character {char!r}: write {_FULL_WIDTH[char]!r}, {meant!r}"
        if char in _QUOTES:
            meant = "".join(each for each in text if each not in _QUOTES)
            return (
                f"it holds the quote {char}, which an env file or a compose file keeps: write {meant.strip()!r} without"
            )
        if not char.isprintable() and not char.isspace():
            return f"it holds the character U+{ord(char):04X}, which is invisible: type the address again"
    scheme = _SCHEME.fullmatch(text.strip())
    if scheme is not None and scheme[1].lower() not in _SCHEMES:
        return f"it begins with {scheme[1]}://, and RocketMQ's addresses have no scheme: write {scheme[2]!r}"
    return None


def is_http(address: str) -> bool:
    """Return True if the address is for HTTP."""
    return "://" in address


def namesrv_addresses(addresses: str | Sequence[str], option: str = "-n", *, http: bool = False) -> list[str]:
    """Parse a list of NameServers, and keep its order.

    Args:
        addresses: A text like `namesrvAddr`, separated by ``;`` or ``,``, or its parts.
        option: Name of the option, for the error message.
        http: Whether ``http://host:port`` is allowed.

    Returns:
        The addresses as ``host:port`` or ``http://host:port``, without repetitions.

    Raises:
        SetupError: The list is empty, or a part is not an address.
    """
    parts = re.split("[;,]", addresses) if isinstance(addresses, str) else addresses
    found = [
        http_address(part.strip(), option) if http and is_http(part) else host_port(part, option, NAMESRV_PORT)
        for part in parts
        if part.strip()
    ]
    if not found:
        forms = "'host:9876;other:9876'" + (" or 'http://host:8080'" if http else "")
        is_variable = option.isupper()
        how = f"expected {forms} in it" if is_variable else f"give {option} {forms}, or set NAMESRV_ADDR"
        raise SetupError(f"{option} names no NameServer: {how}")
    return list(dict.fromkeys(found))


def host_port(text: str, option: str, default_port: int | None = None) -> str:
    """Parse one address.

    Args:
        text: ``host:port`` or ``[::1]:port``. A slash at the end and spaces around it are ignored.
        option: Name of the option, for the error message.
        default_port: Port for a ``host`` without port.

    Returns:
        The address as ``host:port``.

    Raises:
        SetupError: The text is not an address with a port from 1 to 65535, or it is an HTTP address.
    """
    odd = what_is_odd(text)
    if odd is not None:
        raise SetupError(f"{option}: {text.strip()!r} is no address: {odd}")
    address = text.strip().removesuffix("/")
    example = f"HOST:PORT, for example 127.0.0.1:{default_port or NAMESRV_PORT}"
    if is_http(address):
        host = urlsplit(address).netloc.rpartition("@")[2].partition(":")[0] or "host"
        raise SetupError(
            f"{option}: {text!r} is an HTTP address, and this speaks RocketMQ's own protocol: give the port of the "
            f"NameServer instead, {host}:{default_port or NAMESRV_PORT}"
        )
    if any(char.isspace() for char in address):
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
    """Split an address into host, with its brackets, and port. Without a colon, the port is missing (None)."""
    host, colon, port = address.rpartition(":")
    return (host, port) if colon and not address.endswith("]") else (address, None)


def http_address(address: str, option: str) -> str:
    """Check the address of an HTTP API, and return it as ``http://host:port``. Raises SetupError."""
    odd = what_is_odd(address)
    if odd is not None:
        raise SetupError(f"{option}: {address!r} is no address: {odd}")
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
