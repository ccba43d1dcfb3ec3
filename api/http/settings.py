# SPDX-License-Identifier: Apache-2.0
"""Settings of the HTTP API, with units in their names.

An operator sets these by environment variables (`from_environment`)::

    ROUTELAKE_HTTP_TOKENS            alice=s3cret bob=sha256:2bb80d53...   users and their bearer tokens
    ROUTELAKE_HTTP_PROTECT_READS     true: reads need a token as well
    ROUTELAKE_HTTP_ANONYMOUS_WRITES  true: without tokens, accept writes from anywhere
    ROUTELAKE_HTTP_LOCAL_WRITES      false: without tokens, take no writes from this machine either
    ROUTELAKE_HTTP_TLS_IN_FRONT      true: a proxy ends TLS before this gateway, so browsers come by https
    ROUTELAKE_HTTP_TRUSTED_HOSTS     names of this machine, in addition to its own
    ROUTELAKE_HTTP_NSADDR            what /rocketmq/nsaddr answers, HOST:PORT;HOST:PORT, instead of the live gateways
    ROUTELAKE_HTTP_CONSOLE_SITES     file of other routelakes that the console offers (`read_sites`)
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from api.http.naming_rules import address_problem
from schemas.errors import SetupError

_PREFIX: Final = "ROUTELAKE_HTTP_"
_SWITCH: Final = {"true": True, "1": True, "false": False, "0": False}
_HOST: Final = re.compile(r"(?!(.*\.)?[0-9]+\Z)({0}\.)*{0}".format(r"(?!-)[a-z0-9_-]{1,63}(?<!-)"))
"""Labels of letters, digits, `-` and `_`. Text that ends in a number is an address."""
_LONGEST_HOST: Final = 253
_MOST_SITES: Final = 1000
_KIB = 1024
_MIB = 1024 * _KIB


class Site(NamedTuple):
    """Name of a routelake, and the address of its HTTP API without a slash at the end."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Permissions to write, and limits of size, duration and waiting time of a request.

    Attributes:
        tokens: Bearer token by user, in the clear or as ``sha256:<hex of its digest>``. With any, writes need a token.
        protect_reads: Reads and /metrics need a token, too. /healthz and /readyz never do.
        anonymous_writes: Without tokens, accept writes from anywhere instead of this machine only.
        local_writes: Without tokens, accept writes from this machine.
        tls_in_front: Flag that a proxy ends https of the browsers: the console's cookie is for https only.
        trusted_hosts: Names that a Host header may have where it is checked (`api.http.csrf`), in addition to IP
            addresses, localhost and the machine's own names.
        name_servers: Answer of `/rocketmq/nsaddr`. Empty: the live gateways.
        console_sites: Other routelakes that the console links to.
        sessions_dir: Folder in which worker processes share the console's sessions. None: this process has its own.
        max_body_bytes: Size of the body of a registration, also after decompression.
        max_small_body_bytes: Size of every other body.
        max_bodies_bytes: Size of all bodies that are read or processed at a time. Beyond it, the address with the most
            unfinished bytes for the longest time gets SYSTEM_BUSY.
        body_timeout_s: Time in which a body must be complete.
        header_timeout_s: Time in which the head of a request must be complete, from its first byte or from connecting.
        linger_s: Time for which a client may go on sending a body after its request was answered.
        write_timeout_s: Time for which an answer may stay unread.
        max_header_bytes: Size of the head of a request.
        keep_alive_s: Time after which an idle connection is closed.
        max_connections: Number of connections. For one more, the longest idle connections of the address with most
            are closed.
        max_connections_per_address: Number of connections of one address. One more is closed. None: no such limit.
        max_held_bytes: Size of heads, unread bodies, waiting requests and unread answers of all connections together.
            Beyond it, the connection with the most bytes for the longest time is closed.
        max_long_polls: Number of open long polls. Beyond it, one of the address with most is answered early.
        max_subscribers: Number of subscribers to `GET /v1/events`. Beyond it, one of the address with most is closed.
        history_threads: Number of history reads that run at a time.
        history_queue: Number of history reads that wait. Beyond it, the peer with most waiting gets SYSTEM_BUSY.
        fold_stale_s: Age of the fold's last status after which the fold counts as down.
    """

    tokens: Mapping[str, str] = field(default_factory=dict)
    protect_reads: bool = False
    anonymous_writes: bool = False
    local_writes: bool = True
    tls_in_front: bool = False
    trusted_hosts: frozenset[str] = frozenset()
    name_servers: tuple[str, ...] = ()
    console_sites: tuple[Site, ...] = ()
    sessions_dir: Path | None = None
    max_body_bytes: int = 64 * _MIB
    max_small_body_bytes: int = _MIB
    max_bodies_bytes: int = 128 * _MIB
    body_timeout_s: float = 30.0
    header_timeout_s: float = 10.0
    linger_s: float = 2.0
    write_timeout_s: float = 60.0
    max_header_bytes: int = 64 * _KIB
    keep_alive_s: int = 75
    max_connections: int = 4096
    max_connections_per_address: int | None = None
    max_held_bytes: int = 64 * _MIB
    max_long_polls: int = 2_000
    max_subscribers: int = 2_000
    history_threads: int = 2
    history_queue: int = 32
    fold_stale_s: float = 30.0


def from_environment(environ: Mapping[str, str]) -> HttpSettings:
    """Read the settings from an environment. All others have their defaults.

    Raises:
        SetupError: A variable, or the file that it names, is invalid. Tokens are not shown.
    """
    tokens: dict[str, str] = {}
    for number, entry in enumerate(environ.get(f"{_PREFIX}TOKENS", "").split(), start=1):
        user, equals, token = entry.partition("=")
        if not user or not equals or not token:
            raise SetupError(f"{_PREFIX}TOKENS: entry {number} is not USER=TOKEN.")
        if user in tokens:
            raise SetupError(f"{_PREFIX}TOKENS: {user!r} has two entries. Remove one.")
        tokens[user] = token
    sites = environ.get(f"{_PREFIX}CONSOLE_SITES", "")
    return HttpSettings(
        tokens=tokens,
        protect_reads=_switch(environ, "PROTECT_READS"),
        anonymous_writes=_switch(environ, "ANONYMOUS_WRITES"),
        local_writes=_switch(environ, "LOCAL_WRITES", default=True),
        tls_in_front=_switch(environ, "TLS_IN_FRONT"),
        trusted_hosts=frozenset(map(_host, environ.get(f"{_PREFIX}TRUSTED_HOSTS", "").split())),
        name_servers=_name_servers(environ.get(f"{_PREFIX}NSADDR", "")),
        console_sites=read_sites(Path(sites)) if sites else (),
    )


def _name_servers(text: str) -> tuple[str, ...]:
    found = tuple(entry for part in text.split(";") if (entry := part.strip()))
    for entry in found:
        problem = address_problem(entry)
        if problem is not None:
            raise SetupError(
                f"{_PREFIX}NSADDR: {entry!r}: {problem}. Write IP:PORT with `;` between several, such as "
                "'10.0.0.1:9876;10.0.0.2:9876'."
            )
    return found


def _host(entry: str) -> str:
    """Convert a host to the form in which a Host header is compared with it."""
    host = entry.lower().removesuffix(".")
    if (_HOST.fullmatch(host) is None or len(host) > _LONGEST_HOST) and not _is_address(host):
        raise SetupError(
            f"{_PREFIX}TRUSTED_HOSTS: {entry!r} is not a host name. Write names with blanks between them, such as "
            "'mq.example.com routes.example.com': no port, no scheme, no comma, no wildcard, and a name in another "
            "script in its form xn--."
        )
    return host


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _switch(environ: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    text = environ.get(_PREFIX + name, "")
    if not text:
        return default
    if text.lower() not in _SWITCH:
        raise SetupError(f"{_PREFIX}{name} is {text!r}: expected true or false.")
    return _SWITCH[text.lower()]


def read_sites(path: Path) -> tuple[Site, ...]:
    """Read the file of other routelakes that the console offers, in its order.

    Each line is ``NAME URL``. Blank lines and lines that begin with ``#`` are ignored::

        production  https://ns1.example:8080
        staging     http://10.0.0.7:8080/

    Raises:
        SetupError: The file cannot be read, or a line is not a name and an address.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"the console's list of routelakes, {path}, cannot be read: {error}") from error
    found: dict[str, Site] = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{path}, line {number}"
        if len(words) != 2 or not _is_link(words[1]):
            raise SetupError(f"{where}: expected NAME http://HOST:PORT.")
        if words[0] in found:
            raise SetupError(f"{where}: {words[0]!r} has two lines. Remove one.")
        found[words[0]] = Site(words[0], words[1].rstrip("/"))
    if len(found) > _MOST_SITES:
        raise SetupError(f"{path} names {len(found)} routelakes: {_MOST_SITES} are the most.")
    return tuple(found.values())


def _is_link(url: str) -> bool:
    """Return whether a link may lead to an address. Only http and https are allowed: no script hides in a link."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
