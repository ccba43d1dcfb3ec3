"""NameServer addresses as people write them: ``a:9876;b:9876``."""

from __future__ import annotations

from schemas.errors import SetupError

MAX_PORT = 65535


def namesrv_addresses(text: str, option: str = "-n") -> list[str]:
    """The addresses of a list as `namesrvAddr` holds them: separated by ``;`` (or ``,``), spaces ignored, in order.

    Args:
        text: The list.
        option: What the message names when it cannot be read.

    Returns:
        ``host:port`` each, without repetitions.

    Raises:
        SetupError: Nothing in it, or a part that is not HOST:PORT.
    """
    parts = [part.strip() for part in text.replace(",", ";").split(";")]
    addresses = list(dict.fromkeys(host_port(part, option) for part in parts if part))
    if not addresses:
        raise SetupError(
            f"{option} {text!r} names no address: expected 'host:9876' or 'host:9876;other:9876', in quotes"
        )
    return addresses


def host_port(text: str, option: str) -> str:
    """One address, checked.

    Raises:
        SetupError: It is not HOST:PORT with a port of 1 to 65535.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= MAX_PORT or " " in text:
        raise SetupError(f"{option}: {text!r} is no address: expected HOST:PORT, for example 127.0.0.1:9876")
    return f"{host}:{int(port)}"
