# SPDX-License-Identifier: Apache-2.0
"""Tables of a lake at the versions that a commit names, opened once, and what storage's errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lake.delta.log import is_local, table_uri
from lake.history.epochs import Recent
from lake.history.reconstruct import is_up_to
from schemas.errors import RoutelakeError, UnavailableError, one_line
from schemas.intervals import INTERVAL_TABLES
from schemas.route_commit import RouteCommit
from schemas.tables import Table

_TABLES_BYTES: Final = 16 * 1024 * 1024
_TABLE_BYTES: Final = 256 * 1024
"""What an open table holds beside its list of files. Measured, with 50, 500 and 2,000 files: 0.24, 0.61 and 0.71 MB in
all, where the lists are 14, 122 and 480 kB as Arrow."""
_LISTS: Final = 3
"""How often it holds that list, at most: so measured."""


class PastTables:
    """The tables of one lake. Safe for threads.

    Args:
        lake_dir: Directory or URI of the lake; need not exist yet.
    """

    def __init__(self, lake_dir: str) -> None:
        """Nothing is opened yet."""
        self._lake_dir = lake_dir
        self._tables: Recent[tuple[str, int], DeltaTable] = Recent(_TABLES_BYTES)

    def forget(self) -> None:
        """Another lake has taken its place."""
        self._tables.clear()

    def at(self, spec: Table, commit: RouteCommit) -> DeltaTable:
        """A table at the version of a commit. Raises what storage raises."""
        version = commit.versions[spec.name]
        known = self._tables.get((spec.name, version))
        if known is None:
            known = DeltaTable(table_uri(self._lake_dir, spec), version=version)
            self._tables.put((spec.name, version), known, _TABLE_BYTES + _LISTS * known.get_add_actions().nbytes)
        return known

    def has_files(self, spec: Table, commit: RouteCommit) -> bool:
        """Whether a table can be opened at a commit and its data files are there."""
        if spec.name not in commit.versions:
            return True
        try:
            files = self.at(spec, commit).file_uris()
        except (OSError, ValueError, DeltaError):
            return False
        return not is_local(self._lake_dir) or all(Path(file).exists() for file in files)

    def has_intervals(self) -> bool:
        """Whether the fold keeps intervals; then the changes are whole, too."""
        return any(self.intervals_up_to(table, 1) is not None for table in INTERVAL_TABLES)

    def intervals_up_to(self, table: Table, epoch: int) -> DeltaTable | None:
        """A table of intervals, if there is one that has an epoch."""
        try:
            found = DeltaTable(table_uri(self._lake_dir, table))
        except (OSError, DeltaError):
            return None
        return found if is_up_to(found, epoch) else None


@contextmanager
def reading_changes() -> Iterator[None]:
    """Whatever storage raises means: not now.

    Raises:
        UnavailableError: routeChangeTable cannot be read.
    """
    try:
        yield
    except RoutelakeError:
        raise
    except Exception as error:
        raise UnavailableError(f"routeChangeTable cannot be read at the moment: {one_line(error)}") from error
