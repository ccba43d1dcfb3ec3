# SPDX-License-Identifier: Apache-2.0
"""Three stock NameServers are replaced by routelake under load and put back, as migrate-from-rocketmq.md says.

The commands are those of the page, in its order. First one of the NameServers is stopped and started again without
routelake, under the same load. In the whole migration no more sends may fail than there. While one of the addresses does
not answer, the first send of a new producer 5.5.0 may fail, as with stock NameServers alone.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from dev.model import codes
from dev.peers.java import free_port, wait_until
from dev.peers.routelake import ROOT
from dev.support.accounts import ACCOUNTS
from dev.support.pages import OPERATE, blocks, run_by
from dev.support.rocketmq import StockBroker, StockNameServer, mqadmin
from tests.e2e.scenario import ask, route
from tests.e2e.traffic import Counts, Traffic

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(1_200)]

PAGE: Final = OPERATE / "migrate-from-rocketmq.md"
ME: Final = "tests/e2e/test_migration.py"
CLUSTER, TOPIC, ORDERED, LATER = "migration-cluster", "orders", "orders-in-order", "orders-later"
BROKERS: Final = {"broker-4": "4.9.7", "broker-5": "5.5.0"}
PATIENCE_S: Final = 180.0
"""For a step that takes 30 s on a machine that does nothing else."""
PROPERTIES: Final = {"orderMessageEnable": "true"}
MQADMIN: Final = """
import os, sys
from dev.support.rocketmq import mqadmin
done = mqadmin(sys.argv[1:], os.environ["OLD"])
print(done.stdout, done.stderr)
sys.exit("success" not in done.stdout)
"""


class Commands:
    """Run the commands of the page, each in its turn.

    Args:
        folder: Current folder of the commands.
        variables: Values of the page's variables.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._left = list(run_by(PAGE, ME))
        self._folder = folder
        names = next(re.findall(r"^(\w+)=", block.text, re.MULTILINE) for block in blocks(PAGE))
        assert set(names) <= variables.keys(), names
        self.variables = dict(variables)

    def _next(self, word: str) -> tuple[str, str]:
        """Command and output of the next block, which must contain a word."""
        block = self._left.pop(0)
        assert word in block, f"the page has {block!r} where the test expects {word!r}"
        command, _, shown = block.removeprefix("$ ").partition("\n") if block.startswith("$ ") else (block, "", "")
        return command.strip(), shown.strip()

    def done(self) -> None:
        """Raise if the page has more commands."""
        assert not self._left, self._left

    def _argv(self, command: str) -> list[str]:
        python = shlex.quote(sys.executable)
        functions = f'mqadmin() {{ {python} -c {shlex.quote(MQADMIN)} "$@"; }}\n'
        return [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            functions + re.sub(r"\./routelake(?= )", f"{python} -m cli.main", command),
        ]

    def _environment(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if "NAMESRV" not in name and "ROUTELAKE" not in name}
        return {**ours, "PYTHONPATH": str(ROOT), "COLUMNS": "160", **self.variables}

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the page's variables."""
        return subprocess.run(
            self._argv(command),
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def run(self, word: str, printed: str = "") -> str:
        """Run the next command until it succeeds and prints a text; what it printed.

        Args:
            word: Word of the command.
            printed: Text that it must print; the page's output must be equal, numbers left aside.
        """
        command, shown = self._next(word)
        last = ""

        def succeeds() -> bool:
            nonlocal last
            done = self.shell(command)
            last = done.stdout + done.stderr
            return done.returncode == 0 and printed in last

        try:
            wait_until(succeeds, PATIENCE_S, command, 1)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{last}") from None
        if shown:
            assert re.sub(r"[\d.:]+", "0", last.strip()) == re.sub(r"[\d.:]+", "0", shown), (last, shown)
        return last

    def start(self, word: str) -> Started:
        """Start the next command, which has this word and runs until it is stopped."""
        argv = self._argv(f"exec {self._next(word)[0]}")
        return Started(argv, self._folder, self._environment())

    def again(self, count: int) -> None:
        """Go back by a number of commands, because the page says to repeat a step."""
        done = list(run_by(PAGE, ME))
        self._left = done[len(done) - len(self._left) - count :]


class Started:
    """A command that runs until it is stopped."""

    def __init__(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._output = folder / f"output-{time.monotonic_ns()}.txt"
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def printed(self) -> str:
        """The end of what it printed."""
        return self._output.read_text(errors="replace")[-4_000:]

    def is_running(self) -> bool:
        """Return whether it has not ended."""
        return self.process.poll() is None

    def stop(self) -> None:
        """SIGTERM; it must end without an error."""
        assert self.is_running(), self.printed()
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, self.printed()

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.is_running():
            self.process.kill()
            self.process.wait()


class Record:
    """Prints a line for each step, as reports/migration-rehearsal.md has them."""

    def __init__(self, release: str) -> None:
        self._last = time.monotonic()
        print(
            f"\n| step, NameServers {release} | duration | sent | failed | of new producers | longest send |\n|---|---|---|---|---|---|"
        )

    def __call__(self, step: str, counts: Counts) -> None:
        now = time.monotonic()
        took, self._last = now - self._last, now
        failed = f"{len(counts.failures)} | {len(counts.new_failures)}"
        print(f"| {step} | {took:.0f} s | {counts.sent:,} | {failed} | {counts.longest_ms:,} ms |", flush=True)
        for failure in (*counts.failures, *counts.new_failures):
            print(f"<!-- {failure} -->", flush=True)


class Stage:
    """Three stock NameServers and two brokers.

    Args:
        release: Release of the NameServers.
        folder: Folder of their files.
        stack: Ends everything.
    """

    def __init__(self, release: str, folder: Path, stack: ExitStack) -> None:
        self.release, self.folder, self.stack = release, folder, stack
        self.ports = [free_port() for _ in range(3)]
        self.old = ";".join(f"127.0.0.1:{port}" for port in self.ports)
        self.brokers = {
            name: StockBroker(self.old, CLUSTER, name, 0, {"updateNameServerAddrPeriod": "2000"}, of)
            for name, of in BROKERS.items()
        }
        with ThreadPoolExecutor() as pool:
            servers = pool.map(self.start, self.ports)
            for broker in pool.map(stack.enter_context, self.brokers.values()):
                assert broker.process.running
            self.servers = dict(zip(self.ports, servers, strict=True))

    def kv_file(self, port: int) -> Path:
        """kvConfig.json of a NameServer."""
        return self.folder / f"kv-{port}.json"

    def start(self, port: int) -> StockNameServer:
        """Start a NameServer at its port, with its files."""
        properties = {**PROPERTIES, "kvConfigPath": str(self.kv_file(port))}
        return self.stack.enter_context(StockNameServer(properties, release=self.release, port=port))

    def agree(self) -> None:
        """Wait until all NameServers have both brokers and all topics."""
        names = self.old.split(";")

        def agreed() -> bool:
            routes = [route(name, topic) for name in names for topic in (TOPIC, ORDERED)]
            return all(routes) and {len(found["queueDatas"]) for found in routes[::2] if found} == {len(BROKERS)}

        wait_until(agreed, PATIENCE_S, "all NameServers to know both brokers", 0.5)

    def make_topics(self) -> None:
        """Create a topic on both brokers, and an order topic on one of them."""
        names = self.old.split(";")

        def registered() -> bool:
            found = [route(name, "TBW102") for name in names]
            return all(each is not None and len(each["brokerDatas"]) == len(BROKERS) for each in found)

        wait_until(registered, PATIENCE_S, "the brokers at each NameServer")
        plain = [["-b", broker.address, "-t", TOPIC, "-r", "4", "-w", "4"] for broker in self.brokers.values()]
        ordered = ["-b", self.brokers["broker-5"].address, "-t", ORDERED, "-r", "4", "-w", "4", "-o", "true"]
        with ThreadPoolExecutor() as pool:
            for done in pool.map(lambda words: mqadmin(["updateTopic", *words], self.old), [*plain, ordered]):
                # For an order topic it prints the stack trace of an exception that it expects.
                assert "create topic to" in done.stdout, done.stdout + done.stderr
        self.agree()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.mark.parametrize("release", ["5.5.0", "4.9.7"])
def test_to_routelake_and_back(release: str, tmp_path: Path, stack: ExitStack, go_client: Path) -> None:
    stage = Stage(release, tmp_path, stack)
    stage.make_topics()
    record = Record(release)
    alone, lost_alone = _without_routelake(stage, record, go_client)
    record("all of the control", alone)
    moved, lost = _with_routelake(stage, record, go_client)
    record("all with routelake", moved)
    assert (lost_alone, lost) == ([], [])
    assert len(moved.failures) <= len(alone.failures), moved.failures


def _without_routelake(stage: Stage, record: Record, go_client: Path) -> tuple[Counts, list[str]]:
    """Stop and start one NameServer under load: what stock NameServers alone do."""
    with Traffic("alone", stage.old, TOPIC, ORDERED, go_client) as traffic:
        port = stage.ports[0]
        stage.servers.pop(port).close()
        record("control: NameServer 1 is stopped", traffic.go_on(all_answer=False))
        stage.servers[port] = stage.start(port)
        stage.agree()
        record("control: NameServer 1 is started again", traffic.go_on())
    return traffic.total(), traffic.lost


def _with_routelake(stage: Stage, record: Record, go_client: Path) -> tuple[Counts, list[str]]:
    folder, first = stage.folder, stage.kv_file(stage.ports[0])
    data = folder / "data"
    broker = stage.brokers["broker-5"]
    new = f"127.0.0.1:{free_port()}"
    (folder / "acl.yml").write_text(ACCOUNTS)
    (folder / "namesrv.properties").write_text("".join(f"{key}={value}\n" for key, value in PROPERTIES.items()))
    page = Commands(
        folder,
        {
            "OLD": stage.old,
            "NEW": new,
            "HTTP": f"127.0.0.1:{free_port()}",
            "LOG": f"--data-dir {data}",
            "TABLES": f"--lake {data}/lake",
            "SECURITY": f"--auth {folder}/acl.yml --auth-mode audit",
            "BROKER": broker.address,
            "BROKER_4X": stage.brokers["broker-4"].address,
            "TOPIC": ORDERED,
        },
    )

    def started(word: str) -> Started:
        made = page.start(word)
        stage.stack.callback(made.kill)
        return made

    with Traffic("moved", stage.old, TOPIC, ORDERED, go_client) as traffic:
        page.run("compare", "no difference")
        assert str(first) in page.run("getNamesrvConfig")
        (folder / "kvConfig.json").write_bytes(first.read_bytes())
        record("1, 2: NameServers agree, configuration is saved", traffic.go_on())

        fold = started("fold")
        beside = started("gateway")
        page.run("readyz")
        record("3: routelake runs next to them", traffic.go_on())

        page.run("updateBrokerConfig", "success")
        page.run("-v 4", "success")
        old_broker = stage.brokers["broker-4"]
        old_broker.terminate()
        old_broker.configure("namesrvAddr", f"{stage.old};{new}")
        old_broker.start()
        page.run("-v 6", "success")
        page.run("clusterList", "broker-4")
        record("4: brokers have one address more", traffic.go_on())

        page.run("import-kv")
        assert ORDERED in page.run("ORDER_TOPIC_CONFIG")
        page.run("compare -n", "no difference")
        watch = started("--watch")
        record("5, 6: KV configuration is copied, all four agree", traffic.go_on())

        gateways: dict[int, Started] = {}
        for number, port in enumerate(stage.ports, 1):
            if number > 1:
                page.again(3)
            stage.servers.pop(port).close()
            counts = traffic.go_on(all_answer=False)
            page.variables |= {"NS": f"127.0.0.1:{port}", "NS_HTTP": f"127.0.0.1:{free_port()}"}
            record(f"7: NameServer {number} is stopped", counts)
            gateways[port] = started("gateway")
            page.run("readyz")
            page.run("compare", "no difference")
            record(f"7: gateway {number} is in its place", traffic.go_on())
        page.run("history", "broker-5:4")
        for name in stage.old.split(";"):
            found = route(name, ORDERED)
            assert found is not None and found["orderTopicConf"] == "broker-5:4", found
        record("8: history and routes", traffic.go_on())

        # A change of the KV configuration that the saved file does not have.
        changed = page.shell(
            f'./routelake admin updateKvConfig -n "$NEW" -s ORDER_TOPIC_CONFIG -k {LATER} -v broker-5:2'
        )
        assert changed.returncode == 0, changed.stderr
        page.run("jq")
        assert LATER in (folder / "kvConfig.json").read_text()
        for number, port in enumerate(stage.ports, 1):
            gateways.pop(port).stop()
            record(f"10: gateway {number} is stopped", traffic.go_on(all_answer=False))
            stage.kv_file(port).write_bytes((folder / "kvConfig.json").read_bytes())
            stage.servers[port] = stage.start(port)
            if number > 1:
                page.again(1)
            page.run("compare", "no difference")
            record(f"10: NameServer {number} is in its place", traffic.go_on())
        for name in stage.old.split(";"):
            found = route(name, ORDERED)
            assert found is not None and found["orderTopicConf"] == "broker-5:4", found
            kept = ask(name, codes.GET_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key=LATER)
            assert (kept.ext or {})["value"] == "broker-5:2", kept

        assert watch.is_running(), watch.printed()
        watch.kill()
        page.run("updateBrokerConfig", "success")
        page.run("compare", "no difference")
        record("11: brokers have the old addresses", traffic.go_on())
        beside.stop()
        fold.stop()
        page.run("history")
        page.done()
        record("12: routelake is stopped", traffic.go_on())
    assert traffic.brokers() == {*BROKERS}
    assert not list(data.rglob("live-view-differences-*.json"))
    return traffic.total(), traffic.lost
