# SPDX-License-Identifier: Apache-2.0
"""A second machine, as far as a network goes: a network namespace, and a cable (veth) that can be pulled.

A pulled cable loses packets without a sign: no connection is closed, as between machines with a dead switch.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final

HERE: Final = "10.77.0.1"
"""This machine's address on the cable."""
THERE: Final = "10.77.0.2"
_CLONE_NEWNET: Final = 0x4000_0000


class Machine:
    """Context manager around a second machine; only in a network namespace of this process's own.

    Raises:
        OSError, subprocess.CalledProcessError: it cannot be had.
    """

    def __init__(self) -> None:
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Machine:
        """Make it, and plug the cable in."""
        # It ends when its standard input does: with this process at the latest.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        try:
            _ip("link", "add", "cable", "type", "veth", "peer", "name", "end", "netns", str(self._holder.pid))
            _ip("address", "add", f"{HERE}/24", "dev", "cable")
            _ip("link", "set", "cable", "up")
            for what in (
                ("address", "add", f"{THERE}/24", "dev", "end"),
                ("link", "set", "end", "up"),
                ("link", "set", "lo", "up"),
            ):
                _ip(*what, through=self.through)
        except BaseException:
            self._end()
            raise
        return self

    @property
    def _namespace(self) -> Path:
        assert self._holder is not None
        return Path(f"/proc/{self._holder.pid}/ns/net")

    @property
    def through(self) -> tuple[str, ...]:
        """A command that runs the command behind it there."""
        return ("nsenter", f"--net={self._namespace}", "--")

    def enter(self) -> None:
        """Let the calling thread, and what it connects from now on, be there.

        Raises:
            OSError: it may not.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open(self._namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if libc.setns(fd, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(fd)

    def pull(self) -> None:
        """Pull the cable."""
        _ip("link", "set", "cable", "down")

    def plug(self) -> None:
        """Plug it in again."""
        _ip("link", "set", "cable", "up")

    def _end(self) -> None:
        if self._holder is not None:
            self._holder.send_signal(signal.SIGKILL)
            self._holder.communicate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Both ends of the cable go with it."""
        self._end()


def _ip(*what: str, through: tuple[str, ...] = ()) -> None:
    subprocess.run([*through, "ip", *what], check=True)
