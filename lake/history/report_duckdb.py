# SPDX-License-Identifier: Apache-2.0
"""Tables of a lake in DuckDB: the tables at one epoch, the interval tables, views and macros.

DuckDB reads the files that the Delta logs name. So it does not need its own Delta extension, which it would download.
It writes nothing to the lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lake.commits import last_commit
from lake.delta.ddl import check_format
from lake.delta.query import current_interrupt, text
from lake.delta.reader import table_at
from lake.history.sql_views import VIEWS
from runtime.version import PROGRAM
from schemas.errors import SetupError
from schemas.intervals import INTERVAL_TABLES
from schemas.route_commit import RouteCommit
from schemas.tables import ALL_TABLES, ROUTE_CHANGE_TABLE, ROUTE_COMMIT_TABLE

CHAIN: Final = """
WITH blocks AS (
  SELECT epoch, sha256(head || string_agg(rest, '' ORDER BY seq)) AS digest
    FROM (SELECT epoch, seq,
                 field(c.offset) || field(epoch_us(eventTime)) || field(command) || field(outcome) || field(reason)
                 || field(actor) || field(tableName) || field(brokerName) AS head,
                 field(seq) || field(topic) || field(key) || field(before) || field(after) AS rest
            FROM routeChangeTable AS c)
   GROUP BY epoch, head
  UNION ALL
  SELECT epoch, sha256(field(q.offset) || field(epoch_us(q.eventTime)) || field(key) || field(error)
                       || field(lower(hex(payload))))
    FROM quarantineTable AS q
    JOIN (SELECT epoch, logOffset, lag(logOffset, 1, -1) OVER (ORDER BY epoch) AS since FROM routeCommitTable) AS e
      ON q.offset > e.since AND q.offset <= e.logOffset
), epochs AS (SELECT epoch, string_agg(digest, '' ORDER BY digest) AS digests FROM blocks GROUP BY epoch)
SELECT epoch, chain = sha256(
         coalesce(lag(chain) OVER (ORDER BY epoch), '')
         || field(epoch) || field(logOffset) || field(livenessOffset) || field(epoch_us(eventTime))
         || field(epoch_us(watermark)) || field(epoch_us(commitTime))
         || field(array_to_string(list_transform(list_sort(map_keys(versions)),
                                                 lambda name: name || '=' || versions[name]), ','))
         || field(outcomes) || field(queryId) || field(batchId) || field(epoch_us(resumeTime)) || field(rulesVersion)
         || field(epoch_us(preserveTime)) || coalesce(digests, '')) AS holds
  FROM routeCommitTable LEFT JOIN epochs USING (epoch)"""
"""The query in docs/reference/tables.md ("The chain"), word for word. Any tool can check the chain with it."""

_SPARK_MACROS: Final = (
    "get_json_object(json, path) AS json_extract_string(json, path)",
    "unix_millis(time) AS epoch_ms(time)",
    "struct(a, b, c, d) AS row(a, b, c, d)",
)
"""Macros for functions of Spark that DuckDB lacks."""
SCALAR_MACROS: Final = (
    *_SPARK_MACROS,
    "field(x) AS coalesce(strlen(x::VARCHAR) || ':' || x::VARCHAR, '-:')",
    # as_of is an epoch or a time, as in `lake.history.history`. A time shows its epoch, and the part of the
    # next epoch until then.
    """time_at(as_of) AS
CASE WHEN try_cast(as_of::VARCHAR AS BIGINT) IS NULL THEN as_of::VARCHAR::TIMESTAMPTZ
     ELSE TIMESTAMPTZ '-infinity' END""",
    """epoch_at(as_of) AS
coalesce(try_cast(as_of::VARCHAR AS BIGINT),
         (SELECT coalesce(max(epoch), 0) FROM routeCommitTable WHERE eventTime <= time_at(as_of)))""",
    """shows(as_of, at_epoch, at_time) AS
at_epoch <= epoch_at(as_of) OR (at_epoch = epoch_at(as_of) + 1 AND at_time <= time_at(as_of))""",
)
_TABLE_MACROS: Final = (
    """rows_at(wanted, as_of) AS TABLE
SELECT * FROM (
SELECT brokerName, topic, key, after AS state, eventTime AS since, command, actor
  FROM routeChangeTable AS c WHERE tableName = wanted AND shows(as_of, c.epoch, c.eventTime)
QUALIFY row_number() OVER (PARTITION BY key ORDER BY epoch DESC, eventTime DESC, "offset" DESC, seq DESC) = 1
) WHERE state IS NOT NULL""",
    """route_at(wanted, as_of) AS TABLE
SELECT q.brokerName, (q.state->>'readQueueNums')::INT AS readQueueNums,
       (q.state->>'writeQueueNums')::INT AS writeQueueNums, (q.state->>'perm')::INT AS perm,
       (q.state->>'topicSysFlag')::INT AS topicSysFlag, b.state->>'cluster' AS cluster,
       b.state->'brokerAddrs' AS brokerAddrs, q.since
  FROM rows_at('topicQueueTable', as_of) AS q
  LEFT JOIN rows_at('brokerAddrTable', as_of) AS b USING (brokerName)
 WHERE q.topic = wanted ORDER BY brokerName""",
    """live_at(as_of) AS TABLE
SELECT brokerName, key->>'clusterName' AS clusterName, key->>'brokerAddr' AS brokerAddr,
       state->>'haServerAddr' AS haServerAddr, since
  FROM rows_at('brokerLiveTable', as_of) ORDER BY brokerName, brokerAddr""",
    """changes_between(since, until) AS TABLE
SELECT * FROM changes AS c
 WHERE NOT shows(since, c.epoch, c.eventTime) AND shows(until, c.epoch, c.eventTime)
 ORDER BY epoch, eventTime, "offset", seq""",
    """diff_between(since, until) AS TABLE
SELECT * FROM (
SELECT tableName, brokerName, topic, key, first(before ORDER BY epoch, eventTime, "offset", seq) AS before,
       last(after ORDER BY epoch, eventTime, "offset", seq) AS after
  FROM routeChangeTable AS c
 WHERE tableName IS NOT NULL AND NOT shows(since, c.epoch, c.eventTime) AND shows(until, c.epoch, c.eventTime)
 GROUP BY tableName, brokerName, topic, key
) WHERE before IS DISTINCT FROM after ORDER BY tableName, key""",
)
MACROS: Final = (
    *("route_at(topic, as_of)", "live_at(as_of)", "rows_at(table, as_of)"),
    *("changes_between(a, b)", "diff_between(a, b)"),
)
"""For people."""


MEMORY_LIMIT: Final = "512MB"
"""Maximum memory of a query in a gateway. Data that does not fit is not written to disk. The query fails."""


class DuckLake:
    """An in-memory DuckDB with the tables of one lake. Use as a context manager.

    Attributes:
        connection: Connection to DuckDB. Times are UTC.
        commit: Epoch of the tables, or None before the first.

    Args:
        lake_dir: An existing lake.

    Raises:
        SetupError: The lake is missing or has another format.
    """

    def __init__(self, lake_dir: Path) -> None:
        if not DeltaTable.is_deltatable(str(lake_dir / ROUTE_COMMIT_TABLE.name)):
            raise SetupError(
                f"there is no lake in {lake_dir}. Set --data-dir to the data directory of a routelake. "
                f"'{PROGRAM} serve' creates one."
            )
        check_format(lake_dir)
        self._lake_dir = lake_dir
        self.commit: RouteCommit | None = None
        self.connection = _connect()
        self.refresh(first=True)
        for macro in SCALAR_MACROS:
            self.connection.execute(f"CREATE MACRO {macro}")
        for name, query in (*((view.name, view.query) for view in VIEWS), ("chainProof", CHAIN)):
            self.connection.execute(f"CREATE VIEW {name} AS {query}")
        for macro in _TABLE_MACROS:
            self.connection.execute(f"CREATE MACRO {macro}")

    def __enter__(self) -> DuckLake:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def refresh(self, *, first: bool = False) -> None:
        """Update the tables to the newest epoch, and the interval tables to their newest versions."""
        commit = last_commit(self._lake_dir)
        self.connection.abort()  # the rest of an unread result belongs to the previous tables
        # Intervals are written some seconds after their epoch, so they change while the epoch stays.
        moved = (*ALL_TABLES, *INTERVAL_TABLES) if first or commit != self.commit else INTERVAL_TABLES
        self.commit = commit
        versions = {} if commit is None else commit.versions
        for table in moved:
            # Interval tables are created some seconds after the first epoch.
            with suppress(TableNotFoundError):
                found = table_at(str(self._lake_dir), table, versions.get(table.name))
                self.connection.register(table.name, found)


def _connect(**config: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", **config})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@contextmanager
def bounded_views(changes: DeltaTable, epoch: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the views over routeChangeTable as of an epoch, for a gateway.

    A query takes one processor and at most `MEMORY_LIMIT`, and ends with the work of this thread (`Interrupt`).

    Args:
        changes: routeChangeTable.
        epoch: Last epoch. Later changes are left out.

    Raises:
        InterruptedQueryError: The work of this thread was interrupted.
    """
    interrupt = current_interrupt()
    interrupt.check()
    with _connect(memory_limit=MEMORY_LIMIT, threads="1", temp_directory="") as connection:
        rows = "allChanges"
        if changes.table_uri.startswith("file:") and (files := changes.file_uris()):
            rows = f"read_parquet([{', '.join(map(text, files))}])"  # half the time and memory of the other way
        else:
            connection.register(rows, changes.to_pyarrow_dataset())
        connection.execute(f"CREATE VIEW {ROUTE_CHANGE_TABLE.name} AS SELECT * FROM {rows} WHERE epoch <= {epoch}")  # noqa: S608
        for macro in _SPARK_MACROS:
            connection.execute(f"CREATE MACRO {macro}")
        for view in VIEWS:
            connection.execute(f"CREATE VIEW {view.name} AS {view.query}")
        try:
            with interrupt.calls(connection.interrupt):
                yield connection
        except duckdb.InterruptException:
            interrupt.check()
            raise


def rows_by_duckdb(lake_dir: Path, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a query on a lake as of its newest epoch.

    Args:
        lake_dir: An existing lake.
        query: One statement.

    Returns:
        Names of columns, and rows. Times are aware, in UTC.

    Raises:
        SetupError: As `DuckLake`.
        duckdb.Error: The query failed.
    """
    with DuckLake(lake_dir) as lake:
        found = lake.connection.execute(query)
        return [str(column[0]) for column in found.description or []], found.fetchall()
