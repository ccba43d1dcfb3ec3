# SPDX-License-Identifier: Apache-2.0
"""nginx and HAProxy before a gateway: one process, and a port for each of its set-ups. Without them, tests are skipped."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from dev.peers.java import free_port, port_answers
from dev.peers.peer import Program

MARK: Final = b"x-proxied"
"""A header that the set-ups below add to each request that the proxy has read as one."""

_NGINX: Final = """\
daemon off;
pid nginx.pid;
error_log error.log warn;
{main}
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  {http}
{servers}}}
"""
_NGINX_UPSTREAM: Final = """\
map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
  upstream localhost {{ server 127.0.0.1:{port}; keepalive 4; }}"""
_NGINX_SETUPS: Final[Mapping[str, str]] = {
    "default": "",
    "keep-alive": 'proxy_http_version 1.1; proxy_set_header Connection "";',
    "websocket": (
        'proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";'
    ),
    "websocket by map": (
        "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; "
        "proxy_set_header Connection $connection_upgrade;"
    ),
    "unbuffered": (
        'proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade"; '
        "proxy_request_buffering off; proxy_buffering off;"
    ),
}
_HAPROXY: Final = """\
global
  stats socket {home}/stats level admin
defaults
  mode http
  timeout connect 10s
  timeout client 60s
  timeout server 60s
"""
_HAPROXY_SETUPS: Final[Mapping[str, str]] = {"default": "", "reuse": "http-reuse always"}
_HAPROXY_CHECKS: Final[Mapping[str, str]] = {
    "check": "option httpchk",
    "check by HEAD": "option httpchk\n  http-check send meth HEAD uri / ver HTTP/1.1 hdr Host localhost",
    "check of health": "option httpchk\n  http-check send meth HEAD uri /healthz",
}
SETUPS: Final = (*(("nginx", name) for name in _NGINX_SETUPS), *(("haproxy", name) for name in _HAPROXY_SETUPS))
"""Program and name of each set-up that a client may be behind."""


class Proxy(Program):
    """A reverse proxy; `with` starts and ends it.

    Args:
        name: Name of its program.
        setups: Lines of each set-up, by name.

    Attributes:
        ports: Port of each set-up.
    """

    def __init__(self, name: str, setups: Mapping[str, str]) -> None:
        found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")
        if found is None:
            pytest.skip(f"no {name}: apt-get install nginx-light haproxy")
        super().__init__(Path(found))
        self.home.chmod(0o777)  # nginx has workers of another user, which write there
        self.config = self.home / f"{name}.conf"
        self.ports = {setup: free_port() for setup in setups}

    @property
    def url(self) -> str:
        """URL of the first set-up."""
        return f"http://127.0.0.1:{next(iter(self.ports.values()))}"

    def answers(self) -> bool:
        """Return whether it accepts connections at every port."""
        return all(map(port_answers, self.ports.values()))

    def kill(self) -> None:
        """SIGTERM, which nginx passes on to its workers."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


class Nginx(Proxy):
    """nginx.

    Args:
        servers: Lines of each block `server`, by name.
        http: Lines of the block `http`.
        main: Lines outside of it.
    """

    def __init__(self, servers: Mapping[str, str], *, http: str = "", main: str = "") -> None:
        super().__init__("nginx", servers)
        blocks = (f"  server {{ listen 127.0.0.1:{self.ports[name]}; {lines} }}\n" for name, lines in servers.items())
        self.config.write_text(_NGINX.format(main=main, http=http, servers="".join(blocks)))

    def arguments(self) -> Sequence[str]:
        """All of its files are in its home."""
        return "-p", str(self.home), "-c", str(self.config), "-e", "error.log"


class HAProxy(Proxy):
    """HAProxy, which adds no header unless told to.

    Args:
        listens: Lines of each section `listen`, by name.
    """

    def __init__(self, listens: Mapping[str, str]) -> None:
        super().__init__("haproxy", listens)
        sections = (
            f"listen {name.replace(' ', '-')}\n  bind 127.0.0.1:{self.ports[name]}\n  {lines}\n"
            for name, lines in listens.items()
        )
        self.config.write_text(_HAPROXY.format(home=self.home) + "".join(sections))

    def arguments(self) -> Sequence[str]:
        """In the foreground."""
        return "-db", "-f", str(self.config)

    def answers(self) -> bool:
        """Return whether its ports accept connections, and are its own: the socket of its statistics is there."""
        return (self.home / "stats").exists() and super().answers()

    def states(self) -> dict[str, tuple[str, str]]:
        """Return, for each set-up, whether the gateway is UP, and the result of the last check (L7OK)."""
        with socket.socket(socket.AF_UNIX) as stats:
            stats.connect(str(self.home / "stats"))
            stats.sendall(b"show stat\n")
            text = b"".join(iter(lambda: stats.recv(65536), b"")).decode()
        lines = [line.split(",") for line in text.splitlines() if line]
        at = {name: place for place, name in enumerate(lines[0])}
        return {
            line[0].replace("-", " "): (line[at["status"]], line[at["check_status"]])
            for line in lines[1:]
            if line[1] == "gateway"
        }


def with_setups(program: str, port: int) -> Proxy:
    """nginx or HAProxy before a gateway at a port: as it is by default, with kept connections, with websocket templates."""
    if program == "haproxy":
        marked = f"  http-request set-header {MARK.decode()} haproxy\n  server gateway 127.0.0.1:{port}"
        return HAProxy({name: f"{lines}\n{marked}" for name, lines in _HAPROXY_SETUPS.items()})
    to = f"proxy_pass http://localhost; proxy_set_header {MARK.decode()} nginx;"
    return Nginx(
        {name: f"location / {{ {to} {lines} }}" for name, lines in _NGINX_SETUPS.items()},
        http=_NGINX_UPSTREAM.format(port=port),
        main="master_process off;",
    )


def checking(port: int) -> HAProxy:
    """HAProxy that checks the health of a gateway at a port in each way that it has."""
    server = f"server gateway 127.0.0.1:{port} check inter 100ms fall 2 rise 1"
    return HAProxy({name: f"{lines}\n  {server}" for name, lines in _HAPROXY_CHECKS.items()})
