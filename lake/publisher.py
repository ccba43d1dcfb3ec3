# SPDX-License-Identifier: Apache-2.0
"""Publishing of commits, from a staging folder into a lake folder and from a local copy into an object store.

Both use `publish`. A commit becomes visible whole or not at all: its data files come first, its log entry last. The
entry is written only if the log has no entry of that version (by a hard link or a conditional PUT).

**A lake in an object store** has a local copy, to which its one writer commits. The copy is an ordinary lake in a
folder on the fold's machine. It has the newest version of each table and the log since the last checkpoint. All code
that writes a lake works on the copy as on any other lake. The publisher then uploads the commits in waves, each in
parallel: data files, the entries of all other tables, the entry of routeCommitTable. The epoch exists only after this
last entry, for readers of the store as for readers of a folder. Readers do not wait for the rest, which follows:
interval tables, checkpoints, the reports of the fold.

**One writer.** The store accepts an entry only if the log has none of that version. A fold that takes over the lake
first adds an entry of its own, a *fence*, after the newest entry of every table. If the store refuses that, the
previous writer was faster: the fold fetches its entry and tries the next version. The next entry of the previous
writer then meets a fence, in any table, and that writer ends. This holds for any pause of that writer, at any step.
The lease (`lake.lease`) only keeps two folds from fencing each other repeatedly. An object that is replaced, such as a
checkpoint pointer or a report, is replaced only if it is still the one that this writer knows. Data files are put
without a condition, because no other process knows their names.

Source: the Delta transaction protocol, "Delta Log Entries" (entries are written with put-if-absent) and "Commit
Provenance Information" (a commit that only names its author).
"""

from __future__ import annotations

import filecmp
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import unquote

import structlog
from deltalake import DeltaTable

from lake.delta.ddl import LAKE_FILE
from lake.delta.log import (
    LAST_CHECKPOINT,
    Entry,
    checkpoint_name,
    commit_info,
    decode_entry,
    encode_entry,
    entry_name,
    read_last_checkpoint,
)
from lake.local_replica import LocalReplica
from lake.store import Store, StoreError, Tagged, TakenError
from schemas.errors import RoutelakeError, one_line
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES, FOLD_FAILURE_FILE, FOLD_STATUS_FILE, ROUTE_COMMIT_TABLE

log = structlog.get_logger("routelake.fold")

T = TypeVar("T")
R = TypeVar("R")

FENCE: Final = "FENCE"
"""Operation of an empty entry after which the previous writer must stop."""

_EPOCHS: Final = tuple(table.name for table in ALL_TABLES)
_INTERVALS: Final = tuple(table.name for table in INTERVAL_TABLES)
_REPORT_EVERY_S: Final = 2.0
"""Seconds between two uploads of the fold's status."""


class FencedError(RoutelakeError):
    """Another fold has taken over the lake. This fold must stop writing."""


class Target(Protocol):
    """Destination of commits: a folder or an object store. Paths are relative to it."""

    def put(self, path: str, data: Path, /) -> object:
        """Put a data file under a name that only this process knows. Raises OSError."""

    def put_new(self, path: str, data: Path, /) -> object:
        """Put a log entry if the path is free or has an equal one. Raises TakenError, OSError."""

    def side_by_side(self, work: Callable[[T], R], items: Iterable[T], /) -> list[R]:
        """Call `work` for each item. The first error is raised after all calls have ended."""


class Folder:
    """A folder as a target. Files are hard-linked, so that no data is copied.

    Args:
        root: The folder, on the same file system as the files to put.
        may_copy: Copy a file that cannot be linked. Linux may refuse links to files of another user.
    """

    def __init__(self, root: Path, *, may_copy: bool = False) -> None:
        self._root = root
        self._may_copy = may_copy

    def put_new(self, path: str, data: Path) -> None:
        """Put a file if the path is free or has an equal one. Raises TakenError, OSError."""
        target = self._root / path
        try:
            try:
                os.link(data, target)
            except FileNotFoundError:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(data, target)
        except FileExistsError as error:
            if not filecmp.cmp(data, target, shallow=False):
                raise TakenError(str(target)) from error
        except PermissionError:
            if not self._may_copy:
                raise
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(data, target)

    put = put_new

    def side_by_side(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Call `work` for each item, one after the other."""
        return [work(item) for item in items]


class Commit(NamedTuple):
    """A commit to publish.

    Attributes:
        table: Folder of the table, the same in source and target. Empty if source and target are the table itself.
        version: Version of the table.
        entry: Decoded log entry.
    """

    table: str
    version: int
    entry: Entry

    @classmethod
    def read(cls, source: Path, table: str, version: int) -> Self:
        """Read a commit from a folder. Raises FileNotFoundError (no such version), OSError, UnreadableError."""
        return cls(table, version, decode_entry((source / table / entry_name(version)).read_bytes()))

    @property
    def path(self) -> str:
        """Path of the log entry in source and target."""
        return str(PurePosixPath(self.table, entry_name(self.version)))

    @property
    def files(self) -> list[str]:
        """Paths of the files that the commit adds."""
        brought = (*self.entry.added, *self.entry.feed)
        return [str(PurePosixPath(self.table, unquote(file.path))) for file in brought]


def publish(
    source: Path,
    target: Target,
    waves: Sequence[Sequence[Commit]],
    *,
    there: set[str] | None = None,
    done: Callable[[Commit], None] = lambda commit: None,
) -> None:
    """Publish commits to a target: first the data files, then the log entries, in waves.

    In a wave, the entries of a table go in order and the tables in parallel. An interrupted call can be repeated.

    Args:
        source: Folder with the commits.
        target: Destination.
        waves: Commits of each wave, those of a table in the order of versions.
        there: Paths of data files that the target has from an earlier try. Each uploaded file is added.
        done: Called after each entry, on the thread that has put the entry.

    Raises:
        TakenError: The target has a different entry of that version, which stays unchanged.
        OSError: Storage failed. Another call continues.
    """
    known = set[str]() if there is None else there

    def put_file(path: str) -> None:
        target.put(path, source / path)
        known.add(path)

    def put_entries(commits: list[Commit]) -> None:
        for commit in commits:
            target.put_new(commit.path, source / commit.path)
            done(commit)

    files = (path for wave in waves for commit in wave for path in commit.files)
    target.side_by_side(put_file, [path for path in files if path not in known])
    for wave in waves:
        by_table: dict[str, list[Commit]] = {}
        for commit in wave:
            by_table.setdefault(commit.table, []).append(commit)
        target.side_by_side(put_entries, by_table.values())


class Publisher:
    """Uploads the commits of a local copy to the object store. For one thread.

    Args:
        store: Object store of the lake.
        copy_dir: Folder of the copy. Only this process uses it (`lake.delta.ddl.lock_lake`).

    Attributes:
        copy: The copy, and the versions up to which it equals the store.
        lost: Reason why this process must stop writing, or None while it may write.
        on_published: Callback with each new version of routeCommitTable in the store. It must not block or raise.
    """

    def __init__(self, store: Store, copy_dir: Path) -> None:
        self.store = store
        self.lost: str | None = None
        self.on_published: Callable[[int], None] | None = None
        self.copy = LocalReplica(store, copy_dir)
        self._uploaded: set[str] = set()
        """Uploaded data files of entries that are not published yet."""
        self._in_doubt: dict[str, list[bytes]] = {}
        """Replacements with a lost answer: their bytes, by path. The store may or may not have them."""
        self._reported_s = 0.0
        self._is_held = False

    def fetch(self) -> None:
        """Bring the copy to the newest version of every table.

        Commits that an earlier process made only in the copy are removed. Another call before the lake is taken only
        fetches what is new in the store.

        Raises:
            SetupError: The lake is of another format, or its tables are damaged.
            StoreError, OSError: Storage failed.
        """
        self._is_held = False
        self._uploaded.clear()
        self._in_doubt.clear()
        self.copy.fetch()

    # --- take over the lake ---

    def fence(self, holder: str, term: int) -> None:
        """Add a fence to every table, so that the next commit of the previous writer fails. Then fetch its commits.

        Args:
            holder: Name of the fold that takes over the lake.
            term: Term of its lease.

        Raises:
            StoreError, OSError, SetupError: As `LocalReplica.follow`. Some tables may have their fence already. Another
                call continues.
        """
        self.store.side_by_side(lambda name: self._fence(name, holder, term), list(self.copy.versions))
        self.copy.follow()
        for name in _INTERVALS:
            if name not in self.copy.versions:  # the store has only an unusable rest of this table
                there = [found.path for found in self.store.listed(name)]
                # The start of the log goes first. If this is interrupted, no reader finds a table.
                begins = {f"{name}/{LAST_CHECKPOINT}", f"{name}/{entry_name(0)}"}
                self.store.delete([path for path in there if path in begins])
                self.store.delete([path for path in there if path not in begins])
                self.copy.known.pop(f"{name}/{LAST_CHECKPOINT}", None)
        self._is_held = True

    def _fence(self, name: str, holder: str, term: int) -> None:
        while True:
            text = encode_entry([commit_info(FENCE, {"holder": holder, "term": str(term)})])
            fence = Commit(name, self.copy.versions[name] + 1, decode_entry(text))
            try:
                self.store.put_new(fence.path, text)
            except TakenError:
                self.copy.follow_log(name)
                continue
            (self.copy.folder / fence.path).write_bytes(text)
            self._have(fence)
            return

    # --- from the copy into the store ---

    def publish(self) -> None:
        """Upload the new epochs of the copy. Without new epochs, no request is sent to the store.

        Raises:
            FencedError: Another fold has taken over the lake.
            StoreError, OSError: Storage failed. Another call continues.
        """
        commits = ROUTE_COMMIT_TABLE.name
        # routeCommitTable comes last, so that its readers find every version that it names.
        published = self._publish([name for name in _EPOCHS if name != commits], [commits])
        if self.on_published is not None and any(commit.table == commits for commit in published):
            self.on_published(self.copy.versions[commits])

    def publish_rest(self) -> None:
        """Upload the interval tables, checkpoints and reports of the fold, for which no reader of epochs waits.

        If storage fails, this is logged and the next call tries again.

        Raises:
            FencedError: Another fold has taken over the lake.
        """
        try:
            self._publish_rest()
        except OSError as error:
            log.warning("cannot upload interval tables, checkpoints or reports; retrying", error=one_line(error))

    def publish_all(self) -> None:
        """Upload epochs and the rest, before the process ends.

        Raises:
            FencedError, StoreError, OSError: As `publish`.
        """
        self.publish()
        self._publish_rest()

    # --- clean up the store ---

    def vacuum(self, name: str, hours: int) -> None:
        """Delete the files of a table in the store that no version of the last `hours` uses.

        delta-rs would add a commit to its vacuum, and this does not. So a fold that has lost the lake meanwhile only
        deletes files that no reader needs.

        Raises:
            StoreError, DeltaError: Storage failed.
        """
        table = DeltaTable(f"{self.store.url}/{name}")
        # vacuum returns object names. The paths in a log entry are percent-encoded once more.
        self.store.delete([f"{name}/{path}" for path in table.vacuum(hours, dry_run=True, full=True)])

    def clean_log(self, name: str) -> None:
        """Delete entries of a table's log in the store that are older than its retention.

        Raises:
            DeltaError: Storage failed.
        """
        DeltaTable(f"{self.store.url}/{name}").cleanup_metadata()

    def _publish_rest(self) -> None:
        try:
            self._publish(_INTERVALS)  # after the epochs, so that intervals are never ahead of them
            self._replace_file(LAKE_FILE)  # after the tables, so that a lake with the marker has every one of them
            self._publish_checkpoints()
            self._publish_reports()
        except TakenError as error:
            raise self._fenced(error) from error

    def _publish(self, *waves: Sequence[str]) -> list[Commit]:
        if self.lost is not None:
            raise FencedError(self.lost)
        if not self._is_held:
            raise RuntimeError(f"{self.store.url} is not held by this fold: nothing is published")
        pending = [[commit for name in wave for commit in self._pending(name)] for wave in waves]
        if not any(pending):
            return []
        try:
            publish(self.copy.folder, self.store, pending, there=self._uploaded, done=self._have)
        except TakenError as error:
            raise self._fenced(error) from error
        self._uploaded.clear()
        return [commit for wave in pending for commit in wave]

    def _fenced(self, error: TakenError) -> FencedError:
        self.lost = f"{error} was written by another fold, which has taken over the lake"
        return FencedError(self.lost)

    def _replace(self, path: str, data: bytes) -> None:
        """Replace an object if it is still the known one, or create a missing one. Raises TakenError, StoreError."""
        known = self.copy.known.get(path)
        if known is not None and known.data == data and path not in self._in_doubt:
            return
        try:
            tag = self.store.put_new(path, data) if known is None else self.store.replace(path, data, known.tag)
        except StoreError:
            self._in_doubt.setdefault(path, []).append(data)
            raise
        except TakenError:
            if not self._was_put(path):
                raise
            self._replace(path, data)
        else:
            self._in_doubt.pop(path, None)
            self.copy.known[path] = Tagged(data, tag)

    def _was_put(self, path: str) -> bool:
        """Return True if this writer itself put the object that the store has. Raises StoreError."""
        there = self.store.find(path)
        if there is None or there.data not in self._in_doubt.pop(path, ()):
            return False
        self.copy.known[path] = there
        return True

    def _pending(self, name: str) -> Iterator[Commit]:
        version = self.copy.versions.get(name, -1)
        if version >= 0 and not (self.copy.folder / name / entry_name(version)).exists():
            raise RuntimeError(f"{self.copy.folder / name} was replaced by a new table: nothing of it is published")
        with suppress(FileNotFoundError):
            for following in count(version + 1):
                yield Commit.read(self.copy.folder, name, following)

    def _have(self, commit: Commit) -> None:
        self.copy.versions[commit.table] = commit.version

    def _replace_file(self, path: str) -> None:
        """Replace an object with a file of the copy, if there is such a file."""
        with suppress(FileNotFoundError):
            self._replace(path, (self.copy.folder / path).read_bytes())

    def _publish_checkpoints(self) -> None:
        for name in self.copy.versions:
            last = read_last_checkpoint(self.copy.folder / name)
            if (
                last is None
                or last.version <= self.copy.checkpoints.get(name, -1)
                or last.version > self.copy.versions[name]
            ):
                continue
            file = checkpoint_name(last.version)
            self.store.put(f"{name}/{file}", self.copy.folder / name / file)
            self._replace_file(f"{name}/{LAST_CHECKPOINT}")
            self.copy.checkpoints[name] = last.version

    def _publish_reports(self) -> None:
        if time.monotonic() - self._reported_s < _REPORT_EVERY_S:
            return
        self._reported_s = time.monotonic()
        for name in (FOLD_STATUS_FILE, FOLD_FAILURE_FILE):
            self._replace_file(name)
