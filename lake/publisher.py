# SPDX-License-Identifier: Apache-2.0
"""Commits are published: from a staging folder into a lake's folder, and from the copy of a lake into its object store.

`publish` is the one way for both. What is published is there whole or not at all: data files come first, and an entry
is put last, only where none stands (a hard link, or a PUT with a condition).

**A lake in an object store** has a copy, which its one writer commits to. The copy is an ordinary lake in a folder of
the fold's machine: the newest version of each table and its log since the last checkpoint. Everything that writes a
lake works on it as on any other. What was committed there is then published in waves, each side by side: data files,
the entries of all tables, the entry of routeCommitTable. Only that last one makes the epoch exist, for readers of the
store as for those of a folder. Afterwards comes what readers can do without: intervals, checkpoints, the fold's own
reports.

**One writer.** An entry is put only where none stands. Whoever takes the lake over first puts an entry of its own, a
*fence*, behind the newest one of every table; where that is refused the writer before was just in time, so its entry is
fetched and the next place is tried. From then on that writer's next entry, in whichever table, meets a fence, and it
ends: however long it was stopped, and at whatever step. A lease (`lake.lease`) only keeps two from doing so to each
other again and again. What is replaced rather than added (the pointer to a checkpoint, reports) is put in the place of
what this writer knows, or not at all. Data files are put without a condition: nobody else knows their names.

Source: the Delta transaction protocol, "Delta Log Entries" (entries are put with
put-if-absent) and "Commit Provenance Information" (a commit that says nothing but who made it).
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
"""Between two copies of the fold's status."""


class FencedError(RoutelakeError):
    """Another fold has taken the lake: this one must write no more."""


class Target(Protocol):
    """A place for commits: a folder, or an object store. Paths are relative to it."""

    def put(self, path: str, data: Path, /) -> object:
        """Put a data file, whose name nobody else knows. Raises OSError."""

    def put_new(self, path: str, data: Path, /) -> object:
        """Put an entry where none stands, or the same does. Raises TakenError, OSError."""

    def side_by_side(self, work: Callable[[T], R], items: Iterable[T], /) -> list[R]:
        """Do work for each item; all have ended when the first error is raised."""


class Folder:
    """A folder as a target: files come there by hard links, so that no data is copied.

    Args:
        root: On the same file system as what is put there.
        may_copy: Whether another user's file, which Linux may not let be linked, is copied.
    """

    def __init__(self, root: Path, *, may_copy: bool = False) -> None:
        self._root = root
        self._may_copy = may_copy

    def put_new(self, path: str, data: Path) -> None:
        """Put a file where none stands, or the same does. Raises TakenError, OSError."""
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
        """Do work for each item, one after the other."""
        return [work(item) for item in items]


class Commit(NamedTuple):
    """A commit to be published.

    Attributes:
        table: Folder of its table, in the source as in the target; empty where they are the table's own.
        version: Of the table.
        entry: Decoded.
    """

    table: str
    version: int
    entry: Entry

    @classmethod
    def read(cls, source: Path, table: str, version: int) -> Self:
        """Read one from a folder. Raises FileNotFoundError where there is none, OSError, UnreadableError."""
        return cls(table, version, decode_entry((source / table / entry_name(version)).read_bytes()))

    @property
    def path(self) -> str:
        """Place of its entry in source and target."""
        return str(PurePosixPath(self.table, entry_name(self.version)))

    @property
    def files(self) -> list[str]:
        """Places of the files that it brings."""
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
    """Let a target have commits: all data files, then the entries, wave by wave.

    In a wave each table's entries come in order, the tables side by side. Cut off anywhere, a repetition goes on.

    Args:
        source: Folder that has the commits.
        target: Where they go.
        waves: They, each table's in the order of versions.
        there: Data files that the target has from an earlier try; those that are put are added.
        done: Called after each entry, on the thread that has put it.

    Raises:
        TakenError: Another commit stands in the place of one; nothing is changed there.
        OSError: Storage failed; calling again goes on.
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
    """The store and the copy. For one thread.

    Args:
        store: Where the lake is.
        copy_dir: Of the copy, which is this process's alone (`lake.delta.ddl.lock_lake`).

    Attributes:
        copy: The copy, and how far it and the store agree.
        lost: Why this process must write no more; None while it may.
        on_published: Called with each new version of routeCommitTable in the store; must neither wait nor raise.
    """

    def __init__(self, store: Store, copy_dir: Path) -> None:
        self.store = store
        self.lost: str | None = None
        self.on_published: Callable[[int], None] | None = None
        self.copy = LocalReplica(store, copy_dir)
        self._uploaded: set[str] = set()
        """Files of entries that are not published yet."""
        self._in_doubt: dict[str, list[bytes]] = {}
        """What was put in another's place, by path, and may stand there: the answer was lost."""
        self._reported_s = 0.0
        self._is_held = False

    def fetch(self) -> None:
        """Bring the copy to the newest version of every table; what an earlier process committed to it alone is gone.

        Called again before the lake is taken it asks the store for what is new.

        Raises:
            SetupError: The lake is of another format, or its tables are damaged.
            StoreError, OSError: Storage failed.
        """
        self._is_held = False
        self._uploaded.clear()
        self._in_doubt.clear()
        self.copy.fetch()

    # --- the lake is taken over ---

    def fence(self, holder: str, term: int) -> None:
        """Let whoever wrote before find its next commit's place taken, in every table; then take what it had written.

        Args:
            holder: Who takes the lake over.
            term: How many did before.

        Raises:
            StoreError, OSError, SetupError: As `follow`; some tables may have their fence: calling again goes on.
        """
        self.store.side_by_side(lambda name: self._fence(name, holder, term), list(self.copy.versions))
        self.copy.follow()
        for name in _INTERVALS:
            if name not in self.copy.versions:  # what is left there is of no use
                there = [found.path for found in self.store.listed(name)]
                # What a log begins with goes first: cut off anywhere, there is no table.
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
        """Let the store have the epochs that the copy has more. Nothing is asked of the store where there are none.

        Raises:
            FencedError: Another fold has taken the lake.
            StoreError, OSError: Storage failed; calling again goes on.
        """
        commits = ROUTE_COMMIT_TABLE.name
        # Who reads routeCommitTable finds every version that it names.
        published = self._publish([name for name in _EPOCHS if name != commits], [commits])
        if self.on_published is not None and any(commit.table == commits for commit in published):
            self.on_published(self.copy.versions[commits])

    def publish_rest(self) -> None:
        """The same for what no reader of epochs waits for: intervals, checkpoints, the fold's reports.

        Raises:
            FencedError: As `publish`; storage that failed is tried again the next time, and says so.
        """
        try:
            self._publish_rest()
        except OSError as error:
            log.warning("cannot upload interval tables, checkpoints or reports; retrying", error=one_line(error))

    def publish_all(self) -> None:
        """Both, for who ends with that.

        Raises:
            FencedError, StoreError, OSError: As `publish`.
        """
        self.publish()
        self._publish_rest()

    # --- what only takes up room in the store ---

    def vacuum(self, name: str, hours: int) -> None:
        """Delete a table's files in the store that no version of the last hours has.

        Without a commit, which delta-rs would make: a fold that has lost the lake meanwhile deletes what is of no use
        to anybody, and no more.

        Raises:
            StoreError, DeltaError: Storage failed.
        """
        table = DeltaTable(f"{self.store.url}/{name}")
        # They are named as objects are, and not percent-encoded once more, as an entry of the log has them.
        self.store.delete([f"{name}/{path}" for path in table.vacuum(hours, dry_run=True, full=True)])

    def clean_log(self, name: str) -> None:
        """Delete entries of a table's log in the store that are older than its retention.

        Raises:
            DeltaError: Storage failed.
        """
        DeltaTable(f"{self.store.url}/{name}").cleanup_metadata()

    def _publish_rest(self) -> None:
        try:
            self._publish(_INTERVALS)  # which never run ahead of the epochs
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
        """Put what is known to stand there, or not to. Raises TakenError, StoreError."""
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
        """Return True if this writer put the object that is in the way. Raises StoreError."""
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
        """`_replace` by a file of the copy, if it is there."""
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
