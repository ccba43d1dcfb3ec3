# SPDX-License-Identifier: Apache-2.0
"""Times for which each broker address was alive, and topics could not be written, for a chart with a lane per address.

A query has limits for rows (`MAX_LIVES`, `MAX_TURNS`), memory (`MEMORY_LIMIT`) and, in a gateway, time. The query
itself limits the rows. Answers are cached as in `lake.history.activity`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import duckdb
import msgspec
from msgspec import Meta

from lake.delta import query
from lake.history.as_of import NOW, rfc3339
from lake.history.history import History
from lake.history.report import reading_views, window
from lake.history.report_duckdb import MEMORY_LIMIT
from schemas.errors import BadRequestError
from schemas.route_commit import NO_COMMIT, UNIX_EPOCH, RouteCommit
from schemas.tables import BROKER_ADDR_TABLE, BROKER_LIVE_TABLE, ROUTE_CHANGE_TABLE, TOPIC_QUEUE_TABLE

MAX_LIVES: Final = 10_000
"""Maximum number of lives in an answer, about 3 MB. The newest are kept."""
MAX_TURNS: Final = 10_000
"""Maximum number of write permission changes in an answer, about 1.5 MB. The newest are kept."""
LIFE_BYTES: Final = 600
"""Assumed bytes of a life in a cached answer."""
TURN_BYTES: Final = 400
"""Assumed bytes of a write permission change in a cached answer."""


class Life(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A period for which an address of a broker was alive."""

    broker_name: str
    cluster_name: str
    broker_addr: str
    broker_id: Annotated[int | None, Meta(description="id in the last registration. 0 is a master")] = None
    from_: str = msgspec.field(name="from")
    to: Annotated[str | None, Meta(description="end of the life. Absent: alive at the end of the window")] = None
    from_epoch: int
    to_epoch: int | None = None
    begun_by: Annotated[str, Meta(description="command that began the life")]
    ended_by: str | None = None
    silent_millis: Annotated[
        int | None, Meta(description="time without a heartbeat before the broker expired, in milliseconds")
    ] = None


class WriteTurn(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A write permission change: topics of a broker lost or got the permission at this time."""

    broker_name: str
    time: str
    epoch: int
    command: str
    lost: Annotated[int, Meta(description="number of topics that lost write permission")]
    gained: Annotated[int, Meta(description="number of topics that gained write permission")]


class Lifelines(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the query.

    Attributes:
        commit: The newest epoch at the time of the query.
        since: Event time after which the window starts.
        until: Event time up to which the window reaches.
        lives: Lives that overlap the window, by broker, address and time.
        turns: Write permission changes in the window, and the last one of each broker before it, by broker and time.
        left_out: Number of lives beyond `MAX_LIVES`.
        turns_left_out: Number of write permission changes beyond `MAX_TURNS`.
    """

    commit: RouteCommit
    since: datetime
    until: datetime
    lives: list[Life]
    turns: list[WriteTurn]
    left_out: int = 0
    turns_left_out: int = 0


_WRITE: Final = "coalesce((CAST({0}->>'perm' AS INT) & 2) // 2, 0)"
_LOST: Final = f"{_WRITE.format('before')} > {_WRITE.format('after')}"
_GAINED: Final = f"{_WRITE.format('before')} < {_WRITE.format('after')}"


def lifelines(history: History, from_: str | None, to: str | None, *, is_fresh: bool = False) -> Lifelines:
    """Lives and write permission changes in a window of event time.

    Args:
        history: History of the lake.
        from_: Start, as for `History.resolve`. None: the first epoch.
        to: End, as for `History.resolve`. None: now.
        is_fresh: Read again if there is a newer epoch than that of the cached answer.

    Raises:
        BadRequestError: A time is invalid, ``from`` is after ``to``, or the query exceeds its memory limit.
        RoutelakeError: As `History.resolve`.
    """
    if history.is_empty():
        return Lifelines(commit=NO_COMMIT, since=UNIX_EPOCH, until=UNIX_EPOCH, lives=[], turns=[])
    newest = history.resolve(NOW).commit
    return history.answers.ask(
        (from_, to),
        newest,
        lambda: _read(history, from_, to, newest),
        lambda found: LIFE_BYTES * (1 + len(found.lives)) + TURN_BYTES * len(found.turns),
        is_fresh=is_fresh,
    )


def _read(history: History, from_: str | None, to: str | None, newest: RouteCommit) -> Lifelines:
    since, until = window(history, from_, to)
    what = (
        f"the lifelines need more memory than a gateway gives to them ({MEMORY_LIMIT}): ask for a shorter window "
        "(from), or read the view spans of the tables with SQL"
    )
    with reading_views(history, newest.epoch, BadRequestError(what, field="from", value=from_)) as views:
        rows = _lives(views, since, until)
        turns, number_of_turns = _turns(views, since, until)
    lives = [_life(**row) for row in rows]
    number_of_lives = rows[0]["number"] if rows else 0
    if rows and since == UNIX_EPOCH:
        since = min(row["from_"] for row in rows)
    return Lifelines(
        commit=newest,
        since=since,
        until=until,
        lives=sorted(lives, key=lambda life: (life.broker_name, life.broker_addr, life.from_)),
        turns=turns,
        left_out=number_of_lives - len(lives),
        turns_left_out=number_of_turns - len(turns),
    )


def _life(*, from_: datetime, to: datetime | None, broker_id: str | None, number: int, **others: Any) -> Life:  # noqa: ANN401
    """Make a Life from a row of `_lives`."""
    return Life(
        from_=rfc3339(from_),
        to=None if to is None else rfc3339(to),
        broker_id=None if broker_id is None else int(broker_id),
        **others,
    )


def _lives(views: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """The newest lives, with the members of `Life`, times as datetime, and the number of all lives.

    Before the window, only the last change of each address counts, so that a short window needs little memory.
    """
    place = f"{{epoch: epoch, eventTime: eventTime, place: {ROUTE_CHANGE_TABLE.name}.offset, seq: seq}}"
    columns = "key, eventTime, epoch, command, came, timeoutMs, place"
    found = views.sql(
        f"""
WITH changed AS (
SELECT key, eventTime, epoch, command, after IS NOT NULL AS came,
       CAST(before->>'heartbeatTimeoutMillis' AS BIGINT) AS timeoutMs, {place} AS place
  FROM {ROUTE_CHANGE_TABLE.name}
 WHERE tableName = '{BROKER_LIVE_TABLE.name}' AND (before IS NULL) <> (after IS NULL)
   AND eventTime <= {query.time(until)}
), reaching AS (
SELECT {columns} FROM changed WHERE eventTime > {query.time(since)}
 UNION ALL
SELECT last.* FROM (
SELECT max_by({{key: key, eventTime: eventTime, epoch: epoch, command: command, came: came, timeoutMs: timeoutMs,
                place: place}}, place) AS last
  FROM changed WHERE eventTime <= {query.time(since)} GROUP BY key)
), turns AS (
SELECT key, came, eventTime, epoch, command, place, lead(eventTime) OVER w AS nextTime, lead(epoch) OVER w AS nextEpoch,
       lead(command) OVER w AS nextCommand, lead(timeoutMs) OVER w AS nextTimeoutMs
  FROM reaching WINDOW w AS (PARTITION BY key ORDER BY place)
), lives AS (
SELECT key->>'brokerName' AS brokerName, key->>'clusterName' AS clusterName, key->>'brokerAddr' AS brokerAddr,
       eventTime, nextTime, epoch, nextEpoch, command, nextCommand,
       CASE WHEN nextCommand = 'BROKER_EXPIRED' THEN nextTimeoutMs END AS silentMs, number
  FROM (SELECT *, count(*) OVER () AS number FROM turns
         WHERE came AND (nextTime IS NULL OR nextTime > {query.time(since)})
         ORDER BY eventTime DESC, place DESC LIMIT {MAX_LIVES})
), ids AS (
SELECT brokerName, json_extract_string(addresses, '$."' || id || '"') AS brokerAddr, max_by(id, place) AS id
  FROM (SELECT brokerName, addresses, place, unnest(json_keys(addresses)) AS id
          FROM (SELECT brokerName, after->'brokerAddrs' AS addresses, {place} AS place
                  FROM {ROUTE_CHANGE_TABLE.name}
                 WHERE tableName = '{BROKER_ADDR_TABLE.name}' AND after IS NOT NULL
                   AND eventTime <= {query.time(until)} AND brokerName IN (SELECT brokerName FROM lives)))
 GROUP BY ALL
)
SELECT brokerName AS broker_name, clusterName AS cluster_name, brokerAddr AS broker_addr, eventTime AS from_,
       nextTime AS "to", epoch AS from_epoch, nextEpoch AS to_epoch, command AS begun_by, nextCommand AS ended_by,
       silentMs AS silent_millis, id AS broker_id, number
  FROM lives LEFT JOIN ids USING (brokerName, brokerAddr)"""  # noqa: S608 (our own text)
    )
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def _turns(views: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> tuple[list[WriteTurn], int]:
    """The newest write permission changes, by broker and time, and the number of all."""
    changed = (
        f"FROM {ROUTE_CHANGE_TABLE.name} WHERE tableName = '{TOPIC_QUEUE_TABLE.name}' AND before IS NOT NULL "
        "AND after IS NOT NULL AND before <> after"
    )
    low, high = query.time(since), query.time(until)
    # Equal changes are counted before they are read: a wipe has one for each topic.
    rows = views.sql(
        f"""
WITH opening AS (
SELECT brokerName, max(eventTime) AS eventTime {changed} AND eventTime <= {low} AND ({_LOST} OR {_GAINED})
 GROUP BY brokerName
), counted AS (
SELECT brokerName, eventTime, epoch, command, before, after, count(*) AS number {changed} AND eventTime > {low}
   AND eventTime <= {high} GROUP BY ALL
 UNION ALL
SELECT brokerName, eventTime, epoch, command, before, after, count(*) AS number {changed} AND eventTime <= {low}
   AND (brokerName, eventTime) IN (SELECT (brokerName, eventTime) FROM opening) GROUP BY ALL
)
SELECT *, count(*) OVER () AS turns FROM (
SELECT brokerName, eventTime, epoch, command, CAST(sum(number * ({_LOST})::INT) AS BIGINT) AS lost,
       CAST(sum(number * ({_GAINED})::INT) AS BIGINT) AS gained
  FROM counted GROUP BY brokerName, eventTime, epoch, command HAVING lost > 0 OR gained > 0)
 ORDER BY eventTime DESC, epoch DESC, brokerName LIMIT {MAX_TURNS}"""  # noqa: S608 (our own text)
    ).fetchall()
    turns = [
        WriteTurn(broker_name=broker, time=rfc3339(time), epoch=epoch, command=command, lost=lost, gained=gained)
        for broker, time, epoch, command, lost, gained, _ in rows
    ]
    ordered = sorted(turns, key=lambda turn: (turn.broker_name, turn.time, turn.epoch))
    return ordered, rows[0][-1] if rows else 0
