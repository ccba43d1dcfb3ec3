# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own integration tests (rocketmq-test 5.5.0), with a gateway in the NameServer's place.

They start brokers and a NameServer in their own JVM. Classes here (`integration/*.java`) replace the NameServer and name
the gateway's port. Every class of the jar runs, except those of `LEFT_OUT`, with RocketMQ's own NameServer and with a
gateway at the same time, except for the group `SAME_PORT`. A test that passes with the former has to pass with the
latter.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from dev.peers.java import QUICK_JVM, classpath, java_executable
from dev.peers.rocketmq import prepare_home
from dev.peers.routelake import Routelake

PACKAGE: Final = "org.apache.rocketmq.test"
LEFT_OUT: Final = {
    "autoswitchrole": "wants a controller in the NameServer's process, which routelake does not have",
    "dledger": "JRaft and DLedger between brokers; no NameServer takes part",
    "grpc.v2.GrpcBaseIT": "what the others of its folder inherit",
    "schema": "compares RocketMQ's own classes with files of its sources, which the jar lacks",
    "tls": "gives the NameServer certificates in its own process (here: test_tls_stock.py)",
}
"""Classes, or folders of them, and why."""

AT_LEAST: Final = {"client.consumer": 90, "client.producer": 50, "container": 20, "grpc": 12, "": 30}
"""Groups of classes by how their names begin, "" for all others -> tests that must pass, so that a run without
tests fails."""

OPENS: Final = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref")
FULLY_COMPILED: Final = "-XX:TieredStopAtLevel=4"
"""Overrides `QUICK_JVM`: up to nine brokers run in one JVM, for many minutes."""
OWN_JVM: Final = "container"
"""A group with nine brokers. A test that fails leaves them without a master, so each class has a JVM of its own."""
SAME_PORT: Final = "grpc"
"""A group that listens on port 8081, so the run with a gateway waits for the other one."""
LIMIT_S: Final = 3_000


def classes() -> list[str]:
    """All of the jar that are run."""
    (jar,) = [path for path in classpath("rocketmq-test").split(os.pathsep) if path.endswith("-tests.jar")]
    with zipfile.ZipFile(jar) as opened:
        names = [name.removesuffix(".class").replace("/", ".") for name in opened.namelist() if name.endswith(".class")]
    found = [name.removeprefix(f"{PACKAGE}.") for name in names if re.search(r"(IT|Test)$", name)]
    return sorted(name for name in found if not name.startswith(tuple(LEFT_OUT)))


def group_of(name: str) -> str:
    return next(group for group in AT_LEAST if name.startswith(group))


def compiled(folder: Path, *names: str) -> str:
    sources = [str(Path(__file__).parent / "integration" / f"{name}.java") for name in names]
    subprocess.run(["javac", "-d", str(folder), "-cp", classpath("rocketmq-test"), *sources], check=True, timeout=300)
    return str(folder)


def run(folder: Path, names: list[str], path: list[str], options: tuple[str, ...] = ()) -> dict[str, str]:
    """Test -> "PASSED", "FAILED" or "IGNORED"; what was printed stays in ``folder``/attempt-N/output.txt.

    The tests of RocketMQ choose the ports of their brokers at random. If another program uses one of these ports, the
    JVM ends, and is started again.
    """
    for attempt in range(3):
        printed = run_jvm(folder / f"attempt-{attempt}", names, path, options)
        if "RESULT END" in printed or "java.net.BindException" not in printed:
            break
    assert "RESULT END" in printed, printed[-6000:]
    return {match[2]: match[1] for match in re.finditer(rf"^RESULT (\w+) {PACKAGE}\.(\S+ \S+)$", printed, re.MULTILINE)}


def run_jvm(folder: Path, names: list[str], path: list[str], options: tuple[str, ...]) -> str:
    """Run classes in a JVM; returns what it printed."""
    (folder / "tmp").mkdir(parents=True)
    command = [
        *(java_executable(), *QUICK_JVM, FULLY_COMPILED, "-Xmx1500m", "-XX:MaxDirectMemorySize=768m"),
        *(f"--add-opens={name}=ALL-UNNAMED" for name in OPENS),
        *(*options, prepare_home(folder), f"-Duser.home={folder}", f"-Djava.io.tmpdir={folder / 'tmp'}"),
        *("-Djava.net.preferIPv4Stack=true", "-cp", os.pathsep.join([*path, classpath("rocketmq-test")])),
        *("RunClasses", *(f"{PACKAGE}.{name}" for name in names)),
    ]
    with (folder / "output.txt").open("w") as output:
        subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "ROCKETMQ_HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
    shutil.rmtree(folder / "tmp")
    return (folder / "output.txt").read_text(errors="replace")


def run_with_routelake(folder: Path, names: list[str], runner: str, ours: str) -> dict[str, str]:
    folder.mkdir(parents=True)
    options: tuple[str, ...] = ("--allow-config-update",)
    if names[0].startswith("container"):  # as these tests have their NameServer
        settings = folder / "namesrv.properties"
        settings.write_text("supportActingMaster=true\nscanNotActiveBrokerInterval=1000\n")
        options += ("--config", str(settings))
    gateway = Routelake(folder / "data", "gateway", options)
    with ExitStack() as cleanup:
        cleanup.callback(gateway.kill)
        gateway.start(wait_ready_s=None)
        gateway.wait_listening()
        results = run(folder / "java", names, [runner, ours], (f"-Droutelake.port={gateway.remoting_port}",))
        assert gateway.stop() == 0
    return results


def run_group(
    group: str, folder: Path, names: list[str], run_classes: Callable[[Path, list[str]], dict[str, str]]
) -> dict[str, str]:
    """Test -> outcome, of classes in one JVM, or in a JVM for each."""
    outcomes: dict[str, str] = {}
    for number, in_one_jvm in enumerate([[name] for name in names] if group == OWN_JVM else [names]):
        outcomes |= run_classes(folder / str(number), in_one_jvm)
    return outcomes


@pytest.mark.jvm
@pytest.mark.deep
@pytest.mark.timeout(3 * LIMIT_S)
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a Java compiler")
@pytest.mark.parametrize("group", AT_LEAST)
def test_what_passes_with_the_name_server_passes_with_routelake(tmp_path: Path, group: str) -> None:
    names = [name for name in classes() if group_of(name) == group]
    runner = compiled(tmp_path / "runner", "RunClasses", "TransactionMetricsFlushService")
    ours = compiled(tmp_path / "ours", "NamesrvController", "Remote", "RemoteRoutes", "InterceptingServer")
    with_stock = partial(run, path=[runner])
    with_routelake = partial(run_with_routelake, runner=runner, ours=ours)
    with ThreadPoolExecutor(1 if group == SAME_PORT else 2) as pool:
        stock_run = pool.submit(run_group, group, tmp_path / "stock", names, with_stock)
        routelake_run = pool.submit(run_group, group, tmp_path / "routelake", names, with_routelake)
        stock, routelake = stock_run.result(), routelake_run.result()
    passed = {test for test, outcome in stock.items() if outcome == "PASSED"}
    lacking = {test for test in passed if routelake.get(test) != "PASSED"}
    for attempt in range(2):  # RocketMQ's own build calls a third of the classes flaky (test/BUILD.bazel)
        if lacking:
            again = sorted({test.split()[0] for test in lacking})
            results = run_group(group, tmp_path / f"again-{attempt}", again, with_routelake)
            lacking -= {test for test, outcome in results.items() if outcome == "PASSED"}
    others = {test: outcome for test, outcome in stock.items() if outcome != "PASSED"}
    print(f"{group or 'others'}: {len(passed)} pass with both; not with RocketMQ's own NameServer: {others}")
    assert not lacking
    assert len(passed) >= AT_LEAST[group]
