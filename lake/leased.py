# SPDX-License-Identifier: Apache-2.0
"""A lake in an object store in the hands of a fold: taken, kept, given back."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from lake.conditional_put import probe
from lake.lease import LOOK_S, Lease, LeaseLostError
from lake.publisher import FencedError, Publisher
from lake.store import Store, open_store
from runtime.disk import write_synced
from schemas.errors import one_line

log = structlog.get_logger("routelake.fold")

_HOLDER_FILE: Final = "holder"
_FETCH_EVERY_S: Final = 30.0
"""While another fold has the lake: then there is little left to fetch when it is taken over."""


class LeasedLake:
    """One fold's hold on a lake at a URL.

    Args:
        store: The lake's.
        copy_dir: Of the copy that the fold commits to; this process has its lock.
        lease: None for one of its own.

    Attributes:
        publisher: Publishes what is committed to the copy.
    """

    def __init__(self, store: Store, copy_dir: Path, lease: Lease | None = None) -> None:
        self._store = store
        self._holder = _holder_of(copy_dir)
        self.publisher = Publisher(store, copy_dir)
        self._is_taken = False
        self._lease = lease or Lease(store, self._holder, on_lost=self._lost)

    @classmethod
    def at(cls, url: str, copy_dir: Path) -> LeasedLake:
        """The one at a URL.

        Raises:
            SetupError: The store cannot be used, or does not keep one writer from another.
        """
        store = open_store(url)
        probe(store)
        return cls(store, copy_dir)

    def take(
        self, stopped: Callable[[float], bool], *, standby: bool, from_another: Callable[[], None] = lambda: None
    ) -> bool:
        """Wait until nobody else holds the lake, take it, and bring the copy up to date.

        Args:
            stopped: Waits for so many seconds; whether the process is to end.
            standby: Whether to wait for a holder that lives; else that is refused.
            from_another: Called where another fold may have written since this one last did, before the lake is taken:
                then this one's checkpoint is of no use. The other may have committed to some tables, and to
                routeCommitTable no more, which a new checkpoint takes back. Cut off behind the lease, the next start
                would find it held by this fold alone.

        Returns:
            False where the process is to end.

        Raises:
            LeaseLostError: Another fold holds it, and this one is no standby.
            FencedError: Another fold took it while this one was about to.
            SetupError: Its tables are damaged, or of another format.
            StoreError, OSError: Storage failed.
        """
        said, fetch_s = "", 0.0
        while True:
            try:
                held_by = self._lease.try_to_take(from_another)
                if held_by is None:
                    break
                if not standby and self._lease.is_renewed:
                    raise LeaseLostError(
                        f"{self._store.url} is held by another fold ({held_by.holder}), so this one ends. Restart "
                        "it after the other fold has stopped, or start it with --standby: then it waits for its turn."
                    )
                if said != held_by.holder:
                    said = held_by.holder
                    log.info("standing by" if standby else "waiting for the previous lease to expire", held_by=said)
                if standby and time.monotonic() >= fetch_s:
                    self.publisher.fetch()
                    fetch_s = time.monotonic() + _FETCH_EVERY_S
            except OSError as error:
                if not standby:
                    raise
                log.warning("cannot read the lake; retrying", error=one_line(error))
            if stopped(LOOK_S):
                return False
        self._lease.keep()
        self.publisher.fetch()
        self._confirm()  # who took the lake while this process stood still is not to be fenced out
        self.publisher.fence(self._holder, self._lease.term)
        self._confirm()  # so nobody else wrote since the lease said whose the lake was before
        self._is_taken = True
        log.info("took the lake", lake=self._store.url, term=self._lease.term)
        return True

    def close(self) -> None:
        """Publish what is left, and give the lake back, so that nobody need wait for the lease to end."""
        if self._is_taken and self.publisher.lost is None:
            try:
                self.publisher.publish()
                self.publisher.publish_rest()
            except Exception as error:
                log.warning("shutdown before all commits were uploaded; the next start resumes", error=one_line(error))
        self._lease.release()

    def _confirm(self) -> None:
        self._lease.confirm()
        if self.publisher.lost is not None:
            raise FencedError(self.publisher.lost)

    def _lost(self, why: str) -> None:
        self.publisher.lost = self.publisher.lost or why


def _holder_of(copy_dir: Path) -> str:
    """Names this machine and data directory, the same at every start."""
    file = copy_dir / _HOLDER_FILE
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        holder = f"{socket.gethostname()}:{copy_dir.parent} {uuid.uuid4().hex[:8]}"
        write_synced(file, holder.encode())
        return holder


__all__ = ["LeasedLake"]
