# SPDX-License-Identifier: Apache-2.0
"""Rows of routeChangeTable about topics, made column by column from the changes of one broker group by one cause.

The first registration of a broker makes ten thousand rows, and a storm has hundreds of brokers. So no Python object is
made per row. A shard collects three columns: the topic, and the indexes of the rows before and after in a list of
distinct rows. Values that repeat in many rows are dictionaries, as in Parquet.

Many rows go into a data file (`lake.write.shard_files`) with their digests for the hash chain, because a storm has
millions of rows, and all shards have one driver. Few rows go to the driver with the other changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lake.write.arrow import CHANGE_SCHEMA, CODED_CHANGE_SCHEMA, Cause, values_json
from lake.write.hash_chain import blocks
from lake.write.shard_files import HistoryFile
from nameserver.state_machine.changes import TopicChanges
from schemas.broker import QueueRow
from schemas.outcomes import APPLIED
from schemas.tables import TOPIC_QUEUE_TABLE

ROWS_PER_PART: Final = 50_000
"""Maximum number of rows in a part. It keeps the values that Spark and Arrow handle small, and the writer makes rows
part by part."""

_NO_ROW: Final = 0
"""Index that means "no row" in the list of distinct rows."""
_STRING: Final = pa.string()
_json = msgspec.json.Encoder()


class TopicParts:
    """Collects the topic changes of one shard in one micro-batch.

    Args:
        take: callback with the rows of each small part, in `CHANGE_SCHEMA`.
        history: file for large parts.
        rows_per_part: maximum number of rows in a part.
    """

    def __init__(
        self, take: Callable[[pa.Table], None], history: HistoryFile, rows_per_part: int = ROWS_PER_PART
    ) -> None:
        self._take = take
        self._history = history
        self._rows_per_part = rows_per_part
        self._begin()

    def _begin(self) -> None:
        self._broker_names: list[str] = []
        self._causes: list[Cause] = []
        self._counts: list[int] = []
        self._places: dict[QueueRow | None, int] = {None: _NO_ROW}
        self._topics: list[str] = []
        self._before = array("i")
        self._after = array("i")

    def add(self, changes: TopicChanges, cause: Cause) -> None:
        """Append the changes of one group by one cause."""
        self._broker_names.append(changes.broker_name)
        self._causes.append(cause)
        self._counts.append(len(changes.topics))
        self._topics += changes.topics
        self._before.extend(self._place(changes.before))
        self._after.extend(self._place(changes.after))
        if len(self._topics) >= self._rows_per_part:
            self.close()

    def close(self) -> None:
        """Pass on the last part."""
        if not self._counts:
            return
        rows = self._rows()
        if self._history.wants(len(rows)):
            self._history.add(rows, [block.digest for block in blocks(rows)])
        else:
            self._take(rows.cast(CHANGE_SCHEMA))
        self._begin()

    def _place(self, rows: Sequence[QueueRow | None]) -> Iterable[int]:
        places = self._places
        try:
            return list(map(places.__getitem__, rows))
        except KeyError:
            for row in dict.fromkeys(rows):
                places.setdefault(row, len(places))
        return map(places.__getitem__, rows)

    def _rows(self) -> pa.Table:
        """The rows of a part, in `CODED_CHANGE_SCHEMA`."""
        before, after = (
            pa.Array.from_buffers(pa.int32(), len(column), [None, pa.py_buffer(column)])
            for column in (self._before, self._after)
        )
        ends = list(accumulate(self._counts))
        entries = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(range(len(ends)), pa.int32()))
        entry = pc.run_end_decode(entries)
        starts = pa.array([end - count for end, count in zip(ends, self._counts, strict=True)], pa.int32())
        zeros = pa.repeat(pa.scalar(0, pa.int32()), len(entry))
        texts = [None if row is None else values_json(TOPIC_QUEUE_TABLE, row) for row in self._places]
        times = [cause.event_time_ms * 1000 for cause in self._causes]
        made = {
            "offset": pa.array([cause.offset for cause in self._causes], pa.int64()).take(entry),
            "seq": pc.subtract(pa.arange(0, len(entry)).cast(pa.int32()), starts.take(entry)),
            "eventTime": pa.array(times, CHANGE_SCHEMA.field("eventTime").type).take(entry),
            "command": _coded(entry, [cause.command for cause in self._causes]),
            "outcome": _coded(zeros, [APPLIED]),
            "reason": _coded(zeros, [None]),
            "actor": _coded(entry, [cause.actor for cause in self._causes]),
            "tableName": _coded(zeros, [TOPIC_QUEUE_TABLE.name]),
            "brokerName": _coded(entry, self._broker_names),
            "topic": pa.array(self._topics, _STRING),
            "key": self._keys(entry),
            "before": _coded(before, texts),
            "after": _coded(after, texts),
        }
        return pa.Table.from_arrays([made[name] for name in CODED_CHANGE_SCHEMA.names], schema=CODED_CHANGE_SCHEMA)

    def _keys(self, entry: pa.Int32Array) -> pa.Array:
        """Column ``key``, with the same JSON as the keys of other tables."""
        quote, topics = '"', self._topics
        if b"\\" in _json.encode(topics):  # JSON escapes characters of some topic
            quote, topics = "", [_json.encode(topic).decode() for topic in topics]
        names = (_json.encode(name).decode() for name in self._broker_names)
        before = pa.array([f'{{"brokerName":{name},"topic":{quote}' for name in names], _STRING).take(entry)
        return pc.binary_join_element_wise(before, pa.array(topics, _STRING), quote + "}", "")


def _coded(places: pa.Int32Array, values: Sequence[str | None]) -> pa.DictionaryArray:
    """A dictionary array of the values at these indexes. As in Parquet, it has each value once, and no null."""
    distinct = {value: at for at, value in enumerate(dict.fromkeys(value for value in values if value is not None))}
    if len(distinct) < len(values):
        codes = [None if value is None else distinct[value] for value in values]
        places = pa.array(codes, pa.int32()).take(places)
    return pa.DictionaryArray.from_arrays(places, pa.array(distinct, _STRING))
