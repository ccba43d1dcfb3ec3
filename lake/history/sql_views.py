# SPDX-License-Identifier: Apache-2.0
"""Views over routeChangeTable, in SQL for both DuckDB and Spark.

Columns have the names of the tables' columns, and ``VIEWS`` describes new ones. ``get_json_object`` reads JSON, which
Spark has and a macro adds to DuckDB. Times of one key never decrease (`lake.history.state_at`), so sums over time need
no other order.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class View(NamedTuple):
    """A view: its name, the meaning of a row, and its query."""

    name: str
    comment: str
    query: str


ADDRESS: Final = "replace(replace(regexp_replace(get_json_object(actor, '$.peer'), ':[0-9]+$', ''), '[', ''), ']', '')"
WRITE_QUEUES: Final = (
    "CASE WHEN (CAST(get_json_object({0}, '$.perm') AS INT) & 2) = 2 "
    "THEN CAST(get_json_object({0}, '$.writeQueueNums') AS INT) ELSE 0 END"
)
_READ_QUEUES: Final = (
    "CASE WHEN (CAST(get_json_object({0}, '$.perm') AS INT) & 4) = 4 "
    "THEN CAST(get_json_object({0}, '$.readQueueNums') AS INT) ELSE 0 END"
)


def difference(value: str) -> str:
    """SQL expression for the change of a value. The value is SQL with ``{0}`` for the JSON of a state."""
    return f"coalesce({value.format('after')}, 0) - coalesce({value.format('before')}, 0)"


ALIVE: Final = "CASE WHEN after IS NULL THEN 0 ELSE 1 END - CASE WHEN before IS NULL THEN 0 ELSE 1 END"
_TOTALS: Final = f"""
SELECT topic, eventTime AS validFrom, lead(eventTime) OVER (PARTITION BY topic ORDER BY eventTime) AS validTo,
       CAST(sum(brokerStep) OVER v AS BIGINT) AS brokers, CAST(sum(writeStep) OVER v AS BIGINT) AS writeQueues,
       CAST(sum(readStep) OVER v AS BIGINT) AS readQueues
  FROM (SELECT topic, eventTime, sum({ALIVE}) AS brokerStep,
               sum({difference(WRITE_QUEUES)}) AS writeStep, sum({difference(_READ_QUEUES)}) AS readStep
          FROM routeChangeTable WHERE tableName = 'topicQueueTable' GROUP BY topic, eventTime)
WINDOW v AS (PARTITION BY topic ORDER BY eventTime)"""  # noqa: S608 (our own text)

VIEWS: Final = (
    View(
        "changes",
        "routeChangeTable, with the actor in columns: address is its peer without port and brackets",
        f"""
SELECT c.epoch, c.offset, c.seq, c.eventTime, c.command, c.outcome, c.reason,
       get_json_object(actor, '$.gateway') AS gateway, get_json_object(actor, '$.via') AS via,
       {ADDRESS} AS address, get_json_object(actor, '$.user') AS userName,
       c.tableName, c.brokerName, c.topic, c.key, c.before, c.after
  FROM routeChangeTable AS c""",  # noqa: S608 (our own text)
    ),
    View(
        "spans",
        "each state of each row of a state table, from when to when (null: still), and what began and ended it",
        """
SELECT * FROM (
SELECT c.tableName, c.brokerName, c.topic, c.key, c.after AS state,
       c.eventTime AS validFrom, lead(c.eventTime) OVER w AS validTo,
       c.epoch AS fromEpoch, lead(c.epoch) OVER w AS toEpoch,
       c.command AS begunBy, c.actor AS begunByActor,
       lead(c.command) OVER w AS endedBy, lead(c.actor) OVER w AS endedByActor
  FROM routeChangeTable AS c WHERE c.tableName IS NOT NULL
WINDOW w AS (PARTITION BY c.tableName, c.key ORDER BY c.epoch, c.eventTime, c.offset, c.seq)
) WHERE state IS NOT NULL""",
    ),
    View(
        "topicTotals",
        "each topic's brokers and its queues that may be written and read, from when to when (null: still)",
        f"SELECT * FROM ({_TOTALS}) WHERE brokers > 0",  # noqa: S608 (our own text)
    ),
    View(
        "unwritableTopics",
        "when a topic was there without a queue that may be written, from when to when (null: still)",
        f"""
SELECT topic, validFrom, validTo FROM (
SELECT topic, validFrom, kind, lead(validFrom) OVER (PARTITION BY topic ORDER BY validFrom) AS validTo
  FROM (SELECT topic, validFrom, kind, lag(kind) OVER (PARTITION BY topic ORDER BY validFrom) AS kindBefore
          FROM (SELECT topic, validFrom,
                       CASE WHEN brokers = 0 THEN 'gone' WHEN writeQueues = 0 THEN 'unwritable'
                            ELSE 'writable' END AS kind
                  FROM ({_TOTALS})))
 WHERE kind IS DISTINCT FROM kindBefore
) WHERE kind = 'unwritable'""",  # noqa: S608 (our own text)
    ),
    View(
        "liveTotals",
        "how many broker addresses were alive, from when to when (null: still)",
        f"""
SELECT eventTime AS validFrom, lead(eventTime) OVER (ORDER BY eventTime) AS validTo,
       CAST(sum(step) OVER (ORDER BY eventTime) AS BIGINT) AS brokers
  FROM (SELECT eventTime, sum({ALIVE}) AS step
          FROM routeChangeTable WHERE tableName = 'brokerLiveTable' GROUP BY eventTime)
 WHERE step <> 0""",  # noqa: S608 (our own text)
    ),
)
