# SPDX-License-Identifier: Apache-2.0
"""The servers that are compared, behind one face: a remoting port, processes, and a switch to freeze them.

Only one of two compared servers runs at a time: the other is stopped by SIGSTOP, so that neither pays for the other's
timers, garbage collector or Spark. Brokers register with a timeout of an hour, so that a freeze costs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from dev.benchmarks.harness.machine import tree
from dev.peers.built_program import NoProgramError
from dev.peers.java_tls import Files, java_tls
from dev.peers.kafka import Kafka
from dev.peers.rocketmq import StockNameServer
from dev.peers.routelake import ROOT, Routelake
from dev.peers.rust_nameserver import RustNameServer
from dev.peers.stopped import stopped

NAMESERVER = "NameServer"
RUST = "rocketmq-namesrv (Rust)"
ROUTELAKE = "routelake"


class Server(Protocol):
    """A running server."""

    name: str
    port: int

    @property
    def pids(self) -> Sequence[int]:
        """Roots of all its process trees."""

    @property
    def serving_pids(self) -> Sequence[int]:
        """Roots of the processes that answer requests."""


class NameServer:
    """Apache RocketMQ's NameServer 5.5.0 with the JVM options of its own start script."""

    name = NAMESERVER

    def __init__(self, stock: StockNameServer) -> None:
        self.port = stock.port
        self._stock = stock

    @property
    def pids(self) -> Sequence[int]:
        """The JVM."""
        return (self._stock.process.pid,)

    @property
    def serving_pids(self) -> Sequence[int]:
        """The JVM."""
        return self.pids


class RoutelakeServer:
    """routelake, with its HTTP port."""

    def __init__(self, process: Routelake, command: str, name: str = ROUTELAKE) -> None:
        self.name = name
        self.process = process
        self.port = process.remoting_port
        self.http_port = process.http_port
        self._command = command

    @property
    def pids(self) -> Sequence[int]:
        """The supervisor with gateway and fold below it, or the one part."""
        assert self.process.process is not None
        return (self.process.process.pid,)

    @property
    def serving_pids(self) -> Sequence[int]:
        """The gateways, as many as it has workers."""
        return self.process.children("gateway") if self._command == "serve" else self.pids


@contextmanager
def nameserver(tls: Files | None = None) -> Iterator[NameServer]:
    """Apache RocketMQ's NameServer; with a certificate and its key over TLS, too."""
    options = () if tls is None else java_tls(tls[0].parent / "tls.properties", server=tls)
    with StockNameServer(production=True, java_options=options) as stock:
        yield NameServer(stock)


class RustServer:
    """The NameServer of RocketMQ-Rust 1.0.0, an optimized build with its defaults."""

    name = RUST

    def __init__(self, rust: RustNameServer) -> None:
        self.port = rust.port
        self._rust = rust

    @property
    def pids(self) -> Sequence[int]:
        """Its only process."""
        assert self._rust.process is not None
        return (self._rust.process.pid,)

    @property
    def serving_pids(self) -> Sequence[int]:
        """Its only process."""
        return self.pids


@contextmanager
def rust_nameserver(say: Callable[[str], None]) -> Iterator[RustServer | None]:
    """RocketMQ-Rust's NameServer; None, and the reason to ``say``, if it cannot be built here."""
    try:
        rust = RustNameServer()
    except NoProgramError as error:
        say(f"  without {RUST}: {error}")
        yield None
        return
    with rust:
        yield RustServer(rust)


@contextmanager
def routelake(
    data_dir: Path, options: Sequence[str] = (), command: str = "serve", name: str = ROUTELAKE, root: Path = ROOT
) -> Iterator[RoutelakeServer]:
    """routelake: gateway and fold (`serve`), or one of them; this one's code, or a copy's."""
    process = Routelake(data_dir, command, tuple(options), root=root)
    try:
        process.start(180.0 if command == "serve" else None)
        yield RoutelakeServer(process, command, name)
        process.stop()
    finally:
        process.kill()


@contextmanager
def kafka_log(name: str = "routelake-bench") -> Iterator[str]:
    """Apache Kafka in KRaft mode; gives the URL of an event log in it."""
    with Kafka() as kafka:
        yield f"kafka://{kafka.address}/{name}"


@contextmanager
def only(server: Server, among: Sequence[Server]) -> Iterator[None]:
    """Freeze the others."""
    with stopped({pid for other in among if other is not server for pid in tree(*other.pids)}):
        yield


def entered(stack: ExitStack, *servers: AbstractContextManager[Server | None]) -> list[Server]:
    """Start servers that end with the stack; those that cannot be had are left out."""
    return [found for server in servers if (found := stack.enter_context(server)) is not None]
