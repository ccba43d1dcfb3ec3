"""Where routes come from: ``a:9876;b:9876`` speak remoting, ``http://a:8080`` is a routelake asked over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from clients.addresses import host_port
from schemas.errors import SetupError

_SCHEMES = ("http", "https")


def is_http(address: str) -> bool:
    """Whether it is asked over HTTP."""
    return "://" in address


def route_addresses(addresses: str | Sequence[str], option: str = "-n") -> list[str]:
    """The addresses of a list, checked, without repetitions, in order.

    Args:
        addresses: A text as `namesrvAddr` holds it (separated by ``;`` or ``,``), or the parts.
        option: What the message names.

    Raises:
        SetupError: Nothing in it, or a part that is neither HOST:PORT nor http(s)://HOST[:PORT].
    """
    parts = addresses.replace(",", ";").split(";") if isinstance(addresses, str) else addresses
    found = list(dict.fromkeys(_checked(part.strip(), option) for part in parts if part.strip()))
    if not found:
        raise SetupError(f"{option} {addresses!r} names no address: expected 'host:9876', or 'http://host:8080'")
    return found


def _checked(address: str, option: str) -> str:
    if not is_http(address):
        return host_port(address, option)
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
