# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: its name, version, completion, and what it says to a slip of the hand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from dev.reference.options import commands
from dev.support.command import command, environment, process

ENVIRONMENT = environment()


COMMANDS = [
    "serve",
    "gateway",
    "fold",
    "bench",
    "broker",
    "fleet",
    "route",
    "import-kv",
    "completion",
    "admin",
    "event-log",
]


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS), ["admin", "topicRoute"]], ids=" ".join)
def test_help_names_the_program_and_cuts_nothing(words: list[str]) -> None:
    shown = command(*words, "--help")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(f"Usage: {' '.join(['./routelake', *words])} ")
    assert not re.search("[\u2500-\u257f\u2026\x1b]|\\.\\.\\.$", shown.stdout.replace("]...", ""), re.MULTILINE)
    for variable in re.findall(r"env\s+var:\s+(\w+)", shown.stdout):
        assert variable in {"NAMESRV_ADDR"} or variable.startswith("ROUTELAKE_")


def test_each_option_and_argument_is_described_by_sentences() -> None:
    for name, found in commands():
        for param in found.params:
            text = getattr(param, "help", None) or ""
            assert param.hidden or re.fullmatch(r"[A-Z].*\.", text, re.DOTALL), f"{name}: {param.name}: {text!r}"


def test_help_shows_the_whole_of_a_long_variable() -> None:
    assert "ROUTELAKE_HISTORY_RETENTION_DAYS" in command("serve", "--help").stdout


def test_version() -> None:
    shown = process("--version")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert shown.returncode == 0, shown.stderr
    assert re.fullmatch(rf"routelake {re.escape(version)}( \(commit [0-9a-f]{{7,}}\))?\n", shown.stdout)
    assert ("commit" in shown.stdout) == ((ROOT / ".git").exists() and shutil.which("git") is not None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("servee", "Did you mean './routelake serve'?"),
        ("SERVE", "Did you mean './routelake serve'?"),
        ("topicList", "Did you mean './routelake admin topicList'?"),
        ("admin topiclist", "Did you mean './routelake admin topicList'?"),
        ("admin TOPICROUTE", "Did you mean './routelake admin topicRoute'?"),
        ("admin sendMessage", "No such command 'sendMessage'. See ./routelake admin -h."),
        (
            "serve --evnet-log x",
            "no such option: --evnet-log. Did you mean --event-log or --event-log-config? See ./routelake serve -h.",
        ),
        ("server", "Did you mean './routelake serve'? See ./routelake -h."),
        ("serve --port 9876", "no such option: --port. Did you mean --remoting or --http? See ./routelake serve -h."),
        ("gateway --host 0.0.0.0", "no such option: --host. Did you mean --remoting or --http?"),
        ("serve --workers many", "'--workers'"),
        ("serve --workers 0", "greater than or equal to 1"),
        ("route", "TOPIC is missing"),
        ("route orders", "-n"),
        ("admin topicRoute -n a:1", "-t or --topic is missing (Topic name). See ./routelake admin topicRoute -h."),
        ("completion tcsh", "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_a_typing_error_is_answered_in_one_line(words: str, says: str) -> None:
    done = command(*words.split())
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("routelake: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert "['" not in done.stderr
    assert "python -m" not in done.stderr


def test_an_unreadable_path_is_refused_with_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    done = command("doctor", tmp_path)
    said = f"routelake: {tmp_path} belongs to {tmp_path.owner()} (0700), and you may not read it. Run this command as that user"
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(said) and done.stderr.endswith(
        "so that its group may read it. See ./routelake doctor -h.\n"
    )


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def brought(extra: str) -> set[str]:
    """Packages, by their names in Python, that come with an extra of the wheel."""
    names = {re.split("==", entry)[0] for entry in EXTRAS[extra]}
    of = packages_distributions()
    return {package for package, by in of.items() if {one.lower().replace("_", "-") for one in by} & names}


@pytest.mark.parametrize(
    ("extra", "words", "says"),
    [
        ("gateway", "fold --data-dir data", "this needs pyspark: pip install 'routelake[fold]'."),
        ("fold", "sql --data-dir data", "this needs duckdb: pip install 'routelake[gateway]'."),
        ("gateway", "route orders -n http://127.0.0.1:1", "this needs httpx: pip install 'routelake[clients]'."),
        ("clients", "history changes --data-dir data", "this needs pyarrow: pip install 'routelake[fold]'."),
        ("clients", "gateway --data-dir data", "pip install 'routelake[gateway]'."),
        ("clients", "serve --data-dir data", "pip install 'routelake[server]'."),
        ("gateway", "serve --data-dir data", "this needs pyspark: pip install 'routelake[server]'."),
        ("fold", "gateway --data-dir data", "pip install 'routelake[gateway]'."),
        ("fold", "history changes --http 127.0.0.1:1", "this needs httpx: pip install 'routelake[clients]'."),
    ],
)
def test_a_missing_extra_is_named(extra: str, words: str, says: str, tmp_path: Path) -> None:
    missing = {package for each in ("gateway", "fold", "clients") for package in brought(each)} - brought(extra)
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "lake").mkdir()
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({sorted(missing)!r}))\n"
        f"sys.argv = ['routelake', *{words.split()!r}]\nfrom cli.main import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("routelake: ") and done.stderr.endswith(f"{says}\n")


def test_without_a_command_the_help_is_shown() -> None:
    done = process()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: ./routelake [OPTIONS] COMMAND")


def completed(line: str) -> list[str]:
    """What bash offers where a line ends."""
    words = line.split(" ")
    script = f"""
        source <({sys.executable} -m cli.main completion bash)
        COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
        $(complete -p routelake | sed 's/.*-F \\([^ ]*\\) .*/\\1/') "$PWD/stand-in" "${{COMP_WORDS[COMP_CWORD]}}" x
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_completion_in_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for ./routelake that needs no set-up."""
    stand_in = tmp_path / "stand-in"
    stand_in.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cli.main "$@"\n')
    stand_in.chmod(0o755)
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert completed("routelake ser") == ["serve"]
    assert completed("routelake admin topicR") == ["topicRoute"]
    assert completed("routelake serve --max-clock") == ["--max-clock-leap-s"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_of_shells_that_do_not_hand_over_what_was_typed(shell: str) -> None:
    script = process("completion", shell).stdout
    assert f"{ROOT / 'routelake'}" in script
    assert not re.search(r" routelake[)\"]", script)


@pytest.mark.parametrize("words", ["--help", "--version", "serve --help"])
def test_it_answers_quickly_and_loads_nothing_heavy(words: str) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['routelake', *{words.split()!r}]\n"
        "from cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end\n"
        "heavy = {'pyspark', 'deltalake', 'pyarrow', 'pandas', 'fastapi', 'kafka', 'uvicorn'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    before_s = os.times().children_user
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert os.times().children_user - before_s < 2  # seconds of processor: holds on a busy machine, too
