# SPDX-License-Identifier: Apache-2.0
"""A file of accounts, read again when it, or a file that it refers to, has changed. A bad one changes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from runtime.secrets import EMPTY, NO_TEXT, SecretError, read
from schemas.errors import SetupError
from security.accounts import Accounts
from security.accounts_text import parse_accounts
from security.yaml_nodes import FileError

_Stamp = tuple[int, int, int] | None


class AccountsFile:
    """The accounts in a file.

    Attributes:
        current: They, as they last could be read.
        problem: Why the file cannot be used as it is now; None: it can.
        loads: How often it was read well.
    """

    def __init__(self, path: Path, environ: Mapping[str, str] | None = None) -> None:
        """Read it.

        Args:
            path: Of the file; references in it are relative to its folder.
            environ: Holds what ``env:NAME`` means.

        Raises:
            SetupError: It cannot be used.
        """
        self._path = path
        self._environ = os.environ if environ is None else environ
        self._stamps: dict[Path, _Stamp] = {}
        self.current = Accounts()
        self.problem: str | None = None
        self.loads = 0
        self._load()
        if self.problem is not None:
            raise SetupError(f"--auth {path}: {self.problem}.")

    def check(self) -> bool:
        """Read it again if something has changed; whether that had an effect on `current` or `problem`.

        Looks at the disk: call it off the event loop.
        """
        if all(_stamp(path) == stamp for path, stamp in self._stamps.items()):
            return False
        self._load()
        return True

    def _load(self) -> None:
        self._stamps = {self._path: _stamp(self._path)}
        try:
            self.current = parse_accounts(self._path.read_text("utf-8"), self._resolve)
        except FileError as error:
            self.problem = str(error)
        except (OSError, UnicodeDecodeError) as error:
            self.problem = "is no text" if isinstance(error, UnicodeDecodeError) else _why(error)
        else:
            self.problem = None
            self.loads += 1

    def _resolve(self, reference: str) -> str:
        kind, _, name = reference.partition(":")
        place = name
        if kind == "file":
            path = self._path.parent / name
            self._stamps[path] = _stamp(path)
            place = str(path)
        try:
            return read(kind, place, self._environ).strip()
        except SecretError as error:
            if kind == "env":
                raise ValueError(f"the variable {name} is not set") from None
            is_known = error.why in (EMPTY, NO_TEXT)
            raise ValueError(f"{name} is {error.why}" if is_known else f"{name} cannot be read: {error.why}") from None


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _why(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"
