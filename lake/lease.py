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
"""Seconds between two looks of a waiting fold."""


class LeaseLostError(RoutelakeError):
    """Another fold has the lake and lives. That passes: whoever is started again may find the lake free."""


class LeaseRecord(msgspec.Struct, frozen=True):
    """Contents of the lease object.

    Attributes:
        holder: The fold's name, for people; and its data directory's, by which it knows itself after a restart.
        term: How often the lake was taken.
        beat: Counts renewals, so that each is another object.
        released: Whether the holder has stopped, so that nobody need wait for the lease to end.
    """

    holder: str
    term: int
    beat: int = 0
    released: bool = False


_decoder = msgspec.json.Decoder(LeaseRecord)


class Lease:
    """One fold's claim to a lake.

    Args:
        store: The lake's.
        holder: Of this fold; the same after a restart in the same data directory, which one process uses at a time.
        clock_s: For tests.
        on_lost: Is told, on the lease's thread, when somebody else has it, or it cannot be kept.

    Attributes:
        term: Of this claim; 0 before it is held.
        is_renewed: Whether somebody else has renewed it while this one looked.
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
        """Tag of another fold's lease, and the time since which it is unchanged."""
        self.is_renewed = False
        self._is_lost = False
        self._renewing = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def try_to_take(self, from_another: Callable[[], None] = lambda: None) -> LeaseRecord | None:
        """Take the lease if it is free.

        Args:
            from_another: Called where it was not this fold that held it last, before the object says it is: from then
                on nobody could tell any more.

        Returns:
            None where it is ours now; else who holds it.

        Raises:
            StoreError: Storage failed.
            SetupError: Something else stands in its place.
            OSError: As ``from_another`` does; the lease is not taken.
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
            return before  # somebody was quicker: look again
        self._record, self.term = record, record.term
        return None

    def keep(self) -> None:
        """Renew it from now on, on a thread of its own."""
        self._thread = critical_thread(self._keep, "fold-lease")
        self._thread.start()

    def confirm(self) -> None:
        """Renew it now: if another has it, or had it in between, ``on_lost`` is told before this returns.

        Raises:
            StoreError: Storage failed.
        """
        try:
            self._renew()
        except TakenError:
            self._has_lost()

    def release(self) -> None:
        """Give it back, if it is still ours: who waits need not wait for its end."""
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
        except (OSError, SetupError):  # whose it is is for people alone
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
