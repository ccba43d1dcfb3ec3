# SPDX-License-Identifier: Apache-2.0
"""Checks of the options of `serve`, `gateway` and `fold`, before any file is created or any child is started.

The checks do not write, do not connect, and import only fast modules. Every error is a SetupError with the option.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from api.http.naming_rules import is_loopback
from cli.data_options import LakePlace
from cli.options import owner_of
from clients.addresses import MAX_PORT, is_http, what_is_odd
from eventlog.kafka.access.settings import read_access
from eventlog.urls import URL_FORMS, parse_url, sqlite_path
from remoting.errors import why_not_listening
from schemas.errors import SetupError

if TYPE_CHECKING:
    from api.http.settings import HttpSettings

LEAST_DRIVER_MEMORY_MIB: Final = 512
"""Minimum heap of Spark's driver, in MiB. Spark itself refuses less than 450 MiB."""

_ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 (for an address without host)
_EVERY_INTERFACE: Final = (_ANY_IPV4, "::")
_LISTEN_HOST: Final = re.compile(r"[^\s/@?#:;,\[\]]+|[0-9A-Fa-f:.]+(%\w+)?")
_SQLITE_HEADER: Final = b"SQLite format 3\0"
_UNITS_MIB: Final = {"m": 1, "g": 1024, "t": 1024 * 1024}


class Listen(NamedTuple):
    """Address to listen on. ``host`` is without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_everywhere(self) -> bool:
        """True if the address is for all interfaces of the machine."""
        return self.host in _EVERY_INTERFACE

    @property
    def local(self) -> Listen:
        """Address at which processes on this machine reach the listener."""
        return Listen({_ANY_IPV4: "127.0.0.1", "::": "::1"}.get(self.host, self.host), self.port)


def listen_address(text: str, option: str, default_port: int) -> Listen:
    """Parse an address to listen on: HOST:PORT, HOST, :PORT or [::]:PORT. For --http, http:// may come first.

    Args:
        text: Value of the option.
        option: Name of the option.
        default_port: Port for a HOST without port.

    Raises:
        SetupError: The text has another form.
    """
    given = text.strip()
    if option == "--http" and given.lower().startswith("http://"):
        given = given[len("http://") :]
    given = given.removesuffix("/")
    host, colon, port = given.rpartition(":")
    if not colon or given.endswith("]"):
        host, port = given, str(default_port)
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") == host.endswith("]") else ""
    shape = f"{option} {text!r}: expected HOST:PORT, for example 127.0.0.1:{default_port}"
    odd = None if is_http(given) else what_is_odd(given)
    if odd is not None:
        raise SetupError(f"{shape}; {odd}.")
    if is_http(given):
        raise SetupError(f"{shape}, without a scheme.")
    if bare.count(":") and not host.startswith("["):
        raise SetupError(f"{shape}. Write an IPv6 address in brackets, [::1]:{default_port}.")
    if not port.isascii() or not port.isdigit() or int(port) > MAX_PORT or (host and not colon and host.isdigit()):
        raise SetupError(f"{shape}.")
    if (host and not bare) or (bare and _LISTEN_HOST.fullmatch(bare) is None) or not given:
        raise SetupError(f"{shape}.")
    return Listen(bare or _ANY_IPV4, int(port))


def check_listening(http: Listen, remoting: Listen, *, supervised: bool) -> None:
    """Make sure that both addresses can be listened on.

    Args:
        http: Address of --http.
        remoting: Address of --remoting.
        supervised: Whether child processes listen there. Then port 0 is refused, because the chosen port would be
            unknown.

    Raises:
        SetupError: The addresses are equal, in use, or not addresses of this machine.
    """
    overlap = http.host == remoting.host or http.is_everywhere or remoting.is_everywhere
    if http.port == remoting.port and overlap and http.port:
        raise SetupError(
            f"--http {http} and --remoting {remoting} use the same port. Set another port for one of them."
        )
    both = (("--remoting", remoting), ("--http", http))
    for option, listen in both:
        if supervised and not listen.port:
            raise SetupError(f"{option} {listen}: port 0 is not supported here. Set a fixed port.")
    for option, listen in both:
        check_free(listen, option)


def check_free(listen: Listen, option: str) -> None:
    """Make sure that an address can be listened on. Raises SetupError."""
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise SetupError(f"{option} {listen}: {listen.host} cannot be resolved ({error.strerror}).") from error
    failures = [failure for info in found if (failure := _bind_failure(info[0], info[4])) is not None]
    in_use = [failure for failure in failures if failure.errno in (errno.EADDRINUSE, errno.EACCES)]
    if in_use or len(failures) == len(found):
        why = (in_use or failures)[0]
        raise SetupError(f"{option} {listen} cannot be listened on: {why_not_listening(why)}.")


def _bind_failure(family: int, address: tuple[Any, ...]) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


def exposure(http: Listen, remoting: Listen) -> str | None:
    """Return a warning if an address is for all interfaces of this machine, otherwise None."""
    what = [f"NameServer on {remoting}"] * remoting.is_everywhere + [f"HTTP on {http}"] * http.is_everywhere
    if not what:
        return None
    risk = "every client that reaches it can change routes, as with RocketMQ's NameServer"
    if not remoting.is_everywhere:
        risk = "every client that reaches it can read routes (writes need a token, docs/reference/http-api.md)"
    return f"{' and '.join(what)} listens on every interface; {risk}"


def check_exposed(
    http: Listen, remoting: Listen, *, remoting_asks: bool, http_asks: bool, insecure: bool, unenforced: str = ""
) -> None:
    """Refuse to listen on non-loopback addresses without authentication, unless --insecure is set.

    Args:
        http: Address of --http.
        remoting: Address of --remoting.
        remoting_asks: Whether changes over remoting need an account, or all connections a client certificate.
        http_asks: Whether changes over HTTP need an account, a token or a client certificate.
        insecure: Whether --insecure is set.
        unenforced: The value of --auth-mode, if accounts are set and the mode refuses nothing.

    Raises:
        SetupError: An address can be reached from other machines without authentication.
    """
    if insecure:
        return
    found = [(remoting, "--remoting", "change routes")] if not remoting_asks else []
    found += [(http, "--http", "read them")] if not http_asks else []
    how = (
        f"--auth-mode {unenforced} refuses nothing. Set --auth-mode enforce-writes or enforce"
        if unenforced
        else "Set accounts with --auth FILE (docs/how-to/operate/accounts.md), or require client certificates "
        "(--tls-mode enforcing --tls-client-ca FILE)"
    )
    for listen, option, what in found:
        if is_beyond(listen):
            raise SetupError(
                f"{option} {listen} can be reached from other machines, and every client there can {what}. {how}. "
                "If the network is trusted, add --insecure."
            )


def check_proxied(http: HttpSettings, *, asks: bool) -> None:
    """Refuse to run behind a proxy if writes need no authentication.

    Args:
        http: Settings of the HTTP API.
        asks: Whether changes need an account.

    Raises:
        SetupError: Trusted hosts are set, but neither tokens nor accounts.
    """
    if http.trusted_hosts and not (asks or http.tokens or http.anonymous_writes):
        raise SetupError(
            "ROUTELAKE_HTTP_TRUSTED_HOSTS is set, so the gateway is behind a proxy and no write counts as local. "
            "Set tokens with ROUTELAKE_HTTP_TOKENS, or accounts with --auth FILE "
            "(docs/reference/http-api.md#behind-a-proxy)."
        )


def is_beyond(listen: Listen) -> bool:
    """Return True if other machines could reach an address."""
    if is_loopback(listen.host):
        return False
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return True
    return not all(is_loopback(str(info[4][0])) for info in found)


def check_log(url: str, data_dir: Path) -> None:
    """Refuse an event log that cannot be opened, as far as this is visible without opening it.

    Args:
        url: Value of --event-log, or empty for SQLite in the data directory.
        data_dir: Data directory. It may not exist yet.

    Raises:
        SetupError: The URL has an unknown form, or the folder is missing or not writable. Or the file is not a SQLite
            database, or the file of --event-log-config cannot be used.
    """
    if not url:
        url = f"sqlite://{data_dir.absolute()}/events.db"
    if url.startswith("kafka:"):
        access = read_access(parse_url(url).config)
        if access.protocol.encrypts:
            from eventlog.kafka.access.tls import client_context

            client_context(access.tls, access.source)
    elif url.startswith("sqlite:"):
        _check_sqlite(sqlite_path(url), data_dir.absolute())
    else:
        raise SetupError(f"--event-log {url!r} is not an event log. Use {URL_FORMS}.")


def _check_sqlite(path: Path, data_dir: Path) -> None:
    folder = path.parent
    try:
        if path.is_dir():
            raise SetupError(f"--event-log {path} is a folder. Name a file in it.")
        if not folder.is_dir() and folder != data_dir:
            raise SetupError(
                f"--event-log {path}: the folder {folder} does not exist. Create it, or name another path."
            )
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise SetupError(
                f"--event-log {path}: this user may not write to {folder}. Change its owner, or name another path."
            )
        if path.exists():
            with path.open("rb") as file:
                header = file.read(len(_SQLITE_HEADER))
            if header and header != _SQLITE_HEADER:
                raise SetupError(
                    f"--event-log {path} is not a SQLite database. Name another path, or move the file away."
                )
    except OSError as error:
        raise SetupError(f"--event-log {path} cannot be read: {error.strerror}.") from error


def check_data_dir(data_dir: Path) -> None:
    """Refuse a data directory that can be neither written nor created.

    Raises:
        SetupError: The data directory can be neither written nor created.
    """
    check_folder(data_dir, "--data-dir", "the data directory ")


def check_folder(folder: Path, option: str, what: str = "") -> None:
    """Refuse a folder that can be neither written nor created.

    Args:
        folder: Path of the folder.
        option: Option that sets the folder.
        what: Name of the folder for the message, with a space after it.

    Raises:
        SetupError: The folder can be neither written nor created.
    """
    place = folder.absolute()
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    refused = f"cannot write to {what}{folder}: {place}"
    if not place.is_dir():
        raise SetupError(f"{refused} is not a folder. Choose another {option}, or move that file away.")
    if os.access(place, os.W_OK | os.X_OK):
        return
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        raise SetupError(f"{refused} is on a read-only file system. Mount it for writing, or choose another {option}.")
    raise SetupError(
        f"{refused} belongs to {owner_of(place)}, and this user may not write to it. "
        f"Run this command as that user, or choose another {option}."
    )


def check_lake(place: LakePlace, *, fold: bool, standby: bool = False) -> None:
    """Refuse a lake of an unknown format. For a fold, also refuse a lake that another fold holds.

    For a lake at a URL, only the URL is checked. The store is asked later, at the first use.

    Raises:
        SetupError: The lake cannot be used.
    """
    if standby and not place.url:
        raise SetupError(
            "--standby waits for another fold of a lake at a URL. Set --lake URL (docs/how-to/operate/standby.md)."
        )
    if place.url:
        from lake.store import open_store

        open_store(place.url)
        return
    lake_dir = place.folder
    if not lake_dir.is_dir():
        return
    from lake.delta.ddl import check_format, is_locked, lock_lake

    check_format(lake_dir)
    if fold and is_locked(lake_dir):
        lock_lake(lake_dir).close()


def check_gateway(config: Path | None, environ: Mapping[str, str]) -> HttpSettings:
    """Check the configuration file and the variables of both listeners, and return the HTTP settings.

    Raises:
        SetupError: The file or a variable cannot be read.
    """
    from api.http.settings import from_environment
    from api.settings.namesrv import NamesrvProperties, read, remoting_settings

    remoting_settings(NamesrvProperties() if config is None else read(config))
    return from_environment(environ)


def check_driver_memory(text: str) -> None:
    """Refuse a heap size with which Spark's driver does not start. ``1g`` and ``1500m`` are accepted.

    Raises:
        SetupError: The text is not a size, or the heap is too small.
    """
    match = re.fullmatch(r"([0-9]{1,9})([mgt])", text.strip().lower(), re.ASCII)
    if match is None:
        raise SetupError(f"--driver-memory {text!r}: expected a number with a unit, for example 1g or 1500m.")
    if int(match[1]) * _UNITS_MIB[match[2]] < LEAST_DRIVER_MEMORY_MIB:
        raise SetupError(f"--driver-memory {text}: Spark does not start with less than {LEAST_DRIVER_MEMORY_MIB}m.")


def check_localhost() -> None:
    """Refuse a machine that cannot resolve the name on which Spark's Python driver listens.

    Raises:
        SetupError: The name cannot be resolved, as in a bare image without /etc/hosts.
    """
    try:
        socket.getaddrinfo("localhost", None, socket.AF_INET)
    except OSError as error:
        raise SetupError(
            f"Spark needs the name localhost, which cannot be resolved ({error.strerror}). "
            "Add the line '127.0.0.1 localhost' to /etc/hosts."
        ) from error


def check_user() -> None:
    """Refuse a user id without a name, with which Spark's JVM does not start.

    Raises:
        SetupError: The user id has no name. This happens if a platform chooses the user of a container.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        uid = os.geteuid()
        raise SetupError(
            f"the user id {uid} of this process has no user name, which Spark needs. Add the line "
            f"'routelake:x:{uid}:{os.getegid()}::/tmp:/bin/sh' to /etc/passwd, or run as a user that has an entry."
        ) from None


def check_shards(shards: int) -> None:
    """Refuse an unsupported number of shards.

    Raises:
        SetupError: The number is not supported.
    """
    from lake.write.shards import shard_keys

    try:
        shard_keys(shards)
    except SetupError as error:
        raise SetupError(str(error).replace(f"{shards} shards", f"--shards {shards}")) from None
