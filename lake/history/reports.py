# SPDX-License-Identifier: Apache-2.0
"""Reports of `routelake history report`. Each is one query over the views of `lake.history.sql_views`.

Both DuckDB (`lake.history.report_duckdb`) and Spark (`pipelines.report_views.register`) run the queries. Rows have a
defined order, so that they can be split into pages. A report covers a window of event time, after ``since`` and up to
``until``. A period that started before the window or ends after it counts with its part in the window. The last two
columns of every report, ``firstEpoch`` and ``lastEpoch``, are the epochs of the first and the last change of a row.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from lake.history.sql_views import ADDRESS, ALIVE, WRITE_QUEUES, difference

FLAPPING: Final = "flapping"
"""Name of the only report with the parameter `times`."""
TIMES: Final = 2
"""Default number of returns of a broker from which it is reported as flapping."""


class ReportSpec(NamedTuple):
    """A report.

    Attributes:
        name: Name on the command line.
        title: Title of its page.
        comment: Meaning of a row.
        query: SQL with the placeholders ``{since}``, ``{until}`` (timestamps) and ``{times}`` (a number).
        label: Column with the labels of the chart's bars. Values with equal labels are added.
        values: Columns that the chart shows, in one unit.
        filters: Filters of ``GET /v1/changes`` for the changes of a row: column of the row, by name of the filter. If
            the column is NULL, the filter does not apply.
        fixed_filters: Filters with the same value for every row.
    """

    name: str
    title: str
    comment: str
    query: str
    label: str
    values: tuple[str, ...]
    filters: dict[str, str]
    fixed_filters: dict[str, str]


_ORDER: Final = "c.epoch, c.eventTime, c.offset, c.seq"
_LOST: Final = "('BROKER_EXPIRED', 'CHANNEL_CLOSED', 'UNREGISTER_BROKER')"
"""Commands that remove the row of a topic together with its broker. Other commands delete the topic itself."""

_PRESENCE: Final = f"""
presence AS (
SELECT c.brokerName, get_json_object(c.key, '$.clusterName') AS clusterName,
       get_json_object(c.key, '$.brokerAddr') AS brokerAddr, c.command, c.after IS NOT NULL AS came, c.eventTime,
       lag(c.eventTime) OVER w AS earlier, lag(c.command) OVER w AS earlierCommand, lead(c.eventTime) OVER w AS later,
       c.epoch, lag(c.epoch) OVER w AS earlierEpoch, lead(c.epoch) OVER w AS laterEpoch
  FROM routeChangeTable AS c
 WHERE c.tableName = 'brokerLiveTable' AND (c.before IS NULL) <> (c.after IS NULL) AND c.eventTime <= {{until}}
WINDOW w AS (PARTITION BY c.key ORDER BY {_ORDER})
)"""  # noqa: S608 (our own text)
"""SQL for each start and end of the life of a broker address. For one address, starts and ends alternate."""


def _of_topics(condition: str) -> str:
    """SQL condition for queue changes of topics with a row that meets a condition. It may select few of millions."""
    some = f"SELECT topic FROM routeChangeTable WHERE tableName = 'topicQueueTable' AND ({condition})"  # noqa: S608
    return f"c.tableName = 'topicQueueTable' AND c.topic IN (\n       {some})"


def _turns(condition: str) -> str:
    """SQL for each time at which a topic became writable, not writable or deleted, or lost its last broker."""
    return f"""
steps AS (
SELECT c.topic, c.eventTime, sum({ALIVE}) AS brokerStep, sum({difference(WRITE_QUEUES)}) AS writeStep,
       max_by(c.command, c.offset) AS command, max_by(coalesce(c.actor, '{{{{}}}}'), c.offset) AS actor,
       min(c.epoch) AS firstEpoch, max(c.epoch) AS lastEpoch
  FROM routeChangeTable AS c
 WHERE {_of_topics(condition)}
   AND c.eventTime <= {{until}} GROUP BY c.topic, c.eventTime
), kinds AS (
SELECT topic, eventTime, command, actor, firstEpoch, lastEpoch,
       CASE WHEN sum(writeStep) OVER w > 0 THEN 'writable' WHEN sum(brokerStep) OVER w > 0 THEN 'not writable'
            WHEN command IN {_LOST} THEN 'no broker' ELSE 'deleted' END AS kind
  FROM steps WINDOW w AS (PARTITION BY topic ORDER BY eventTime)
), changed AS (
SELECT topic, eventTime, command, actor, firstEpoch, lastEpoch, kind,
       lag(kind) OVER (PARTITION BY topic ORDER BY eventTime) AS kindBefore
  FROM kinds
), turns AS (
SELECT topic, eventTime, command, actor, firstEpoch, lastEpoch, kind, kindBefore, lead(eventTime) OVER w AS nextTime,
       lead(command) OVER w AS nextCommand, lead(lastEpoch) OVER w AS nextEpoch
  FROM changed WHERE kindBefore IS NULL OR kind <> kindBefore WINDOW w AS (PARTITION BY topic ORDER BY eventTime)
)"""  # noqa: S608 (our own text)


_NOT_ALWAYS_WRITABLE: Final = """after IS NULL OR after NOT LIKE '%"perm":6,%' OR after LIKE '%"writeQueueNums":0,%'"""
"""SQL condition on changes. Topics without such a change were always writable."""
_UNUSUAL: Final = (
    "after <> (SELECT after FROM routeChangeTable WHERE tableName = 'topicQueueTable' AND after IS NOT NULL "
    "GROUP BY after ORDER BY count(*) DESC, after LIMIT 1)"
)
"""SQL condition for topics with a state that differs from most rows, on some broker."""
_MADE: Final = (
    "CASE WHEN kind IN ('writable', 'not writable') AND coalesce(kindBefore, 'deleted') = 'deleted' THEN 1 END"
)
_RETURNED: Final = "CASE WHEN kind IN ('writable', 'not writable') AND kindBefore = 'no broker' THEN 1 END"

REPORTS: Final = (
    ReportSpec(
        FLAPPING,
        "Brokers that come and go",
        "an address of a broker that went and came back more often than the parameter times says",
        f"""
WITH {_PRESENCE}
SELECT brokerName, clusterName, brokerAddr, count(*) AS timesBack,
       count(CASE WHEN earlierCommand = 'BROKER_EXPIRED' THEN 1 END) AS expired,
       round(sum(unix_millis(eventTime) - unix_millis(earlier)) / 1e3, 3) AS awaySeconds,
       round(max(unix_millis(eventTime) - unix_millis(earlier)) / 1e3, 3) AS longestSeconds,
       min(earlier) AS firstWent, max(eventTime) AS lastBack, min(earlierEpoch) AS firstEpoch, max(epoch) AS lastEpoch
  FROM presence WHERE came AND earlier IS NOT NULL AND eventTime > {{since}}
 GROUP BY brokerName, clusterName, brokerAddr HAVING count(*) > {{times}}
 ORDER BY timesBack DESC, brokerName, clusterName, brokerAddr""",  # noqa: S608 (our own text)
        "brokerAddr",
        ("timesBack",),
        {"brokerName": "brokerName"},
        {"tableName": "brokerLiveTable"},
    ),
    ReportSpec(
        "unavailable",
        "Topics that could not be written",
        "a time in which no queue of a topic could be written, because no broker allowed it ('not writable') or the "
        "last broker had gone ('no broker'). Deleted topics are left out. Without validTo, the time has not ended",
        f"""
WITH {_turns(_NOT_ALWAYS_WRITABLE)}
SELECT topic, kind, greatest(eventTime, {{since}}) AS validFrom, nextTime AS validTo,
       round((unix_millis(coalesce(nextTime, {{until}})) - unix_millis(greatest(eventTime, {{since}}))) / 1e3, 3)
         AS seconds,
       command AS begunBy, {ADDRESS} AS address, nextCommand AS endedBy, firstEpoch,
       coalesce(nextEpoch, lastEpoch) AS lastEpoch
  FROM turns WHERE kind IN ('not writable', 'no broker') AND (nextTime IS NULL OR nextTime > {{since}})
 ORDER BY seconds DESC, topic, validFrom""",  # noqa: S608 (our own text)
        "topic",
        ("seconds",),
        {"topic": "topic"},
        {},
    ),
    ReportSpec(
        "churn",
        "Topics that come and go, hour by hour",
        "an hour, with the numbers of topics that were made (firstSeen: for the first time), deleted, lost with their "
        "last broker, or returned with a broker",
        f"""
WITH {_turns("eventTime > {since} AND (before IS NULL OR after IS NULL)")}
SELECT date_trunc('hour', eventTime) AS hour, count({_MADE}) AS made,
       count(CASE WHEN kind = 'deleted' THEN 1 END) AS deleted,
       count(CASE WHEN kind = 'no broker' THEN 1 END) AS lost, count({_RETURNED}) AS returned,
       count(CASE WHEN kindBefore IS NULL THEN 1 END) AS firstSeen, min(firstEpoch) AS firstEpoch,
       max(lastEpoch) AS lastEpoch
  FROM turns WHERE eventTime > {{since}} AND (kind IN ('deleted', 'no broker')
       OR coalesce(kindBefore, 'deleted') IN ('deleted', 'no broker'))
 GROUP BY date_trunc('hour', eventTime) ORDER BY hour""",  # noqa: S608 (our own text)
        "hour",
        ("made", "deleted", "lost", "returned"),
        {},
        {"tableName": "topicQueueTable"},
    ),
    ReportSpec(
        "expiry",
        "Brokers that expired or lost their connection",
        "an expiry or a lost connection of a broker's address, with the number of topics that its group lost, and the "
        "time when the address was back",
        f"""
WITH {_PRESENCE}, topics AS (
SELECT c.brokerName, c.eventTime, c.command, count(*) AS topics FROM routeChangeTable AS c
 WHERE c.tableName = 'topicQueueTable' AND c.after IS NULL AND c.eventTime > {{since}} AND c.eventTime <= {{until}}
 GROUP BY c.brokerName, c.eventTime, c.command
)
SELECT p.brokerName, p.clusterName, p.brokerAddr, p.command, p.eventTime AS went, p.later AS back,
       round((unix_millis(coalesce(p.later, {{until}})) - unix_millis(p.eventTime)) / 1e3, 3) AS awaySeconds,
       coalesce(t.topics, 0) AS topicsLost, p.epoch AS firstEpoch, coalesce(p.laterEpoch, p.epoch) AS lastEpoch
  FROM presence AS p LEFT JOIN topics AS t
    ON t.brokerName = p.brokerName AND t.eventTime = p.eventTime AND t.command = p.command
 WHERE NOT p.came AND p.eventTime > {{since}} AND p.command IN ('BROKER_EXPIRED', 'CHANNEL_CLOSED')
 ORDER BY went, p.brokerName, p.clusterName, p.brokerAddr""",  # noqa: S608 (our own text)
        "brokerName",
        ("awaySeconds",),
        {"brokerName": "brokerName"},
        {},
    ),
    ReportSpec(
        "refused",
        "Registrations and commands that were refused",
        "a client, a command and a reason, with the number of refusals",
        """
SELECT command, reason, brokerName, address, userName, count(*) AS refusals, min(eventTime) AS firstTime,
       max(eventTime) AS lastTime, min(epoch) AS firstEpoch, max(epoch) AS lastEpoch
  FROM changes WHERE outcome = 'rejected' AND eventTime > {since} AND eventTime <= {until}
 GROUP BY command, reason, brokerName, address, userName
 ORDER BY refusals DESC, lastTime DESC, command, reason, brokerName, address, userName""",
        "brokerName",
        ("refusals",),
        {"command": "command", "brokerName": "brokerName", "peer": "address", "user": "userName"},
        {"outcome": "rejected"},
    ),
    ReportSpec(
        "peers",
        "Who changed most",
        "an address and a user, with the numbers of rows that they changed, of their admin commands and of refusals",
        """
SELECT address, userName, count(CASE WHEN tableName IS NOT NULL THEN 1 END) AS changedRows,
       count(CASE WHEN tableName IS NULL AND outcome <> 'rejected' AND command <> 'ACCESS_REFUSED' THEN 1 END)
         AS commands,
       count(CASE WHEN outcome = 'rejected' THEN 1 END) AS refusals,
       count(DISTINCT topic) AS topics, count(DISTINCT brokerName) AS brokers,
       min(eventTime) AS firstTime, max(eventTime) AS lastTime, min(epoch) AS firstEpoch, max(epoch) AS lastEpoch
  FROM changes WHERE address IS NOT NULL AND command <> 'BROKER_EXPIRED'
   AND eventTime > {since} AND eventTime <= {until}
 GROUP BY address, userName ORDER BY changedRows DESC, commands DESC, address, userName""",
        "address",
        ("changedRows",),
        {"peer": "address", "user": "userName"},
        {},
    ),
    ReportSpec(
        "alive",
        "How many brokers were alive",
        "a time with the same number of live broker addresses. Without validTo, the time has not ended",
        f"""
WITH steps AS (
SELECT c.eventTime, sum({ALIVE}) AS step, min(c.epoch) AS firstEpoch, max(c.epoch) AS lastEpoch
  FROM routeChangeTable AS c
 WHERE c.tableName = 'brokerLiveTable' AND c.eventTime <= {{until}} GROUP BY c.eventTime
), totals AS (
SELECT eventTime, firstEpoch, lastEpoch, lead(eventTime) OVER w AS nextTime, sum(step) OVER w AS brokers
  FROM steps WHERE step <> 0 WINDOW w AS (ORDER BY eventTime)
)
SELECT greatest(eventTime, {{since}}) AS validFrom, nextTime AS validTo, CAST(brokers AS BIGINT) AS brokers,
       round((unix_millis(coalesce(nextTime, {{until}})) - unix_millis(greatest(eventTime, {{since}}))) / 1e3, 3)
         AS seconds, firstEpoch, lastEpoch
  FROM totals WHERE nextTime IS NULL OR nextTime > {{since}} ORDER BY validFrom""",  # noqa: S608 (our own text)
        "validFrom",
        ("brokers",),
        {},
        {"tableName": "brokerLiveTable"},
    ),
    ReportSpec(
        "uneven",
        "Topics with different queues on their brokers",
        "a topic that had different queues or perms on its brokers at the end of the window",
        f"""
WITH latest AS (
SELECT c.topic, c.brokerName, max_by(coalesce(c.after, ''), struct(c.epoch, c.eventTime, c.offset, c.seq)) AS state,
       max(c.epoch) AS epoch
  FROM routeChangeTable AS c
 WHERE {_of_topics(_UNUSUAL)}
   AND c.eventTime <= {{until}}
 GROUP BY c.topic, c.brokerName
), queues AS (
SELECT topic, epoch, CAST(get_json_object(state, '$.readQueueNums') AS INT) AS readQueueNums,
       CAST(get_json_object(state, '$.writeQueueNums') AS INT) AS writeQueueNums,
       get_json_object(state, '$.perm') AS perm
  FROM latest WHERE state <> ''
)
SELECT topic, count(*) AS brokers, count(DISTINCT concat(readQueueNums, '/', writeQueueNums, '/', perm)) AS kinds,
       min(readQueueNums) AS leastReadQueueNums, max(readQueueNums) AS mostReadQueueNums,
       min(writeQueueNums) AS leastWriteQueueNums, max(writeQueueNums) AS mostWriteQueueNums,
       min(epoch) AS firstEpoch, max(epoch) AS lastEpoch
  FROM queues GROUP BY topic HAVING count(DISTINCT concat(readQueueNums, '/', writeQueueNums, '/', perm)) > 1
 ORDER BY topic""",  # noqa: S608 (our own text)
        "topic",
        ("kinds",),
        {"topic": "topic"},
        {},
    ),
)
TIME_COLUMNS: Final = frozenset(
    {"validFrom", "validTo", "hour", "went", "back", "firstWent", "lastBack", "firstTime", "lastTime"}
)
"""Columns of reports with times."""
BY_NAME: Final = {report.name: report for report in REPORTS}


def query_of(report: ReportSpec, since: datetime, until: datetime, times: int = TIMES) -> str:
    """The complete SQL of a report, which can be copied into `./routelake sql`.

    Args:
        report: One of `REPORTS`.
        since: Aware start of the window, not included.
        until: Aware end of the window, included.
        times: Parameter of `flapping`.
    """
    return report.query.strip().format(since=_timestamp(since), until=_timestamp(until), times=int(times))


def _timestamp(time: datetime) -> str:
    return f"CAST('{time.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00:00' AS TIMESTAMP)"
