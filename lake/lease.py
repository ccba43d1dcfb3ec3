# SPDX-License-Identifier: Apache-2.0
"""Lease of a lake in an object store: an object that the writing fold renews.

The lease keeps folds from taking the lake from each other. If two folds believe that they hold it, the fences keep the
lake consistent (`lake.publisher`). No other machine's clock is used: the lease has expired when it was not renewed for
`EXPIRE_S` of the observer's own time. Each change of the lease is a conditional PUT, so that exactly one of several
folds gets it.

`LeasedLake` is lease, local copy and publisher together: a fold takes the lake, keeps it and gives it back.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from lake.publisher import FencedError, Publisher
from lake.store import Store, Tag, Tagged, TakenError, open_store, probe
from runtime.disk import write_synced
from runtime.supervised_tasks import critical_thread
from schemas.errors import RoutelakeError, SetupError, one_line

log = structlog.get_logger("routelake.fold")

LEASE_FILE: Final = "fold.lease"
RENEW_S: Final = 3.0
EXPIRE_S: Final = 15.0
LOOK_S: Final = 1.0
"""Seconds between two checks by a waiting fold."""


class LeaseLostError(RoutelakeError):
    """Another running fold holds the lake. The error is temporary: a later start may find the lake free."""


class LeaseRecord(msgspec.Struct, frozen=True):
    """Contents of the lease object.

    Attributes:
        holder: Name of the fold and its data directory. By it a fold recognizes its own lease after a restart.
        term: Number of times that the lake was taken.
        beat: Number of renewals, so that each renewal is a different object.
        released: True if the holder has stopped, so that no fold needs to wait for the lease to expire.
    """

    holder: str
    term: int
    beat: int = 0
    released: bool = False


_decoder = msgspec.json.Decoder(LeaseRecord)


class Lease:
    """The lease that one fold holds on a lake.

    Args:
        store: Object store of the lake.
        holder: Name of this fold, the same after a restart in the same data directory. One process uses that at a time.
        clock_s: Monotonic clock in seconds. Tests replace it.
        on_lost: Callback on the lease's thread, if another fold took the lease or it cannot be renewed.

    Attributes:
        term: Term of this fold, or 0 while it does not hold the lease.
        is_renewed: True if another fold was seen to renew the lease.
    """

    def __init__(
        self,
        store: Store,
        holder: str,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        on_lost: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.term = 0
        self._store = store
        self._holder = holder
        self._clock_s = clock_s
        self._on_lost = on_lost
        self._record = LeaseRecord("", 0)
        self._tag = Tag(None, None)
        self._seen: tuple[Tag, float] | None = None
        """Tag of another fold's lease, and the time in seconds since which it is unchanged."""
        self.is_renewed = False
        self._is_lost = False
        self._renewing = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def try_to_take(self, from_another: Callable[[], None] = lambda: None) -> LeaseRecord | None:
        """Take the lease if it is free.

        Args:
            from_another: Called if another fold held the lease last, before the object names this fold. Afterwards the
                previous holder would be unknown.

        Returns:
            None if this fold holds the lease now, otherwise the record of its holder.

        Raises:
            StoreError: Storage failed.
            SetupError: The object is not a lease.
            OSError: ``from_another`` raised it. The lease is not taken.
        """
        found = self._store.find(LEASE_FILE)
        if found is None:
            return self._take(LeaseRecord("", 0), None, from_another)
        record = _record_of(found, self._store.url)
        if not record.released and record.holder != self._holder and not self._has_ended(found.tag):
            return record
        return self._take(record, found.tag, from_another)

    def _has_ended(self, tag: Tag) -> bool:
        now_s = self._clock_s()
        if self._seen is None or self._seen[0] != tag:
            self.is_renewed |= self._seen is not None
            self._seen = (tag, now_s)
        return now_s - self._seen[1] >= EXPIRE_S

    def _take(self, before: LeaseRecord, tag: Tag | None, from_another: Callable[[], None]) -> LeaseRecord | None:
        if before.holder != self._holder:
            from_another()
        record = LeaseRecord(self._holder, before.term + 1)
        data = msgspec.json.encode(record)
        try:
            if tag is None:
                self._tag = self._store.put_new(LEASE_FILE, data)
            else:
                self._tag = self._store.replace(LEASE_FILE, data, tag)
        except TakenError:
            self._seen = None
            return before  # another fold was faster: the next try reads the lease again
        self._record, self.term = record, record.term
        return None

    def keep(self) -> None:
        """Start a thread that renews the lease."""
        self._thread = critical_thread(self._keep, "fold-lease")
        self._thread.start()

    def confirm(self) -> None:
        """Renew the lease now.

        If another fold holds it, or held it in between, ``on_lost`` is called before this returns.

        Raises:
            StoreError: Storage failed.
        """
        try:
            self._renew()
        except TakenError:
            self._has_lost()

    def release(self) -> None:
        """Release the lease if this fold still holds it, so that a waiting fold can take it before it expires."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(EXPIRE_S)
        if self.term and not self._is_lost:
            try:
                self._renew(released=True)
            except (OSError, TakenError) as error:
                log.warning("cannot release the lease of the lake", error=str(error))
            self.term = 0

    def _keep(self) -> None:
        while not self._end.wait(RENEW_S):
            try:
                self._renew()
            except TakenError:
                self._has_lost()
                return
            except OSError as error:
                log.warning("cannot renew the lease of the lake; retrying", error=str(error))
            except Exception as error:
                self._is_lost = True
                self._on_lost(f"the lease of {self._store.url} cannot be renewed: {type(error).__name__}: {error}")
                return

    def _has_lost(self) -> None:
        self._is_lost = True
        try:
            found = self._store.find(LEASE_FILE)
            holder = "nobody" if found is None else _record_of(found, self._store.url).holder
        except (OSError, SetupError):  # the name of the holder is only for the message
            holder = "another fold"
        self._on_lost(f"the lease of {self._store.url} is held by {holder} now")

    def _renew(self, *, released: bool = False) -> None:
        with self._renewing:
            record = msgspec.structs.replace(self._record, beat=self._record.beat + 1, released=released)
            self._tag = self._store.replace(LEASE_FILE, msgspec.json.encode(record), self._tag)
            self._record = record


def _record_of(found: Tagged, url: str) -> LeaseRecord:
    try:
        return _decoder.decode(found.data)
    except msgspec.DecodeError as error:
        raise SetupError(
            f"{url}/{LEASE_FILE} is not a lease of a fold ({error}). Delete it while no fold runs."
        ) from error


_HOLDER_FILE: Final = "holder"
_FETCH_EVERY_S: Final = 30.0
"""Seconds between fetches while another fold holds the lake. So a takeover has little left to fetch."""


class LeasedLake:
    """A lake at a URL, with the lease, the local copy and the publisher of one fold.

    Args:
        store: Object store of the lake.
        copy_dir: Folder of the copy that the fold commits to. This process has its lock.
        lease: Lease to use. None makes a new one.

    Attributes:
        publisher: Publishes the commits of the copy.
    """

    def __init__(self, store: Store, copy_dir: Path, lease: Lease | None = None) -> None:
        self._store = store
        self._holder = _holder_of(copy_dir)
        self.publisher = Publisher(store, copy_dir)
        self._is_taken = False
        self._lease = lease or Lease(store, self._holder, on_lost=self._lost)

    @classmethod
    def at(cls, url: str, copy_dir: Path) -> LeasedLake:
        """Open the lake at a URL.

        Raises:
            SetupError: The store cannot be used, or ignores conditions of a PUT, which keep two writers apart.
        """
        store = open_store(url)
        probe(store)
        return cls(store, copy_dir)

    def take(
        self, stopped: Callable[[float], bool], *, standby: bool, from_another: Callable[[], None] = lambda: None
    ) -> bool:
        """Wait until no other fold holds the lake, take it, and bring the copy up to date.

        Args:
            stopped: Waits for that many seconds and returns True if the process must end.
            standby: True to wait for a running holder, False to raise an error instead.
            from_another: Called before the lake is taken, if another fold may have written since this fold last did.
                The checkpoint of this fold is then of no use. The other fold may have committed to some tables but not
                to routeCommitTable, and a new checkpoint undoes that. After the lease is taken it would be too late: if
                this fold were interrupted, its next start would see only its own name in the lease.

        Returns:
            False if the process must end.

        Raises:
            LeaseLostError: Another fold holds the lake, and ``standby`` is False.
            FencedError: Another fold took the lake at the same time.
            SetupError: The tables are damaged or of another format.
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
        self._confirm()  # a fold that took the lake while this process was paused must not be fenced
        self.publisher.fence(self._holder, self._lease.term)
        self._confirm()  # so no other fold wrote since this fold read the previous holder from the lease
        self._is_taken = True
        log.info("took the lake", lake=self._store.url, term=self._lease.term)
        return True

    def close(self) -> None:
        """Publish the remaining commits and release the lease, so that the next fold need not wait for its expiry."""
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
    """Return the name of this machine and data directory, the same at every start."""
    file = copy_dir / _HOLDER_FILE
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        holder = f"{socket.gethostname()}:{copy_dir.parent} {uuid.uuid4().hex[:8]}"
        write_synced(file, holder.encode())
        return holder
