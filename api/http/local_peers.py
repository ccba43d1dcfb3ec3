# SPDX-License-Identifier: Apache-2.0
"""Check that the program at the other end of a loopback connection sends its own requests, and is no proxy.

An address alone does not show this: each request that a proxy on this machine passes on comes from 127.0.0.1. The
kernel knows more: which process has the other end, its user, and its other open sockets. A connection counts as local
only if its other end belongs to a process of the gateway's own user. The gateway must be able to see that process, and
the process must not accept connections itself. Proxies run as another user, run in another container, or have the
connection of their client open.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from api.http.naming_rules import is_loopback

Address = tuple[str, int]

_PROC: Final = Path("/proc")
_TABLES: Final = ("tcp", "tcp6")
_KEEP_S: Final = 5.0
"""Time for which a result is kept for a connection, in seconds. Its port is given to no other process so soon."""
_MOST_KEPT: Final = 4096
_ROW: Final = re.compile(
    rb"^ *\d+: (?P<local>[0-9A-F]+:[0-9A-F]{4}) (?P<remote>[0-9A-F]+:[0-9A-F]{4}) (?P<state>[0-9A-F]{2})"
    rb" \S+ \S+ \S+ +(?P<uid>\d+) +\d+ (?P<inode>\d+)",
    re.MULTILINE,
)
_LISTEN: Final = b"0A"
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")


class LocalPeers:
    """Look-up of processes on a thread of its own. Used on the event loop."""

    def __init__(self) -> None:
        """Start without any known connection."""
        self._thread = ThreadPoolExecutor(1, "local-peers")
        self._known: OrderedDict[tuple[Address, Address], tuple[float, str | None]] = OrderedDict()

    async def problem(self, client: Address, server: Address) -> str | None:
        """Return why the sender on a connection does not count as local. None if it does.

        Args:
            client: Host and port of the client, a loopback address.
            server: Host and port of the gateway.
        """
        now_s = time.monotonic()
        until_s, found = self._known.get((client, server), (0.0, None))
        if now_s < until_s:
            return found
        found = await asyncio.get_running_loop().run_in_executor(self._thread, sender_problem, client, server)
        self._known[client, server] = now_s + _KEEP_S, found
        while len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)
        return found


class _Row(NamedTuple):
    """A socket in the kernel's table. Addresses are as the table writes them."""

    local: bytes
    remote: bytes
    state: bytes
    uid: int
    inode: str


def sender_problem(client: Address, server: Address) -> str | None:
    """Do the work of `LocalPeers.problem` at once, on the caller's thread."""
    row = _find(client, server)
    if row is None or row.inode == "0":
        return "the program that sent it cannot be found on this machine"
    if row.uid != os.geteuid():
        return f"it was sent by a program of user {row.uid}, and the gateway runs as user {os.geteuid()}"
    for process in _own_processes():
        sockets = _sockets(process)
        if row.inode not in sockets:
            continue
        if process.name == str(os.getpid()) or not _takes_connections(sockets):
            return None
        return f"it was sent by process {process.name}, which takes connections itself and may pass on what others send"
    return "the program that sent it cannot be seen by the gateway, as in another container"


def _find(client: Address, server: Address) -> _Row | None:
    """Find the sender's end of a connection. With thousands of connections a table takes milliseconds."""
    for name, own, other in zip(_TABLES, _written(client), _written(server), strict=False):
        table = _read(name)
        at = table.find(b" %b %b " % (own, other)) if own and other else -1
        if at >= 0:
            return next(_rows(table, table.rfind(b"\n", 0, at) + 1), None)
    return None


def _read(name: str) -> bytes:
    try:
        return (_PROC / "self" / "net" / name).read_bytes()
    except OSError:
        return b""


def _rows(table: bytes, start: int = 0) -> Iterator[_Row]:
    for found in _ROW.finditer(table, start):
        local, remote, state, uid, inode = found.groups()
        yield _Row(local, remote, state, int(uid), inode.decode())


def _written(address: Address) -> tuple[bytes, bytes]:
    """Return an address as each of the kernel's tables may write it. IPv4 may be in both. Empty: not in that table."""
    host, port = address
    parsed = ipaddress.ip_address(host.partition("%")[0])
    found = parsed.ipv4_mapped or parsed if isinstance(parsed, ipaddress.IPv6Address) else parsed
    if isinstance(found, ipaddress.IPv6Address):
        return b"", b"%b:%04X" % (_words(found.packed), port)
    mapped = bytes(10) + b"\xff\xff" + found.packed
    return b"%b:%04X" % (_words(found.packed), port), b"%b:%04X" % (_words(mapped), port)


def _words(packed: bytes) -> bytes:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return b"".join(b"%08X" % int.from_bytes(word, sys.byteorder) for word in words)


def _own_processes() -> list[Path]:
    """Return the processes of the gateway's user, newest first: a sender is likely to be one of them."""
    found: list[Path] = []
    for process in _PROC.iterdir():
        try:
            if process.name.isdigit() and process.stat().st_uid == os.geteuid():
                found.append(process)
        except OSError:  # it has ended
            continue
    return sorted(found, key=lambda process: int(process.name), reverse=True)


def _sockets(process: Path) -> set[str]:
    """Return the inodes of a process's sockets. Empty if the gateway may not look into the process."""
    found: set[str] = set()
    folder = f"{process}/fd"
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 (a Path for each descriptor takes most of the time)
            with suppress(FileNotFoundError):  # it has just been closed
                if match := _SOCKET.fullmatch(os.readlink(f"{folder}/{name}")):  # noqa: PTH115
                    found.add(match[1])
    return found


def _takes_connections(sockets: set[str]) -> bool:
    """Return whether a process accepts connections from elsewhere.

    That is so if a socket came in through a listening port, or if a socket listens beyond this machine. A program may
    wait on a loopback address for programs of its own, such as a debugger. That alone does not make it a proxy.
    """
    if len(sockets) == 1:
        return False
    rows = [row for name in _TABLES for row in _rows(_read(name))]
    ports = {row.local[-4:] for row in rows if row.state == _LISTEN}
    for row in rows:
        if row.inode in sockets and row.local[-4:] in ports:
            is_listener = row.state == _LISTEN
            if not is_listener or not is_loopback(_host(row.local[:-5])):
                return True
    return False


def _host(written: bytes) -> str:
    """Inverse of `_written`, without the port."""
    words = [int(written[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(written), 8)]
    return str(ipaddress.ip_address(b"".join(words)))
