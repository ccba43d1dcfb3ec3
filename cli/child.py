# SPDX-License-Identifier: Apache-2.0
"""A gateway or the fold as the child of a supervisor: ``python -m cli.child gateway``. See `cli.supervised`."""

from __future__ import annotations

import os
import sys

from cli import usage
from cli.supervised import settings_of
from runtime.process import run_to_end
from schemas.errors import RoutelakeError


def main() -> None:
    """Entry point."""
    kind = sys.argv[1]
    raise SystemExit(usage.guarded(lambda: _run(kind), [kind]))


def _run(kind: str) -> int:
    data, options = settings_of(kind, _first_line())
    if kind == "fold":
        from cli.fold import run as run_fold

        return run_fold(data, options)
    from cli.gateway import run as run_gateway

    return run_gateway(data, options)


def _first_line() -> str:
    """Read the first line of the standard input, without sys.stdin, because `on_parent_exit` bypasses its buffer."""
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(0, 65_536)
        if not part:
            raise RoutelakeError("the supervisor ended before it sent the options. Start routelake again.")
        text += part
    return text.decode()


if __name__ == "__main__":
    run_to_end(main)
