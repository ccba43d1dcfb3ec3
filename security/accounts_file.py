# SPDX-License-Identifier: Apache-2.0
"""A file of accounts that is read again after it, or a file that it refers to, has changed. A bad file changes nothing.

A change is accepted at the second look that finds it. A file may be incomplete if it is shorter than before, ends
within a line or lacks an account. Such a file is accepted at the fifth look, because truncated YAML is often valid.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runtime.secrets import keep_from_children, read
from schemas.errors import SetupError
from security.accounts import Accounts
from security.accounts_text import FileError, parse_accounts
from security.watched_files import SETTLED_LOOKS, WatchedFiles, stamps_of

CUT_OFF_LOOKS: Final = 5
"""Number of consecutive looks with the same result after which a file with any contents counts as complete."""


class AccountsFile:
    """Accounts in a file.

    Attributes:
        current: Accounts of the last read without error.
        problem: Reason why the current file cannot be used. None if it can.
        loads: Number of times that the file was read without error.
    """

    def __init__(self, path: Path, environ: Mapping[str, str] | None = None) -> None:
        """Read the file.

        Args:
            path: Path of the file. References in the file are relative to its folder.
            environ: Values for ``env:NAME``. None: the environment of the process.

        Raises:
            SetupError: The file cannot be used.
        """
        self._path = path
        self._environ = os.environ if environ is None else environ
        self._files: dict[Path, object] = {path: None}
        """State of the file and of the files that it refers to, at the last read."""
        self._watched = WatchedFiles(self._files)
        self._text = ""
        self.current = Accounts()
        self.problem: str | None = None
        self.loads = 0
        self._load(is_whole=True)
        if self.problem is not None:
            raise SetupError(f"--auth {path}: {self.problem}. Correct the path or the file.")

    def check(self) -> bool:
        """Read the file again after a complete change. Return whether `current` or `problem` changed.

        It reads the disk, so call it off the event loop.
        """
        found = self._watched.look(self._files)
        if found == self._files or self._watched.same_looks < SETTLED_LOOKS:
            return False
        return self._load(is_whole=self._watched.same_looks >= CUT_OFF_LOOKS)

    def _load(self, *, is_whole: bool) -> bool:
        """Read the files. Return False if the file may be incomplete and was not accepted."""
        before, self._files = self._files, stamps_of([self._path])
        try:
            text = self._path.read_text("utf-8")
            accounts = parse_accounts(text, self._resolve)
            if not is_whole and self._may_be_cut_off(text, accounts):
                self._files = before
                return False
            self.current, self._text, self.problem = accounts, text, None
            self.loads += 1
        except FileError as error:
            self.problem = str(error)
        except (OSError, UnicodeDecodeError) as error:
            self.problem = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else _why(error)
        if self.problem is not None:
            self._files = stamps_of(before) | self._files
        return True

    def _may_be_cut_off(self, text: str, accounts: Accounts) -> bool:
        if text == self._text:
            return False
        lacks = not self.current.accounts.keys() <= accounts.accounts.keys()
        return lacks or len(text) < len(self._text) or not text.endswith("\n")

    def _resolve(self, reference: str) -> str:
        keep_from_children(reference)
        kind, _, name = reference.partition(":")
        if kind == "file":
            path = self._path.parent / name
            self._files |= stamps_of([path])
            name = str(path)
        return read(kind, name, self._environ).strip()


def _why(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"
