# SPDX-License-Identifier: Apache-2.0
"""./routelake, with stand-ins for Python, uv and Java that write down how they were called."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from dev.support.loops import until
from dev.support.terminals import terminal

PYTHON = """#!/bin/sh
echo "python $*" >>"$CALLS"
case "$*" in
    "-m venv --clear "*) rm -rf "$4" && mkdir -p "$4/bin" && cp "$STANDINS/python3" "$4/bin/python" ;;
    *" pip "*) cp "$STANDINS/uv" "$(dirname "$0")/uv" ;;
    "-m cli.main"*) shift 2 && echo "handed over: $*" && env ;;
esac
"""
UV = """#!/bin/sh
echo "uv $*" >>"$CALLS"
[ -z "${UV_SAYS:-}" ] || printf "$UV_SAYS" >&2
tries=0
while [ -n "${UV_UNTIL:-}" ] && [ ! -e "$UV_UNTIL" ] && [ $((tries += 1)) -lt 1200 ]; do sleep 0.05; done
[ -z "${UV_FAILS:-}" ] || { echo "no route to the registry" && exit 1; }
"""
JAVA = """#!/bin/sh
echo "java $*" >>"$CALLS"
case "$*" in
    --list-modules) printf 'java.base@%s\\njdk.incubator.vector@%s\\n' "$JAVA" "$JAVA" ;;
    *) printf '    java.home = %s\\n    java.specification.version = %s\\n' "$JAVA_HOME" "$JAVA" >&2 ;;
esac
"""


class Machine:
    """A checkout in a folder of its own, and a PATH that begins with the stand-ins.

    With UV_UNTIL=`go_on` the installer takes until that file is there.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "check out"
        self.calls_file = folder / "calls"
        self.printed = folder / "printed"
        self.printed.touch()
        self.go_on = folder / "go on"
        standins = folder / "standins"
        (standins / "bin").mkdir(parents=True)
        self.root.mkdir()
        for name in ("routelake", "requirements.lock", "requirements-dev.lock"):
            shutil.copy(ROOT / name, self.root / name)
        for name, text in (("python3", PYTHON), ("uv", UV), ("bin/java", JAVA)):
            (standins / name).write_text(text)
            (standins / name).chmod(0o755)
        self.environ = {
            "PATH": f"{standins}:{os.environ['PATH']}",
            "CALLS": str(self.calls_file),
            "STANDINS": str(standins),
            "JAVA_HOME": str(standins),
            "JAVA": "21",
        }

    def begin(self, *arguments: str, **environ: str) -> subprocess.Popen[bytes]:
        """Start ./routelake in the background; what it prints is in `printed`."""
        with self.printed.open("ab") as printed:
            return subprocess.Popen(
                [self.root / "routelake", *arguments],
                env={**self.environ, **environ},
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )

    def start(self, *arguments: str, expect: int = 0, **environ: str) -> str:
        """Run ./routelake to its end; returns what it printed."""
        before = len(self.printed.read_text())
        process = self.begin(*arguments, **environ)
        code = process.wait(60)
        output = self.printed.read_text()[before:]
        assert code == expect, output
        return output

    def calls(self) -> list[str]:
        """What was called since the last time, by its first words."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.unlink(missing_ok=True)
        return [" ".join(line.split()[:3]) for line in lines]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


SET_UP = ["python -c import", "python -m venv", "python -m pip", "uv pip sync"]


def test_the_first_start_sets_up_and_the_next_one_only_hands_over(machine: Machine) -> None:
    output = machine.start("gateway", "--x", "a b")
    assert "preparing this machine" in output
    assert "handed over: gateway --x a b\n" in output
    assert machine.calls() == [*SET_UP, "python -m cli.main"]
    assert machine.start("gateway").startswith("handed over: gateway\n")
    assert machine.calls() == ["python -m cli.main"]


def test_the_cli_finds_this_checkout_this_python_and_no_other_spark(machine: Machine) -> None:
    output = machine.start("gateway", SPARK_HOME="/opt/spark", PYTHONPATH="/extra").splitlines()
    assert f"PYTHONPATH={machine.root}:/extra" in output
    assert f"PYSPARK_PYTHON={machine.root}/.venv/bin/python" in output
    assert "SPARK_LOCAL_IP=127.0.0.1" in output
    assert not any(line.startswith("SPARK_HOME=") for line in output)


def test_java_is_looked_for_once_and_only_where_it_is_needed(machine: Machine) -> None:
    for words in (["gateway"], ["release", "--out", "dist"]):
        machine.start(*words)
        assert not [call for call in machine.calls() if call.startswith("java")]
    assert f"JAVA_HOME={machine.environ['STANDINS']}\n" in machine.start("--verbose", "serve")
    assert [call.split()[0] for call in machine.calls()] == ["java", "java", "python"]
    for command in ("fold", "spark-sql", "release --check files"):
        assert f"JAVA_HOME={machine.environ['STANDINS']}\n" in machine.start(*command.split())
        assert machine.calls() == ["python -m cli.main"]


@pytest.mark.parametrize("version", ["1.8", "11"])
def test_an_old_java_is_passed_over(machine: Machine, version: str) -> None:
    without_another = "/usr/lib/jvm/*/bin/java"
    script = (machine.root / "routelake").read_text()
    assert without_another in script
    (machine.root / "routelake").write_text(
        script.replace(without_another, "").replace("command -v apt-get", "false").replace("command -v java", "true")
    )
    output = machine.start("serve", JAVA=version, expect=1)
    assert "Java 17 or newer with the module jdk.incubator.vector is needed for 'serve': install" in output
    assert "uv pip sync" not in machine.calls()


def test_the_dev_set_satisfies_every_command(machine: Machine) -> None:
    machine.start("gateway")
    machine.calls()
    machine.start("check")
    assert machine.calls() == ["uv pip sync", "python -m cli.main"]
    for command in ("check", "gateway", "test"):
        machine.start(command)
    assert "uv pip sync" not in machine.calls()


def test_a_new_lock_is_installed_over_the_old_one(machine: Machine) -> None:
    machine.start("gateway")
    machine.calls()
    with (machine.root / "requirements.lock").open("a") as lock:
        lock.write("# newer\n")
    machine.start("gateway")
    assert machine.calls() == ["uv pip sync", "python -m cli.main"]


def test_a_moved_checkout_is_set_up_anew(machine: Machine) -> None:
    machine.start("gateway")
    machine.calls()
    machine.root = machine.root.rename(machine.root.with_name("elsewhere"))
    machine.start("gateway")
    assert machine.calls() == [*SET_UP, "python -m cli.main"]


def test_an_environment_that_is_a_link_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    others = tmp_path / "other clone" / ".venv"
    others.mkdir(parents=True)
    (others / "theirs").touch()
    (machine.root / ".venv").symlink_to(others)
    output = machine.start("gateway", expect=1)
    assert (
        output
        == f"routelake: .venv is a link to {others}, which may be another clone's: remove the link and start again.\n"
    )
    assert [path.name for path in others.iterdir()] == ["theirs"]


def test_a_user_without_permission_to_set_up_gets_the_reason(machine: Machine) -> None:
    (machine.root / ".setup.lock").mkdir()  # no user can write it, not even root
    assert f"cannot write to {machine.root}, where the set-up goes" in machine.start("gateway", expect=1)
    (machine.root / ".setup.lock").rmdir()
    machine.start("gateway")
    (machine.root / ".setup.lock").unlink()
    (machine.root / ".setup.lock").mkdir()
    (machine.root / ".venv/bin/python").chmod(0o644)
    (machine.root / ".venv/pyvenv.cfg").write_text("home = /root/python/bin\nversion = 3.11.7\n")
    output = machine.start("gateway", expect=1)
    assert "the Python of .venv is in /root/python/bin, where this user may run nothing; remove .venv" in output
    assert output.count("\n") == 1


def test_a_failed_step_shows_why_and_the_next_start_repairs_it(machine: Machine) -> None:
    output = machine.start("gateway", UV_FAILS="1", expect=1)
    assert "no route to the registry" in output
    assert "this step failed: Python packages" in output
    machine.calls()
    machine.start("gateway")
    assert machine.calls() == [*SET_UP, "python -m cli.main"]


def test_two_first_starts_at_once_set_up_once(machine: Machine) -> None:
    both = [machine.begin("gateway", UV_UNTIL=str(machine.go_on)) for _ in range(2)]
    until(lambda: "another start is preparing this machine" in machine.printed.read_text(), 60)
    machine.go_on.touch()
    assert [process.wait(60) for process in both] == [0, 0]
    assert machine.printed.read_text().count("handed over: gateway") == 2
    assert machine.calls().count("uv pip sync") == 1


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_set_up_is_repaired_by_the_next_start(machine: Machine, sent: signal.Signals) -> None:
    first = machine.begin("gateway", UV_UNTIL=str(machine.go_on))
    until(lambda: machine.calls_file.exists() and "uv pip sync" in machine.calls_file.read_text(), 60)
    first.send_signal(sent)
    machine.calls()
    # an orphaned uv may still be writing: the next start waits for it
    machine.go_on.touch()
    assert "handed over: gateway" in machine.start("gateway")
    assert first.wait(60) != 0
    assert machine.calls() == [*SET_UP, "python -m cli.main"]


def test_without_a_usable_python_one_sentence_says_what_to_install(machine: Machine) -> None:
    script = (machine.root / "routelake").read_text()
    assert "python3 /usr/bin/python3 python3.11 python3.12 python3.13 python3.14" in script
    (machine.root / "routelake").write_text(
        script.replace(
            "python3 /usr/bin/python3 python3.11 python3.12 python3.13 python3.14", "no-such-python"
        ).replace("command -v apt-get", "false")
    )
    output = machine.start("gateway", expect=1)
    assert output.startswith("routelake: Python 3.11 or newer with its venv module is needed: install it")
    assert output.count("\n") == 1


def test_completion_installs_nothing(machine: Machine) -> None:
    """A shell asks for it when the user presses Tab."""
    assert machine.start(_ROUTELAKE_COMPLETE="complete_bash") == ""
    assert machine.calls() == []
    machine.start("gateway")
    assert "handed over" in machine.start(_ROUTELAKE_COMPLETE="complete_bash")


@pytest.mark.parametrize(
    ("says", "shown"),
    [
        (
            "Resolved 49 packages in 785ms\\nDownloading pandas (12.2MiB)\\nDownloading numpy (16.1MiB)\\n Downloaded pandas\\n",
            "downloading 49 packages: 1 of 2 large ones are here (43 % of 28 MiB)",
        ),
        ("Resolved 49 packages in 1s\\n   Building pyspark==4.2.0\\n", "building pyspark==4.2.0"),
        ("Resolved 49 packages in 1s\\nPrepared 49 packages in 9s\\n", "unpacking 49 packages"),
        (  # apt-get's, which is read by the same lines
            "1 upgraded, 3 newly installed, 0 to remove and 9 not upgraded.\\nSetting up libc6 (2.36) ...\\nSetting up ca-certificates (1) ...\\n",
            "setting up 2 of 4 (50 %) packages",
        ),
        ("Resolved 49 packages in 1s\\nInstalled 49 packages in 9s\\n", "compiling byte code of 49 packages"),
    ],
)
def test_an_installation_says_what_it_does_and_how_far_it_is(machine: Machine, says: str, shown: str) -> None:
    process = machine.begin("gateway", UV_SAYS=says, UV_UNTIL=str(machine.go_on), ROUTELAKE_SETUP_LINE_S="1")
    line = rf"Python packages, about 600 MB: {re.escape(shown)}, \d+ MB received, [1-9]\d* s\n"
    until(lambda: re.search(line, machine.printed.read_text()), 60)
    machine.go_on.touch()
    assert process.wait(60) == 0
    assert "routelake: this machine is prepared; starting gateway ...\n" in machine.printed.read_text()


def test_a_terminal_gets_the_progress_of_the_installer_itself(machine: Machine) -> None:
    """uv draws bars where standard error is a terminal; what it writes there is not put away into a file."""
    ours, theirs = terminal()
    process = subprocess.Popen(
        [machine.root / "routelake", "gateway"],
        env={**machine.environ, "UV_SAYS": "the bars"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(ours, 4096):
            seen += chunk
    os.close(ours)
    assert process.wait(60) == 0
    assert b"the bars" in seen
    assert b"done in" in seen
