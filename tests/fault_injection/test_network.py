# SPDX-License-Identifier: Apache-2.0
"""A second machine, and a cable that is pulled: in a process with a network of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from dev.developer import ROOT
from dev.fault_injection.inside import begin
from dev.fault_injection.network import HERE, THERE, Machine
from dev.support.namespaces import possible_kinds

_ECHO = "import socket; s = socket.create_server(('{there}', 7)); print(flush=True); c = s.accept()[0]\nwhile b := c.recv(99): c.sendall(b)"


@pytest.mark.skipif("net" not in possible_kinds(), reason="no network namespaces here")
def test_a_cable_that_is_pulled_closes_nothing() -> None:
    command = ["unshare", "--net", *(["--map-root-user"] if os.geteuid() else []), sys.executable, "-m", __name__]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORTURE_INSIDE": "net"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.splitlines() == [
        "there: b'first'",
        "alone: nothing",
        f"beside it: {THERE}",
        "again: b'second'",
    ], run.stderr


def _play() -> None:
    begin()
    with Machine() as machine:
        command = [*machine.through, sys.executable, "-c", _ECHO.format(there=THERE)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as echo:
            assert echo.stdout is not None
            echo.stdout.readline()
            connection = socket.create_connection((THERE, 7), 10, (HERE, 0))
            connection.sendall(b"first")
            print("there:", connection.recv(99))
            machine.pull()
            connection.sendall(b"second")
            connection.settimeout(0.3)
            with suppress(TimeoutError):
                print("alone, and yet:", connection.recv(99))
            print("alone: nothing")
            beside = threading.Thread(target=_beside, args=(machine,))
            beside.start()
            beside.join()
            machine.plug()
            connection.settimeout(30)
            print("again:", connection.recv(99))
            connection.close()


def _beside(machine: Machine) -> None:
    machine.enter()
    with socket.create_server((THERE, 8)), socket.create_connection((THERE, 8), 10) as connection:
        print("beside it:", connection.getsockname()[0])


if __name__ == "__main__":
    _play()
