# SPDX-License-Identifier: Apache-2.0
"""A real routelake for tests and benchmarks: `serve` (or one of its parts) as its own process on free ports."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any

from dev.peers.java import free_port, port_answers, wait_until
from dev.peers.procfs import commands_of_children
from schemas.tables import FOLD_STATUS_FILE

ROOT = Path(__file__).resolve().parents[2]


class Routelake:
    """Context manager around one `routelake` process.

    Args:
        data_dir: its data directory.
        command: serve, gateway or fold.
        options: more command-line options.
        environment: variables on top of this process's own.
        root: where its code is.
        host: address that it listens at.
        through: a command that runs the command behind it, such as `nsenter`.
    """

    def __init__(
        self,
        data_dir: Path,
        command: str = "serve",
        options: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        root: Path = ROOT,
        host: str = "127.0.0.1",
        through: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.host, self._through = host, through
        self.http_port, self.remoting_port = free_port(), free_port()
        self._command = command
        self._options = options
        self._environment = environment or {}
        self._root = root
        self.log_path = data_dir.parent / f"{data_dir.name}-{command}-{self.remoting_port}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def namesrv_addr(self) -> str:
        """For namesrvAddr."""
        return f"{self.host}:{self.remoting_port}"

    @property
    def lake_dir(self) -> Path:
        """Folder of the tables."""
        return self.data_dir / "lake"

    def start(self, wait_ready_s: float | None = 180.0) -> Routelake:
        """Start it and, unless None, wait until it says it is ready."""
        ports = (
            []
            if self._command == "fold"
            else ["--http", f"{self.host}:{self.http_port}", "--remoting", f"{self.host}:{self.remoting_port}"]
        )
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *self._through, sys.executable, "-m", "cli.main", self._command,
                    "--data-dir", str(self.data_dir), *ports, *self._options,
                ],
                cwd=self._root,
                env={**os.environ, "PYTHONPATH": str(self._root), **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )  # fmt: skip
        if wait_ready_s is not None:
            self.wait_ready(wait_ready_s)
        return self

    def is_whole(self) -> bool:
        """Return whether /readyz reports no problem, nor one of the fold, without which a gateway is ready, too."""
        try:
            return all(check["ok"] for check in self.get("/readyz")["checks"].values())
        except (OSError, HTTPException):  # not there, or 503, or killed in the middle of its answer
            return False

    def wait_ready(self, timeout_s: float = 180.0) -> None:
        """Wait until it `is_whole`."""

        def ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"routelake ended with {self.process.returncode}:\n{self.log_tail()}")
            return self.is_whole()

        try:
            wait_until(ready, timeout_s, "routelake to be ready", 0.1)
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{self.log_tail()}") from None

    def wait_listening(self, timeout_s: float = 60.0) -> None:
        """Wait until both of a gateway's ports take connections: one is opened after the other."""

        def listening() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log_tail()
            return port_answers(self.remoting_port, self.host) and port_answers(self.http_port, self.host)

        wait_until(listening, timeout_s, "the gateway to listen")

    def get(self, path: str) -> Any:  # noqa: ANN401 (JSON)
        """GET over HTTP, parsed JSON. Raises urllib.error.HTTPError; HTTPException from one killed as it answers."""
        return self.send("GET", path)

    def send(self, method: str, path: str, body: object = None, timeout_s: float = 30.0) -> Any:  # noqa: ANN401 (JSON)
        """A request, with JSON unless ``body`` is None; its answer, parsed. Raises as `get`; a note has the body."""
        request = urllib.request.Request(
            f"http://{self.host}:{self.http_port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"content-type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 (the scheme stands above)
                return json.load(answer)
        except urllib.error.HTTPError as error:
            body = error.read()
            again = urllib.error.HTTPError(error.url, error.code, error.msg, error.headers, io.BytesIO(body))
            again.add_note(body.decode(errors="replace"))
            raise again from None

    def folded_offset(self) -> int:
        """The log offset up to which the fold says that it has folded; -1 while it has said nothing."""
        try:
            return int(json.loads((self.lake_dir / FOLD_STATUS_FILE).read_text())["logOffset"])
        except (OSError, ValueError):
            return -1

    def log_tail(self, lines: int = 60) -> str:
        """The end of what it printed."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def child(self, name: str) -> int:
        """Process id of a supervised child: gateway or fold."""
        found = self.children(name)
        if not found:
            raise LookupError(f"no {name} is running")
        return found[0]

    def children(self, name: str) -> list[int]:
        """Process ids of all such children: with workers there are several gateways."""
        assert self.process is not None
        commands = commands_of_children(self.process.pid)
        return [pid for pid, command in commands.items() if name in command]

    def log_worker_pid(self) -> int:
        """Process id of the one that writes the event log for the gateway.

        Raises:
            LookupError: No such child runs at the moment.
        """
        for pid, command in commands_of_children(self.child("gateway")).items():
            if "eventlog.worker" in command[-1]:
                return pid
        raise LookupError("no process writes the event log")

    def kill_child(self, name: str) -> None:
        """SIGKILL one child; the supervisor will start it again."""
        os.kill(self.child(name), signal.SIGKILL)

    def stop(self, timeout_s: float = 40.0) -> int:
        """SIGTERM; its exit code.

        Raises:
            TimeoutError: The process does not end.
            AssertionError: A gateway has found differences between its live view and the tables.
        """
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise TimeoutError(f"routelake did not stop within {timeout_s} s:\n{self.log_tail()}") from None
        # With a lake in an object store they are in the data directory itself.
        for evidence in (
            *self.lake_dir.glob("live-view-differences-*.json"),
            *self.data_dir.glob("live-view-differences-*.json"),
        ):
            raise AssertionError(f"{evidence.name}: {evidence.read_text()}")
        return self.process.returncode

    def kill(self) -> None:
        """SIGKILL everything it started (its children stop when their standard input closes)."""
        if self.process is not None and self.process.poll() is None:
            children = commands_of_children(self.process.pid)
            self.process.kill()
            self.process.wait()
            for child in children:
                try:
                    os.killpg(child, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def __enter__(self) -> Routelake:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.stop()
        finally:
            self.kill()
