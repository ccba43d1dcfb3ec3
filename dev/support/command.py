# SPDX-License-Identifier: Apache-2.0
"""`routelake ...`, as a person has it: what it prints and how it ends.

In this process where only that is asked, which saves a start; as a process of its own where the process is the subject,
and once for each command.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from subprocess import CompletedProcess
from unittest import mock

from cli.main import main
from dev.peers.routelake import ROOT


def environment(**more: str) -> dict[str, str]:
    """Return the variables of this process without those of routelake, on a terminal of 80 columns, and with these."""
    ours = {name: value for name, value in os.environ.items() if "NAMESRV" not in name and "ROUTELAKE" not in name}
    return {**ours, "PYTHONPATH": str(ROOT), "COLUMNS": "80", **more}


def command(*words: object, stdin: str = "", **variables: str) -> CompletedProcess[str]:
    """In this process; every ending is an exit code."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    argv = ["routelake", *map(str, words)]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(sys, "stdin", io.StringIO(stdin)),
        mock.patch.dict(os.environ, environment(**variables), clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int), code
    return CompletedProcess(argv, code, _printed(out), _printed(err))


def _printed(stream: io.TextIOWrapper) -> str:
    stream.flush()
    printed = stream.buffer
    assert isinstance(printed, io.BytesIO)
    return printed.getvalue().decode()


def told(*words: object, **variables: str) -> tuple[int, str]:
    """In this process: exit code, and all that it says."""
    done = command(*words, **variables)
    return done.returncode, done.stdout + done.stderr


def process(*words: object, stdin: str = "", **variables: str) -> CompletedProcess[str]:
    """Run the command in a process of its own, for two minutes at most."""
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *map(str, words)],
        cwd=ROOT,
        env=environment(**variables),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
