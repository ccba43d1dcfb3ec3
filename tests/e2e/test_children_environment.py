# SPDX-License-Identifier: Apache-2.0
"""Which secrets the processes of routelake have in their environment, as /proc shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dev.model import codes
from dev.model.client import RemotingClient
from dev.peers.procfs import status_fields
from dev.peers.routelake import Routelake
from dev.support.accounts import sign
from dev.support.certificates import Authority
from dev.support.loops import until
from tests.examples.parts import A, config, register

SECRETS = {
    "BROKER_KEY": "the-secret-of-a-broker",
    "OPS_BEARER": "the-bearer-of-ops",
    "KEY_OPENER": "the-opener-of-the-tls-key",
    "ROUTELAKE_HTTP_TOKENS": "old=the-first-bearer-of-all",
}
ACCOUNTS = """accounts:
  - {accessKey: brk, secretKey: 'env:BROKER_KEY', role: broker}
  - {accessKey: ops, token: 'env:OPS_BEARER', role: admin}
"""


@contextmanager
def running(folder: Path, command: str, *options: str) -> Iterator[Routelake]:
    (folder / "acl.yml").write_text(ACCOUNTS)
    pair = Authority(folder / "ca").issue(password=SECRETS["KEY_OPENER"])
    tls = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--tls-key-password", "env:KEY_OPENER")
    accounts = ("--auth", str(folder / "acl.yml"), "--no-auth-require-tls")
    process = Routelake(folder / "data", command, (*accounts, *tls, *options), SECRETS | {"OTHER": "no secret"})
    try:
        process.start(wait_ready_s=None).wait_listening()
        yield process
    finally:
        process.kill()


def processes_below(pid: int) -> dict[int, str]:
    """All descendants, each with its command line."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has just ended
                parents[int(folder.name)] = int(status_fields(int(folder.name))["PPid"])
    found = {}
    for child in parents:
        at: int | None = child
        while at is not None and at != pid:
            at = parents.get(at)
        if at == pid:
            with suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    return found


def who_has_secrets(process: Routelake, expected: set[str]) -> None:
    """Only gateways and their supervisors, though all of these processes are there."""
    assert process.process is not None
    pid = process.process.pid
    with RemotingClient("127.0.0.1", process.remoting_port) as client:
        topics = [config(f"topic-{number}") for number in range(4_000)]
        request = sign(register(A, "10.0.0.1:10911", topics=topics).request(), "brk", SECRETS["BROKER_KEY"])
        assert client.call(request).code == codes.SUCCESS

    def missing() -> set[str]:
        lines = processes_below(pid).values()
        return {name for name in expected if not any(name in line for line in lines)}

    until(lambda: not missing(), 120)
    found = processes_below(pid)
    for child, line in found.items():
        # serve: its own fork, a moment before its program
        if any(name in line for name in ("cli.child gateway", "cli.main gateway", "cli.main serve")):
            continue
        with suppress(OSError):
            environment = Path(f"/proc/{child}/environ").read_bytes().decode()
            assert "OTHER=no secret" in environment or "java" in line or "worker_daemon" in line or "pyspark" in line
            for name, secret in SECRETS.items():
                assert secret not in environment, (name, line)
                assert f"\0{name}=" not in f"\0{environment}", (name, line)


def test_children_of_a_gateway(tmp_path: Path) -> None:
    with running(tmp_path, "gateway") as process:
        who_has_secrets(process, {"eventlog.worker", "large_registrations"})


@pytest.mark.jvm
@pytest.mark.deep
def test_children_of_serve(tmp_path: Path) -> None:
    """`runtime/test_fold_process.py` looks at those of a fold alone."""
    expected = {"eventlog.worker", "large_registrations", "cli.child fold", "java", "worker_daemon"}
    with running(tmp_path, "serve", "--workers", "2") as process:
        who_has_secrets(process, expected)
