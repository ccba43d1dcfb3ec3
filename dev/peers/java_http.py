# SPDX-License-Identifier: Apache-2.0
"""Java's own HTTP client in a JVM of its own: with each request that has a body it asks for an upgrade to h2c."""

from __future__ import annotations

from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway

from dev.peers.java import QUICK_JVM, JavaProcess, free_port, port_answers
from dev.peers.java_client import leave
from dev.peers.peer import Served
from runtime.jars import pyspark_jars

_OPENS: Final = ("--add-opens=java.net.http/jdk.internal.net.http=ALL-UNNAMED",)
"""Py4J calls methods of the classes behind the public ones."""


class JavaHttpClient(Served):
    """One java.net.http.HttpClient, driven through Py4J, which PySpark brings along; `with` starts and ends it."""

    def __init__(self) -> None:
        super().__init__("java-http")
        home = pyspark_jars()
        assert home is not None
        (py4j,) = home.glob("py4j-*.jar")
        self._port = free_port()
        self._gateway: JavaGateway | None = None
        self._client: Any = None
        self._process = JavaProcess(
            "py4j.GatewayServer",
            [str(self._port)],
            str(py4j),
            self.home,
            jvm_args=(*QUICK_JVM, *_OPENS),
            ready=lambda process: port_answers(self._port),
        )

    def start(self) -> None:
        """Start the JVM and make a client that prefers HTTP/2, as Java's does unless told otherwise."""
        self._process.start()
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=self._port, auto_convert=True))
        self._client = self._gateway.jvm.java.net.http.HttpClient.newHttpClient()

    def kill(self) -> None:
        """SIGKILL."""
        leave(self._gateway)
        self._process.sigkill()

    def ask(self, method: str, url: str, body: str = "") -> tuple[int, str]:
        """Status and body of the answer to a request; one with a body says that it is JSON."""
        assert self._gateway is not None
        http = self._gateway.jvm.java.net.http
        publishers = http.HttpRequest.BodyPublishers
        builder = http.HttpRequest.newBuilder().uri(self._gateway.jvm.java.net.URI.create(url))
        builder.header("Content-Type", "application/json")
        builder.method(method, publishers.ofString(body) if body else publishers.noBody())
        answer = self._client.send(builder.build(), http.HttpResponse.BodyHandlers.ofString())
        return int(answer.statusCode()), str(answer.body())
