# SPDX-License-Identifier: Apache-2.0
"""`routelake admin ...` in this process."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any, NamedTuple
from unittest import mock

from cli.main import main


class Ran(NamedTuple):
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the JSON document it should be."""
        return json.loads(self.out)


def admin(*args: str) -> Ran:
    """Run a command; every ending is an exit code."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["routelake", "admin", *args]
    with mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
    return Ran(code, out.getvalue(), err.getvalue())
