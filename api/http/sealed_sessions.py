# SPDX-License-Identifier: Apache-2.0
"""The tokens of the console's sessions, sealed: whoever has a session's id can open its token, and nobody else.

In memory, or in a folder that all worker processes of a gateway share: then a session is there, and has ended, in all
of them at once. A folder holds nothing that is worth stealing, since ids are in browsers alone.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from schemas.errors import UnavailableError

SESSION_S: Final = 12 * 3600
"""A session lasts that long, whatever is done in it."""
MOST: Final = 1000
"""So many are kept; a new one ends the oldest."""
_NONCE: Final = bytes(12)
"""May be any: a key seals one text, since an id is of one session."""


class _Store(Protocol):
    def put(self, name: str, sealed: bytes) -> None: ...

    def get(self, name: str) -> bytes | None: ...

    def drop(self, name: str) -> None: ...


class SealedSessionStore:
    """Tokens by the id of their session."""

    def __init__(self, folder: Path | None = None) -> None:
        """None yet, or those that the folder has.

        Args:
            folder: Of this user alone; made if it is not there. None: they are kept in memory.
        """
        self._store: _Store = _Memory() if folder is None else _Folder(folder)

    def keep(self, session: str, token: str) -> None:
        """Keep a token for `SESSION_S`.

        Args:
            session: An id that nobody can guess, and that no other session has had.
            token: Of whoever has the session.

        Raises:
            UnavailableError: The folder takes nothing.
        """
        text = f"{time.monotonic() + SESSION_S} {token}".encode("latin-1")  # of the machine: workers have one clock
        self._store.put(_name(session), AESGCM(_key(session)).encrypt(_NONCE, text, None))

    def token(self, session: str) -> bytes | None:
        """The token of a session that has not ended."""
        sealed = self._store.get(_name(session))
        if sealed is None:
            return None
        try:
            ends_s, _, token = AESGCM(_key(session)).decrypt(_NONCE, sealed, None).partition(b" ")
        except InvalidTag:
            return None
        return token if time.monotonic() < float(ends_s) else None

    def forget(self, session: str) -> None:
        """It has ended."""
        self._store.drop(_name(session))


class _Memory:
    """Of this process."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, bytes] = OrderedDict()

    def put(self, name: str, sealed: bytes) -> None:
        self._found[name] = sealed
        while len(self._found) > MOST:
            self._found.popitem(last=False)

    def get(self, name: str) -> bytes | None:
        return self._found.get(name)

    def drop(self, name: str) -> None:
        self._found.pop(name, None)


class _Folder:
    """A file each. Nobody asks for one before it is whole: its id is told afterwards."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def put(self, name: str, sealed: bytes) -> None:
        try:
            self._make_room()
            (self._folder / name).write_bytes(sealed)
        except OSError as error:
            raise UnavailableError(f"the gateway cannot keep sessions: {error.strerror}") from error

    def _make_room(self) -> None:
        found: list[tuple[int, Path]] = []
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another worker has ended it
                found.append((path.stat().st_mtime_ns, path))
        for _, path in sorted(found)[: max(0, len(found) - MOST + 1)]:
            path.unlink(missing_ok=True)

    def get(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except OSError:
            return None

    def drop(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink()


def _name(session: str) -> str:
    """What is looked up, so that the time of it tells nothing of the ids that there are."""
    return _digest(session, b"name").hex()


def _key(session: str) -> bytes:
    return _digest(session, b"key")


def _digest(session: str, person: bytes) -> bytes:
    return hashlib.blake2b(session.encode("latin-1", "replace"), digest_size=32, person=person).digest()
