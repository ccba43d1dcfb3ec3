# SPDX-License-Identifier: Apache-2.0
"""When each address of each broker was alive, and when its topics could not be written: a lane each, for a picture."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import duckdb
import msgspec

from lake.delta import query
from lake.history.as_of import NOW
from lake.history.history import History
from lake.history.report import window
from lake.history.report_duckdb import bounded_views
from schemas.route_commit import NO_COMMIT, UNIX_EPOCH, RouteCommit
from schemas.tables import BROKER_ADDR_TABLE, BROKER_LIVE_TABLE, ROUTE_CHANGE_TABLE, TOPIC_QUEUE_TABLE

MAX_LIVES: Final = 10_000
"""Lives in an answer: about 3 MB. The newest are kept."""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One time for which an address was alive.

    Attributes:
        start: Event time of its registration.
        end: When it went; None: not up to the end of the window. An expiry counts from its deadline.
        start_epoch: Epoch that made the start visible.
        end_epoch: Epoch that made the end visible.
        begun_by: Command that began it.
        ended_by: Command that ended it.
        silent_ms: How long it had been silent when it expired; None where it did not expire.
    """

    broker_name: str
    cluster_name: str
    broker_addr: str
    start: datetime
    end: datetime | None
    start_epoch: int
    end_epoch: int | None
    begun_by: str
    ended_by: str | None
    silent_ms: int | None


class WriteTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A moment at which a broker's topics lost the write permission, or got it back.

    Attributes:
        time: Event time.
        epoch: Epoch that made it visible.
        command: What did it.
        lost: Topics that lost it.
        gained: Topics that got it.
    """

    broker_name: str
    time: datetime
    epoch: int
    command: str
    lost: int
    gained: int


class Lifelines(msgspec.Struct, frozen=True, kw_only=True):
    """An answer.

    Attributes:
        commit: The epoch that it is computed from.
        since: Event time after which.
        until: Event time up to which.
        lives: Those that reach into the window, by broker, address and time.
        turns: In the window or before it, by broker and time.
        ids: brokerId by (broker, address), as last registered. 0 is a master.
        left_out: Lives that the answer has no room for.
    """

    commit: RouteCommit
    since: datetime
    until: datetime
    lives: list[Life]
    turns: list[WriteTurn]
    ids: dict[tuple[str, str], int]
    left_out: int


_WRITE: Final = "coalesce((CAST({0}->>'perm' AS INT) & 2) // 2, 0)"


def lifelines(history: History, from_: str | None, to: str | None) -> Lifelines:
    """Lives and turns in a window of event time.

    Args:
        history: What is read.
        from_: As `History.resolve` takes it; None: the beginning.
        to: Likewise; None: now.

    Raises:
        RoutelakeError: As `History.resolve`.
    """
    if history.is_empty():
        return Lifelines(commit=NO_COMMIT, since=UNIX_EPOCH, until=UNIX_EPOCH, lives=[], turns=[], ids={}, left_out=0)
    newest = history.resolve(NOW).commit
    since, until = window(history, from_, to)
    with history.reading_changes() as table, bounded_views(table, newest.epoch) as views:
        rows = _lives(views, since, until)
        turns = _turns(views, until)
        ids = _ids(views, until)
    lives = [Life(**dict(zip(Life.__struct_fields__, row, strict=True))) for row in rows]
    left_out = max(0, len(lives) - MAX_LIVES)
    if left_out:
        newest_lives = sorted(lives, key=lambda life: life.start, reverse=True)[:MAX_LIVES]
        lives = sorted(newest_lives, key=lambda life: (life.broker_name, life.broker_addr, life.start))
    if lives and since == UNIX_EPOCH:
        since = min(life.start for life in lives)
    return Lifelines(commit=newest, since=since, until=until, lives=lives, turns=turns, ids=ids, left_out=left_out)


def _lives(views: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> list[tuple[Any, ...]]:
    return views.sql(
        f"""
WITH turns AS (
SELECT brokerName, key->>'clusterName' AS clusterName, key->>'brokerAddr' AS brokerAddr, after IS NOT NULL AS came,
       eventTime, epoch, command, lead(eventTime) OVER w AS nextTime, lead(epoch) OVER w AS nextEpoch,
       lead(command) OVER w AS nextCommand, lead(before) OVER w AS nextBefore
  FROM {ROUTE_CHANGE_TABLE.name} AS c
 WHERE tableName = '{BROKER_LIVE_TABLE.name}' AND (before IS NULL) <> (after IS NULL)
   AND eventTime <= {query.time(until)}
WINDOW w AS (PARTITION BY key ORDER BY epoch, eventTime, c.offset, seq)
)
SELECT brokerName, clusterName, brokerAddr, eventTime, nextTime, epoch, nextEpoch, command, nextCommand,
       CASE WHEN nextCommand = 'BROKER_EXPIRED' THEN CAST(nextBefore->>'heartbeatTimeoutMillis' AS BIGINT) END
  FROM turns WHERE came AND (nextTime IS NULL OR nextTime > {query.time(since)})
 ORDER BY brokerName, brokerAddr, eventTime"""  # noqa: S608 (our own text)
    ).fetchall()


def _turns(views: duckdb.DuckDBPyConnection, until: datetime) -> list[WriteTurn]:
    before, after = (_WRITE.format(name) for name in ("before", "after"))
    rows = views.sql(
        f"""
SELECT brokerName, eventTime, epoch, command, CAST(sum(number * ({before} > {after})::INT) AS BIGINT) AS lost,
       CAST(sum(number * ({before} < {after})::INT) AS BIGINT) AS gained
  FROM (SELECT brokerName, eventTime, epoch, command, before, after, count(*) AS number
          FROM {ROUTE_CHANGE_TABLE.name}
         WHERE tableName = '{TOPIC_QUEUE_TABLE.name}' AND before IS NOT NULL AND after IS NOT NULL
           AND before <> after AND eventTime <= {query.time(until)} GROUP BY ALL)
 GROUP BY brokerName, eventTime, epoch, command HAVING lost > 0 OR gained > 0 ORDER BY brokerName, eventTime, epoch"""  # noqa: S608 (our own text)
    ).fetchall()
    return [WriteTurn(**dict(zip(WriteTurn.__struct_fields__, row, strict=True))) for row in rows]


def _ids(views: duckdb.DuckDBPyConnection, until: datetime) -> dict[tuple[str, str], int]:
    """From the states of broker groups, the newest last."""
    rows = views.sql(
        f"""
SELECT brokerName, after->'brokerAddrs' FROM {ROUTE_CHANGE_TABLE.name} AS c
 WHERE tableName = '{BROKER_ADDR_TABLE.name}' AND after IS NOT NULL AND eventTime <= {query.time(until)}
 ORDER BY epoch, eventTime, c.offset, seq"""  # noqa: S608 (our own text)
    ).fetchall()
    return {
        (name, address): int(number)
        for name, addresses in rows
        for number, address in msgspec.json.decode(addresses or "{}").items()
    }
