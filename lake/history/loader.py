# SPDX-License-Identifier: Apache-2.0
"""Reading the lake: the rows of the state tables at a commit of routeCommitTable, or between two.

A whole view is loaded as changes on top of the empty view, so there is one way from columns to rows. Tables are pinned
by version; whole tables come straight from Parquet through Arrow, differences from the change data feed. Both run
without the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pyarrow as pa

from lake.delta.log import active, table_uri
from lake.delta.reader import CommitReader, dataset, read_ahead
from lake.history import arrow as columns
from nameserver.view.model import Changes
from nameserver.view.snapshot import RouteView, no_pause
from schemas.route_commit import RouteCommit
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)

_CODES: Final = {TOPIC_QUEUE_TABLE.name: ("brokerName", "topic")}
"""Text columns that are kept as codes."""

_READERS: Final = 3

_K = TypeVar("_K")
_V = TypeVar("_V")


def _codes(spec: Table) -> tuple[str, ...]:
    return _CODES.get(spec.name, ())


# --- whole tables ---


def load_changes(lake_dir: str, commit: RouteCommit) -> Changes:
    """Every row of every state table at a commit, as changes to the empty view. Tables are read side by side."""

    def read(spec: Table) -> pa.Table | None:
        version = commit.versions.get(spec.name)
        if version is None:
            return None
        return dataset(lake_dir, spec, active(table_uri(lake_dir, spec), version).files, _codes(spec)).to_table()

    with ThreadPoolExecutor(_READERS, "view-load") as readers:
        rows = dict(zip(STATE_TABLES, readers.map(read, STATE_TABLES), strict=True))
    return changes_from(commit, rows.pop)


def load_view(lake_dir: str, commit: RouteCommit, pause: Callable[[], None] = no_pause) -> RouteView:
    """The view at a commit."""
    return RouteView.empty().apply(load_changes(lake_dir, commit), pause)


# --- differences ---


def state_logs(lake_dir: str) -> dict[str, CommitReader]:
    """The logs of the state tables, by table name, for `changes_between`."""
    return {spec.name: CommitReader(lake_dir, spec, _codes(spec)) for spec in STATE_TABLES}


def changes_between(
    logs: Mapping[str, CommitReader], before: RouteCommit, after: RouteCommit, pause: Callable[[], None] = no_pause
) -> Changes:
    """Changes of the state tables from one commit to a later one, read from the change data feed.

    Args:
        logs: As `state_logs` gives them.
        before: The commit to start from.
        after: The commit to arrive at.
        pause: Called now and then.

    Raises:
        OSError, ValueError, pyarrow.ArrowException: The feed is not there any more, or cannot be read.
    """

    def read(spec: Table) -> pa.Table | None:
        first, end = _moved(spec, before, after)
        return logs[spec.name].changes(first, end - 1, pause)

    read_ahead([(logs[spec.name], range(*_moved(spec, before, after))) for spec in STATE_TABLES])
    return changes_from(after, read, pause)


def _moved(spec: Table, before: RouteCommit, after: RouteCommit) -> tuple[int, int]:
    """The first version that came after a commit, and the one after the last of a later commit."""
    return before.versions.get(spec.name, -1) + 1, after.versions.get(spec.name, -1) + 1


def changes_from(
    commit: RouteCommit, read: Callable[[Table], pa.Table | None], pause: Callable[[], None] = no_pause
) -> Changes:
    """Changes out of Arrow tables.

    Args:
        commit: Where they lead.
        read: Gives the changed rows of each state table (see `columns`), or None.
        pause: Called often.
    """
    rows = {spec.name: read(spec) for spec in STATE_TABLES}

    def small(spec: Table, convert: Callable[[pa.Table], Iterator[tuple[_K, _V]]]) -> dict[_K, _V]:
        found: dict[_K, _V] = {}
        table = rows[spec.name]
        for key, value in () if table is None else convert(table):
            found[key] = value
            pause()
        return found

    queues = rows[TOPIC_QUEUE_TABLE.name]
    return Changes(
        commit,
        () if queues is None else columns.topic_deltas(queues),
        small(BROKER_ADDR_TABLE, columns.broker_rows),
        small(CLUSTER_ADDR_TABLE, columns.cluster_members),
        small(BROKER_LIVE_TABLE, columns.live_rows),
        small(FILTER_SERVER_TABLE, columns.filter_servers),
        small(TOPIC_QUEUE_MAPPING_INFO_TABLE, columns.mapping_rows),
        small(KV_CONFIG_TABLE, columns.kv_rows),
    )
