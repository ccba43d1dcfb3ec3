# SPDX-License-Identifier: Apache-2.0
"""nginx and HAProxy before a gateway, one process with the set-ups that people have, a port for each."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from dev.peers.java import free_port, port_answers, wait_until
from dev.peers.peer import Served

MARK: Final = b"x-proxied"
"""A header that the proxy adds to each request that it has read as one."""
_READY_S: Final = 30.0

_NGINX: Final = """\
daemon off;
master_process off;
pid nginx.pid;
error_log error.log warn;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
  upstream localhost {{ server 127.0.0.1:{upstream}; keepalive 4; }}
{servers}}}
"""
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
  timeout connect 5s
  timeout client 20s
  timeout server 20s
"""
HAPROXY_SETUPS: Final[Mapping[str, str]] = {"default": "", "reuse": "http-reuse always"}
HAPROXY_CHECKS: Final[Mapping[str, str]] = {
    "check": "option httpchk",
    "check by HEAD": "option httpchk\n  http-check send meth HEAD uri / ver HTTP/1.1 hdr Host localhost",
    "check of health": "option httpchk\n  http-check send meth HEAD uri /healthz",
}


class Proxy(Served):
    """A reverse proxy; `with` starts and ends it.

    Attributes:
        ports: Ports of its set-ups.
    """

    def __init__(self, program: str, setups: Mapping[str, str]) -> None:
        found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
        if found is None:
            raise FileNotFoundError(f"no {program} on the PATH")
        super().__init__(program)
        self.ports = {name: free_port() for name in setups}
        self._arguments: Sequence[str] = ()
        self._program = found
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens on every port."""
        with (self.home / "output").open("wb") as output:
            self._process = process = subprocess.Popen(
                [self._program, *self._arguments],
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

        def ready() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{self._program} ended: {(self.home / 'output').read_text()[-1000:]}")
            return all(map(port_answers, self.ports.values()))

        wait_until(ready, _READY_S, f"{self._program} to listen")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Nginx(Proxy):
    """nginx: as it is by default (HTTP/1.0 to the gateway), with kept connections, and with the websocket templates.

    Args:
        upstream: The gateway's port.

    Raises:
        FileNotFoundError: it is not installed.
    """

    def __init__(self, upstream: int) -> None:
        super().__init__("nginx", _NGINX_SETUPS)
        servers = "".join(
            f"  server {{ listen 127.0.0.1:{self.ports[name]}; location / {{ proxy_pass http://localhost; "
            f"proxy_set_header {MARK.decode()} nginx; {lines} }} }}\n"
            for name, lines in _NGINX_SETUPS.items()
        )
        config = self.home / "nginx.conf"
        config.write_text(_NGINX.format(upstream=upstream, servers=servers))
        self._arguments = ("-p", str(self.home), "-c", str(config), "-e", "error.log")


class HAProxy(Proxy):
    """HAProxy: as it is by default and with shared connections to the gateway, or with health checks.

    Args:
        upstream: The gateway's port.
        setups: Name and lines of each set-up; with a health check where the lines have one.

    Raises:
        FileNotFoundError: it is not installed.
    """

    def __init__(self, upstream: int, setups: Mapping[str, str] = HAPROXY_SETUPS) -> None:
        super().__init__("haproxy", setups)
        text = _HAPROXY.format(home=self.home)
        for name, lines in setups.items():
            checks = " check inter 100ms fall 2 rise 1" if "httpchk" in lines else ""
            text += (
                f"listen {name.replace(' ', '-')}\n  bind 127.0.0.1:{self.ports[name]}\n  {lines}\n"
                f"  http-request set-header {MARK.decode()} haproxy\n"
                f"  server gateway 127.0.0.1:{upstream}{checks}\n"
            )
        config = self.home / "haproxy.cfg"
        config.write_text(text)
        self._arguments = ("-db", "-f", str(config))

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
