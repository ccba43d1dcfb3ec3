# SPDX-License-Identifier: Apache-2.0
"""The fold leaves the processor to the gateway, also where Linux weighs sessions before processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ASK = """
import os
from pathlib import Path
from runtime.children import give_way
give_way()
print(os.nice(0), *Path("/proc/self/autogroup").read_text().split()[-1:])
"""


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="a kernel without autogroups")
@pytest.mark.parametrize("own_session", [True, False])
def test_the_fold_is_nice_in_its_own_session_alone(own_session: bool) -> None:
    before = Path("/proc/self/autogroup").read_text().split()[-1:]  # nothing for the sessions of the kernel's start
    command = [sys.executable, "-c", _ASK]
    said = subprocess.run(command, start_new_session=own_session, capture_output=True, text=True, check=True)
    assert said.stdout.split() == [str(min(19, os.nice(0) + 5)), *(["5"] if own_session else before)]


_ASK_OF_ALL = """
import os, subprocess, sys, threading
from runtime.children import give_way
from runtime.procfs import threads_below
leave = threading.Event()
threading.Thread(target=leave.wait).start()
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
give_way()
print({os.getpriority(os.PRIO_PROCESS, thread) for thread in threads_below(os.getpid())} - {os.nice(0)})
print(os.nice(0))
child.communicate()
leave.set()
"""


def test_processes_of_the_fold_have_its_niceness() -> None:
    """The fold does so when it folds, long after its JVM was started."""
    command = [sys.executable, "-c", _ASK_OF_ALL]
    said = subprocess.run(command, start_new_session=True, capture_output=True, text=True, check=True)
    assert said.stdout.split("\n")[:2] == ["set()", str(min(19, os.nice(0) + 5))]
