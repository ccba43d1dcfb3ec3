# SPDX-License-Identifier: Apache-2.0
"""Real reverse proxies before a gateway: nginx and HAProxy, Debian's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.peers.java import free_port, port_answers, wait_until

_NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
{main}
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; {server} }}
}}
"""
_HAPROXY = """
global
    maxconn 64
    stats timeout 5s
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend front
    bind 127.0.0.1:{port}
    default_backend gateway
backend gateway
{backend}
{server}
"""


@contextmanager
def nginx(folder: Path, server: str, *, main: str = "") -> Iterator[str]:
    """Run an nginx; yield its address.

    Args:
        folder: Folder for its files.
        server: Lines in its block `server`.
        main: Lines outside of its block `http`.
    """
    port = free_port()
    folder.chmod(0o777)  # workers of another user write there
    config = folder / f"nginx-{port}.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, server=server, main=main))
    with _running("nginx", ["-e", str(folder / "nginx.log"), "-p", str(folder), "-c", str(config)], port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def haproxy(folder: Path, upstream: int, backend: str = "", *, server: str | None = None) -> Iterator[str]:
    """Run an HAProxy that adds no header field unless told to; yield its address.

    Args:
        folder: Folder for its files.
        upstream: The port of the gateway.
        backend: Further lines in its section `backend`.
        server: The line of the gateway; None: a plain one.
    """
    port = free_port()
    config = folder / f"haproxy-{port}.cfg"
    line = f"    server one 127.0.0.1:{upstream}" if server is None else server
    config.write_text(_HAPROXY.format(port=port, backend=backend, server=line))
    with _running("haproxy", ["-db", "-f", str(config)], port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(name: str, arguments: list[str], port: int) -> Iterator[None]:
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip(f"no {name}: apt-get install {name}")
    with subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: process.poll() is not None or port_answers(port), 60, f"{name} listens")
            assert process.poll() is None, process.stderr and process.stderr.read()
            yield
        finally:
            process.terminate()
            process.wait(30)
