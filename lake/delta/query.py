# SPDX-License-Identifier: Apache-2.0
"""SQL over one Delta table version (DataFusion inside deltalake), without the interpreter lock.

`deltalake.QueryBuilder`'s own ``read_all`` keeps the lock for the whole query. Measured were 245 ms without any answer
from the gateway. Streaming the result into Arrow releases the lock.

A query cannot be ended while DataFusion computes a batch. Between batches it ends if its `Interrupt` says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from lake.delta.reader import plain_text
from schemas.route_commit import UNIX_EPOCH

T = TypeVar("T")


class InterruptedQueryError(BaseException):
    """The client has disconnected, or the deadline has passed.

    This is no `Exception`, so that no handler mistakes it for a storage failure.
    """


class Interrupt:
    """Ends the work of one thread from another one."""

    def __init__(self) -> None:
        """Create an interrupt that is not set."""
        self._lock = threading.Lock()
        self._is_set = False
        self._action: Callable[[], None] | None = None

    def set(self) -> None:
        """End the work at its next `check_interrupted`, or at once by the action of `calls`."""
        with self._lock:
            self._is_set = True
            if self._action is not None:
                self._action()

    def run(self, work: Callable[[], T]) -> T:
        """Run work in this thread.

        Raises:
            InterruptedQueryError: The work was interrupted.
        """
        token = _interrupt.set(self)
        try:
            self.check()
            return work()
        finally:
            _interrupt.reset(token)

    def check(self) -> None:
        """Raise `InterruptedQueryError` if this interrupt is set."""
        if self._is_set:
            raise InterruptedQueryError

    @contextmanager
    def calls(self, action: Callable[[], None]) -> Iterator[None]:
        """Context in which `set` calls an action that must not block. After an earlier `set`, it is called at once."""
        with self._lock:
            self.check()
            self._action = action
        try:
            yield
        finally:
            with self._lock:
                self._action = None


_interrupt: Final[ContextVar[Interrupt | None]] = ContextVar("interrupt", default=None)


def current_interrupt() -> Interrupt:
    """Interrupt of the work of this thread. Without one, a new interrupt that is never set."""
    return _interrupt.get() or Interrupt()


def check_interrupted() -> None:
    """Stop here if the work of this thread was interrupted.

    Raises:
        InterruptedQueryError: The interrupt is set.
    """
    found = _interrupt.get()
    if found is not None:
        found.check()


def select(
    table: DeltaTable,
    sql: str,
    *,
    batch_rows: int | None = None,
) -> pa.Table:
    """Rows of a query over ``t``. Column names must be quoted. Values come from `text`, `texts` and `time`.

    Args:
        table: A table at one version, named ``t`` in the query.
        sql: The query.
        batch_rows: Number of rows decoded at a time, which bounds memory if rows may be large.

    Raises:
        InterruptedQueryError: The work of this thread was interrupted.
    """
    check_interrupted()
    session = QueryBuilder().register("t", table)
    if batch_rows is not None:
        session.execute(f"SET datafusion.execution.batch_size = {batch_rows}")
    result = session.execute(sql)
    reader = pa.RecordBatchReader.from_stream(result)
    batches = []
    for batch in reader:
        check_interrupted()
        batches.append(batch)
    return plain_text(pa.Table.from_batches(batches, reader.schema))


def text(value: str) -> str:
    """A string literal."""
    return "'" + value.replace("'", "''") + "'"


def texts(values: Iterable[str]) -> str:
    """A list of string literals for ``IN``."""
    return "(" + ", ".join(map(text, values)) + ")"


_LAST = datetime(2262, 1, 1, tzinfo=UTC)
"""Latest literal. DataFusion refuses times that do not fit into nanoseconds. The tables have none before 1970 or after
this one."""


def time(value: datetime) -> str:
    """A timestamp literal to the microsecond. A time out of range becomes the nearest one within it."""
    within = min(max(value.astimezone(UTC), UNIX_EPOCH), _LAST)
    return "TIMESTAMP " + text(within.isoformat(timespec="microseconds"))


def names(columns: Iterable[str]) -> str:
    """A list of column names."""
    return ", ".join(f'"{column}"' for column in columns)
