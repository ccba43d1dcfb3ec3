# SPDX-License-Identifier: Apache-2.0
"""Check that an object store honours conditional PUT, on which a single writer depends (`lake.publisher`)."""

from __future__ import annotations

import uuid

from lake.store import Store, StoreRefusedError, TakenError
from schemas.errors import SetupError, UnavailableError, one_line


def probe(store: Store) -> None:
    """Make sure that the store can be written, and keeps its word where a PUT has a condition.

    Raises:
        SetupError: It does not: two folds could write one version of a table, and neither would know. Or it may not be
            written, or there is no such bucket.
        UnavailableError: It cannot be reached; it may be later.
    """
    path = f".probe-{uuid.uuid4().hex}"
    try:
        store.put_new(path, b"1")
        try:
            with_condition = _is_refused(store, path)
        finally:
            store.delete([path])
    except (FileNotFoundError, StoreRefusedError) as error:
        raise SetupError(
            f"{store.url} cannot be written: {one_line(error)}. Check that the bucket exists and that the environment "
            "variables are right (docs/how-to/operate/object-store.md)."
        ) from error
    except (OSError, TakenError) as error:
        raise UnavailableError(f"{store.url} cannot be written: {one_line(error)}") from error
    if not with_condition:
        raise SetupError(
            f"{store.url}: this object store ignores If-None-Match or If-Match. routelake needs conditional PUT, so "
            "that two folds cannot commit the same version. Choose a store that has it "
            "(docs/how-to/operate/object-store.md)."
        )


def _is_refused(store: Store, path: str) -> bool:
    """Return True if the store checks both conditions; an object with the bytes ``1`` is at ``path``."""
    tag = store.get_tagged(path).tag
    try:
        store.put_new(path, b"2")
    except TakenError:
        pass
    else:
        return False
    newer = store.replace(path, b"3", tag)
    try:
        store.replace(path, b"4", tag)
    except TakenError:
        return newer != tag and store.get(path) == b"3"
    return False
