# SPDX-License-Identifier: Apache-2.0
"""`--master k8s://...` as far as it goes without Kubernetes: what an API server is asked for. Nothing runs there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from dev.peers.java import wait_until
from dev.peers.routelake import Routelake

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(600)]

CLAIM: Final = "spark.kubernetes.executor.volumes.persistentVolumeClaim.shared"


class ApiServer(ThreadingHTTPServer):
    """Lists nothing, takes everything, and remembers it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.made: list[tuple[str, dict[str, Any]]] = []
        """Kind and content of what was asked to be made."""
        self.over = threading.Event()

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [made for found, made in list(self.made) if found == kind]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if "watch=true" in self.path:  # nothing ever happens
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.server.over.wait(120)
            self.close_connection = True
            return
        kind = self.path.partition("?")[0].rsplit("/", 1)[-1].removesuffix("s").capitalize()
        self._answer(
            200, {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.made.append((body["kind"], body))
        self._answer(201, body)

    do_PUT = do_PATCH = do_POST

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield server
        server.over.set()
        server.shutdown()


def test_executors_are_asked_for(api: ApiServer, tmp_path: Path) -> None:
    properties = tmp_path / "spark.properties"
    properties.write_text(
        "spark.kubernetes.container.image registry/routelake-executor:1\n"
        "spark.kubernetes.namespace routes\n"
        "spark.executor.instances 2\n"
        f"spark.pyspark.python /opt/routelake/bin/python\n{CLAIM}.mount.path {tmp_path}\n{CLAIM}.options.claimName routes\n"
    )
    master = f"k8s://http://127.0.0.1:{api.server_port}"
    fold = Routelake(tmp_path / "data", "fold", ("--master", master, "--spark-config", str(properties)))
    try:
        fold.start(None)
        wait_until(lambda: len(api.of_kind("Pod")) == 2, 300, "two pods to be asked for")
    finally:
        fold.kill()
        print(fold.log_tail(), [kind for kind, _ in api.made])
    for pod in api.of_kind("Pod"):
        (container,) = pod["spec"]["containers"]
        assert container["image"] == "registry/routelake-executor:1"
        assert container["args"] == ["executor"]
        variables = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert "@127.0.0.1:" in variables["SPARK_DRIVER_URL"]
        assert variables["_SPARK_AUTH_SECRET"], "Spark makes a secret for its pods"
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        claims = {
            volume["name"]: volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["spec"]["volumes"]
            if "persistentVolumeClaim" in volume
        }
        assert claims[mounts[str(tmp_path)]] == "routes"
