# SPDX-License-Identifier: Apache-2.0
"""The past: commits by epoch or time, the route of a topic at a commit, and who changed what.

*The route as of time T* is the route after every change whose event time is not after T: the tables of the commit with
the greatest epoch whose ``eventTime`` is not after T, and the changes of the next epoch up to T (`between`). It is the
log's own clock; when the writer happened to commit, and how much at once, does not matter. A time after the
newest epoch means the newest epoch, unless it has not come yet: what will be then, nobody knows. Whoever asks may have
a clock that is a minute ahead.

A time before the first epoch is before all history, which is another thing than history that is not kept.

*Readable* is a commit whose tables can all be opened at its versions and whose data files are all there. Vacuum and log
clean-up take the oldest first, so the readable commits are those from some epoch on. Before it intervals and changes
answer (`long_past`), or, where the fold never kept intervals, an error names that epoch.

*The changes of a topic* are what an operator needs at three in the morning ("who deleted it", "why did its route go"):

1. every row change and command that names the topic: queue rows (an expired or unregistered broker takes its queue
   rows along, so the cause is told here: BROKER_EXPIRED, UNREGISTER_BROKER, CHANNEL_CLOSED), static mapping, deletion,
   wiped permissions;
2. its order configuration (kvConfigTable);
3. of the broker groups that hold it or ever held it: address and filter server changes, which change the route while
   the queue rows stay, and refused registrations, which say why a topic did not come.

Left out are rows of brokerLiveTable (every registration moves them; a broker that goes shows in 1 and 3) and of
clusterAddrTable (not part of a route).

Safe for threads. Reads run without the interpreter lock.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sys import getsizeof
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from api.view.as_of import NOW, iso, parse_as_of, parse_time, unix_time_hint
from api.view.between import changed_rows, commit_at, more_rows, with_changes
from api.view.changelog import (
    MAX_LIMIT,
    NO_CONTEXT,
    ChangePage,
    ChangePosition,
    ChangeQuery,
    Context,
    order_conf_key,
    read_changes,
    read_context,
)
from api.view.epochs import Epochs, Recent
from api.view.loader import changes_from
from api.view.long_past import from_changes, from_intervals, intervals_of, is_up_to
from api.view.pickup import pick_up_topic_route
from api.view.snapshot import RouteView
from lake.commits import NO_COMMIT, RouteCommit
from lake.deltalog import is_local, table_uri
from lake.query import names, select, text, texts
from lake.types import arrow_schema
from schemas.codes import ResponseCode
from schemas.errors import (
    BadRequestError,
    BeforeHistoryError,
    FutureEpochError,
    FutureTimeError,
    NotFoundError,
    RoutelakeError,
    UnavailableError,
    VacuumedError,
    one_line,
)
from schemas.intervals import INTERVAL_TABLES
from schemas.kv import ORDER_TOPIC_CONFIG
from schemas.rocketmq_json import encode_topic_route
from schemas.tables import (
    BROKER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    ROUTE_CHANGE_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)

_MIB: Final = 1024 * 1024
_ROUTES_BYTES: Final = 8 * _MIB
_CONTEXTS_BYTES: Final = 8 * _MIB
_TABLES_BYTES: Final = 16 * _MIB
_TABLE_BYTES: Final = 256 * 1024
"""What an open table holds beside its list of files. Measured, with 50, 500 and 2,000 files: 0.24, 0.61 and 0.71 MB in
all, where the lists are 14, 122 and 480 kB as Arrow."""
_LISTS: Final = 3
"""How often it holds that list, at most: so measured."""
_MOMENT_BYTES: Final = 2_500
"""Of a moment: a commit without outcomes, and a time."""
_READERS: Final = 3
_CLOCK_SKEW: Final = timedelta(minutes=1)
"""How far ahead the clock of whoever asks may be."""
_CHECK_AGAIN_S: Final = 60.0
"""How long a commit that was found readable is taken to stay so: vacuum may run at any time."""


class PastRoute(msgspec.Struct, frozen=True):
    """A route, and the commit it is from.

    Attributes:
        commit: The commit; for a time within the next epoch, with offset and event time of the last change until then.
        body: The route in JSON as HTTP answers have it: standard keys, no zone.
    """

    commit: RouteCommit
    body: bytes


class Moment(msgspec.Struct, frozen=True):
    """What ``as_of`` means.

    Attributes:
        commit: As `PastRoute.commit`.
        until: None: the tables of the commit. Else they, and the changes of the next epoch up to this time.
        kept: Whether the versions of the tables are still there; else intervals and changes say what they were.
    """

    commit: RouteCommit
    until: datetime | None = None
    kept: bool = True


class Condition(NamedTuple):
    """SQL on the columns of a state table, and the same on routeChangeTable's where they are others."""

    of_rows: str = "true"
    of_changes: str | None = None


class History:
    """Reads the past of one lake.

    Args:
        lake_dir: Directory or URI of the lake; need not exist yet.
    """

    def __init__(self, lake_dir: str | Path) -> None:
        """Nothing is opened before the first question."""
        self._lake_dir = str(lake_dir)
        self._epochs = Epochs(self._lake_dir)
        self._tables: Recent[tuple[str, int], DeltaTable] = Recent(_TABLES_BYTES)
        self._routes: Recent[tuple[int, datetime, bool, str, bool, bool], PastRoute] = Recent(_ROUTES_BYTES)
        self._moments: Recent[tuple[int, datetime], Moment] = Recent(_MIB)
        self._contexts: Recent[str, Context] = Recent(_CONTEXTS_BYTES)
        self._lake = 0
        self._lock = threading.Lock()
        self._readable_from = (0, 0.0)

    # --- commits ---

    def resolve(self, as_of: str, name: str = "as_of", *, readable: bool = True) -> Moment:
        """What an epoch number or a time means; ``now`` is the newest epoch.

        Args:
            as_of: It.
            name: Of the parameter, for errors.
            readable: Whether the tables must be readable then. What routeChangeTable alone answers needs no more than
                that the epoch is recorded.

        Raises:
            BadRequestError: It is neither, or a time without offset from UTC, or a Unix time.
            FutureEpochError: That epoch has not been committed.
            FutureTimeError: That time has not come yet.
            BeforeHistoryError: The first epoch is later; ``first_epoch`` and ``first_time`` name it.
            VacuumedError: It is not kept any more, and there are no intervals; ``oldest_epoch`` and ``oldest_time``
                name the oldest that is.
            UnavailableError: There is no lake, or it cannot be read now.
        """
        wanted = None if as_of == NOW else parse_as_of(as_of, name)
        self._refresh()
        newest = self._epochs.newest
        if wanted is None:
            wanted = newest
        elif isinstance(wanted, datetime):
            self._check_has_come(wanted, as_of)
        elif wanted > newest and (hint := unix_time_hint(as_of, name)) is not None:
            raise BadRequestError(f"{hint}; a plain number is an epoch", field=name, value=as_of)
        if newest == 0:
            raise FutureEpochError("nothing has been committed yet", newest_epoch=0)
        epoch = wanted if isinstance(wanted, int) else self._epochs.last_at(wanted)
        if epoch < self._epochs.first == 1:
            moment = self._within(wanted, NO_COMMIT)
            if moment.until is None:
                raise self._before_history(as_of)
            return moment
        if epoch > newest:
            raise FutureEpochError(
                f"epoch {epoch} has not been committed yet; the newest is {newest}", epoch=epoch, newest_epoch=newest
            )
        commit = self._epochs.commit(epoch) if epoch >= self._epochs.first else None
        if commit is None:
            raise self._vacuumed(as_of)
        kept = not readable or self._is_readable(commit)
        if not kept and not self._has_intervals():
            raise self._vacuumed(as_of)
        return msgspec.structs.replace(self._within(wanted, commit), kept=kept)

    def _within(self, wanted: int | datetime, before: RouteCommit) -> Moment:
        """A time, with what the epoch after ``before`` says of it."""
        if isinstance(wanted, int) or before.epoch == self._epochs.newest:
            return Moment(before)
        later = self._epochs.commit(before.epoch + 1)
        if later is None or ROUTE_CHANGE_TABLE.name not in later.versions:
            return Moment(before)
        moment = self._moments.get((later.epoch, wanted))
        if moment is None:
            with self._reading_changes():
                commit = commit_at(self._table(ROUTE_CHANGE_TABLE, later), before, later.epoch, wanted)
            moment = Moment(before) if commit is before else Moment(commit, wanted)
            self._moments.put((later.epoch, wanted), moment, _MOMENT_BYTES)
        return moment

    def epochs(self, limit: int = 100, before: int | None = None) -> list[RouteCommit]:
        """Commits, newest first; ``before`` an epoch for the next page. Some may not be readable any more.

        Raises:
            BadRequestError: limit is out of range, or ``before`` looks like a Unix time.
            UnavailableError: There is no lake, or it cannot be read now.
        """
        check_limit(limit)
        self._refresh()
        newest = self._epochs.newest
        if before is not None and before > newest and unix_time_hint(str(before), "before") is not None:
            what = f"before={before} looks like a Unix time, and must be an epoch; the newest is {newest}"
            raise BadRequestError(what, field="before", value=before)
        wanted = self._epochs.before(self._epochs.newest + 1 if before is None else before, limit)
        found = self._epochs.commits(wanted)
        return [found[epoch] for epoch in wanted if epoch in found]

    def commits(self, epochs: list[int]) -> dict[int, RouteCommit]:
        """Some epochs, best neighbours; one that is not recorded is left out.

        Raises:
            UnavailableError: routeCommitTable cannot be read now.
        """
        return self._epochs.commits(epochs)

    def event_time(self, epoch: int) -> datetime | None:
        """When an epoch was; None where it is not recorded. From memory, as of the last question."""
        return self._epochs.time_of(epoch)

    def oldest_readable(self) -> RouteCommit | None:
        """The oldest commit that can be read; None without any. Looks at about log2(epochs) commits."""
        self._refresh()
        low, high = self._epochs.first, self._epochs.newest
        if high == 0:
            return None
        epoch = low + bisect_left(
            range(low, high + 1), True, key=lambda epoch: self._is_readable(self._epochs.commit(epoch))
        )
        return self._epochs.commit(epoch) if epoch <= high else None

    def _refresh(self) -> None:
        self._epochs.refresh()
        with self._lock:
            if self._lake != self._epochs.lake:
                self._lake = self._epochs.lake
                self._tables.clear()
                self._routes.clear()
                self._moments.clear()
                self._contexts.clear()
                self._readable_from = (0, 0.0)

    def _is_readable(self, commit: RouteCommit | None) -> bool:
        """Whether every state table can be read at a commit. What is newer than a readable commit is readable."""
        if commit is None:
            return False
        epoch, until = self._readable_from
        if epoch and commit.epoch >= epoch and time.monotonic() < until:
            return True
        with ThreadPoolExecutor(_READERS, "history") as readers:
            if not all(readers.map(lambda spec: self._has_files(spec, commit), STATE_TABLES)):
                return False
        self._readable_from = (commit.epoch, time.monotonic() + _CHECK_AGAIN_S)
        return True

    def _has_intervals(self) -> bool:
        """Whether the fold keeps intervals; then the changes are whole, too."""
        return any(self._intervals_up_to(table, 1) is not None for table in INTERVAL_TABLES)

    def _intervals_up_to(self, table: Table, epoch: int) -> DeltaTable | None:
        """A table of intervals, if there is one that has an epoch."""
        try:
            found = DeltaTable(table_uri(self._lake_dir, table))
        except (OSError, DeltaError):
            return None
        return found if is_up_to(found, epoch) else None

    def _has_files(self, spec: Table, commit: RouteCommit) -> bool:
        """Whether a table can be opened at a commit and its data files are there."""
        if spec.name not in commit.versions:
            return True
        try:
            files = self._table(spec, commit).file_uris()
        except (OSError, ValueError, DeltaError):
            return False
        return not is_local(self._lake_dir) or all(Path(file).exists() for file in files)

    def _check_has_come(self, time: datetime, shown: str) -> None:
        """Refuse a time in the future, by the clock of this machine or of the log, whichever is ahead."""
        now = datetime.now(UTC)
        if time <= now + _CLOCK_SKEW:
            return
        newest = self._epochs.commit(self._epochs.newest)
        if newest is None or time > newest.event_time + _CLOCK_SKEW:
            raise FutureTimeError(f"{shown} has not come yet; it is {iso(now)} here", time=shown, now=iso(now))

    def _before_history(self, as_of: str) -> BeforeHistoryError:
        first = self._epochs.commit(1)
        time = None if first is None else iso(first.event_time)
        text = f"{as_of} is before the beginning of this history: epoch 1" + (f" of {time}" if time else "")
        return BeforeHistoryError(text, as_of=as_of, first_epoch=1, first_time=time)

    def _vacuumed(self, as_of: str) -> VacuumedError:
        oldest = self.oldest_readable()
        if oldest is None:
            return VacuumedError(f"{as_of} cannot be read, and nor can any other epoch", as_of=as_of)
        return VacuumedError(
            f"{as_of} is before the oldest state that is kept: epoch {oldest.epoch} of {iso(oldest.event_time)}",
            as_of=as_of,
            oldest_epoch=oldest.epoch,
            oldest_time=iso(oldest.event_time),
        )

    def _table(self, spec: Table, commit: RouteCommit) -> DeltaTable:
        """A table at the version of a commit."""
        version = commit.versions[spec.name]
        known = self._tables.get((spec.name, version))
        if known is None:
            known = DeltaTable(table_uri(self._lake_dir, spec), version=version)
            self._tables.put((spec.name, version), known, _TABLE_BYTES + _LISTS * known.get_add_actions().nbytes)
        return known

    # --- routes ---

    def route(
        self,
        topic: str,
        as_of: str | Moment,
        *,
        support_acting_master: bool = False,
        order_message_enable: bool = False,
    ) -> PastRoute:
        """The route of a topic at an epoch or a time.

        Raises:
            NotFoundError: The topic had no route then (TOPIC_NOT_EXIST).
            BadRequestError, FutureEpochError, VacuumedError, UnavailableError: As `resolve`.
        """
        moment = as_of if isinstance(as_of, Moment) else self.resolve(as_of)
        commit = moment.commit
        whole = moment.until is None  # an epoch, and a time within the next one, may show the same event time
        key = (commit.epoch, commit.event_time, whole, topic, support_acting_master, order_message_enable)
        known = self._routes.get(key)
        if known is not None:
            return known
        with self._reading_tables(commit):
            view = self._view_of_topic(topic, moment)
        route = pick_up_topic_route(
            view, topic, support_acting_master=support_acting_master, order_message_enable=order_message_enable
        )
        if route is None:
            raise NotFoundError(
                f"topic {topic} had no route at epoch {commit.epoch} of {iso(commit.event_time)}",
                code=ResponseCode.TOPIC_NOT_EXIST,
                topic=topic,
                epoch=commit.epoch,
            )
        past = PastRoute(commit, encode_topic_route(route, numeric_keys=False))
        self._routes.put(key, past, getsizeof(topic) + len(past.body))
        return past

    def _view_of_topic(self, topic: str, moment: Moment) -> RouteView:
        """A view that holds one topic and what its route needs."""
        of_topic = f'"topic" = {text(topic)}'
        queues = self._rows(TOPIC_QUEUE_TABLE, moment, of_topic)
        brokers = set(queues["brokerName"].to_pylist())
        order = f'"namespace" = {text(ORDER_TOPIC_CONFIG)} AND "key" = {text(topic)}'
        conditions: dict[str, tuple[Callable[[], str], str | None]] = {
            BROKER_ADDR_TABLE.name: (lambda: f'"brokerName" IN {texts(sorted(brokers))}', None),
            FILTER_SERVER_TABLE.name: (lambda: "true", None),  # looked up by address, whoever registered it
            TOPIC_QUEUE_MAPPING_INFO_TABLE.name: (lambda: of_topic, None),
            KV_CONFIG_TABLE.name: (lambda: order, f'"key" = {order_conf_key(topic)}'),
        }

        def read(spec: Table) -> pa.Table | None:
            if spec is TOPIC_QUEUE_TABLE:
                return queues
            if spec.name not in conditions or not brokers:
                return None
            condition, of_changes = conditions[spec.name]
            return self._rows(spec, moment, condition(), of_changes)

        return RouteView.empty().apply(changes_from(moment.commit, read))

    @contextmanager
    def _reading_tables(self, commit: RouteCommit) -> Iterator[None]:
        """Whatever storage raises means: vacuumed meanwhile, or not now."""
        try:
            yield
        except Exception as error:
            self._readable_from = (0, 0.0)
            if commit.epoch and not self._is_readable(commit):
                raise self._vacuumed(str(commit.epoch)) from error
            raise UnavailableError(f"epoch {commit.epoch} cannot be read at the moment: {one_line(error)}") from error

    # --- tables ---

    def view(self, moment: Moment, conditions: Mapping[str, Condition]) -> RouteView:
        """The state tables of a moment, as far as conditions go; a table without one is left empty.

        Raises:
            VacuumedError, UnavailableError: As `resolve`.
        """

        def read(spec: Table) -> pa.Table | None:
            found = conditions.get(spec.name)
            return None if found is None else self._rows(spec, moment, found.of_rows, found.of_changes)

        with self._reading_tables(moment.commit):
            return RouteView.empty().apply(changes_from(moment.commit, read))

    def topics(self, moment: Moment, broker_names: Collection[str] | None = None) -> list[str]:
        """Names of the topics that have a row at a moment, sorted; of some broker groups, or of all.

        Raises:
            VacuumedError, UnavailableError: As `resolve`.
        """
        where = "true" if broker_names is None else f'"brokerName" IN {texts(sorted(broker_names))}'
        if broker_names is not None and not broker_names:
            return []
        commit = moment.commit
        with self._reading_tables(commit):
            rows: dict[str, int] = {}
            if not moment.kept:
                counted = self._rows_not_kept(TOPIC_QUEUE_TABLE, commit, where, where)
                counted = counted.group_by("topic").aggregate([([], "count_all")])
                rows = dict(zip(counted["topic"].to_pylist(), counted["count_all"].to_pylist(), strict=True))
            elif commit.epoch:
                sql = f'SELECT "topic", count(*) AS "rows" FROM t WHERE {where} GROUP BY "topic"'  # noqa: S608
                found = select(self._table(TOPIC_QUEUE_TABLE, commit), sql)
                rows = dict(zip(found["topic"].to_pylist(), found["rows"].to_pylist(), strict=True))
            later = None if moment.until is None else self._epochs.commit(commit.epoch + 1)
            if moment.until is not None and later is not None:
                changes = self._table(ROUTE_CHANGE_TABLE, later)
                for topic, more in more_rows(changes, later.epoch, moment.until, where):
                    rows[topic] = rows.get(topic, 0) + more
        return sorted(topic for topic, count in rows.items() if count > 0)

    def _rows(self, spec: Table, moment: Moment, condition: str, of_changes: str | None = None) -> pa.Table:
        """Rows at a moment.

        Args:
            spec: The table.
            moment: When.
            condition: SQL on its columns.
            of_changes: The same on routeChangeTable's, where they are others.
        """
        commit = moment.commit
        if not moment.kept:
            rows = self._rows_not_kept(spec, commit, condition, of_changes or condition)
        elif commit.epoch:
            rows = select(self._table(spec, commit), f"SELECT {names(spec.column_names)} FROM t WHERE {condition}")  # noqa: S608
        else:
            rows = arrow_schema(spec).empty_table()
        if moment.until is None:
            return rows
        later = self._epochs.commit(commit.epoch + 1)
        assert later is not None
        changes = self._table(ROUTE_CHANGE_TABLE, later)
        return with_changes(spec, rows, changed_rows(changes, spec, later.epoch, moment.until, of_changes or condition))

    def _rows_not_kept(self, spec: Table, commit: RouteCommit, condition: str, of_changes: str) -> pa.Table:
        """Rows of a table at a commit whose version is not there any more."""
        table = intervals_of(spec)
        intervals = None if table is None else self._intervals_up_to(table, commit.epoch)
        if intervals is not None:
            return from_intervals(intervals, spec, commit.epoch, condition)
        newest = self._epochs.commit(self._epochs.newest)
        assert newest is not None
        return from_changes(self._table(ROUTE_CHANGE_TABLE, newest), spec, commit.epoch, of_changes)

    # --- changes ---

    def changes(
        self,
        topic: str,
        *,
        limit: int = 100,
        before: str | None = None,
        after: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> ChangePage:
        """What concerned a topic (see the head of this module), newest first.

        Args:
            topic: The topic; need not exist any more.
            limit: Changes on the page.
            before: Cursor: only older ones.
            after: Cursor: only newer ones, the page next to the cursor.
            since: Only with an event time from this one on.
            until: Only with an event time before this one.

        Raises:
            BadRequestError: limit, a cursor or a time is not one, or ``since`` is not before ``until``.
            FutureTimeError: ``since`` has not come yet. ``until`` may be in the future.
            UnavailableError: There is no lake, or it cannot be read now.
        """
        check_limit(limit)
        wanted = ChangeQuery(
            topic=topic,
            newest_epoch=0,
            limit=limit,
            before=None if before is None else ChangePosition.parse(before, "before"),
            after=None if after is None else ChangePosition.parse(after, "after"),
            since=None if since is None else parse_time(since, "since"),
            until=None if until is None else parse_time(until, "until"),
        )
        if wanted.since is not None and wanted.until is not None and wanted.since >= wanted.until:
            raise BadRequestError(f"since must be before until, {until}, not {since}", field="since", value=since)
        self._refresh()
        if wanted.since is not None:
            self._check_has_come(wanted.since, f"since={since}")
        newest = self._epochs.commit(self._epochs.newest)
        if newest is None:
            return ChangePage([], None, after)
        with self._reading_changes():
            table = self._table(ROUTE_CHANGE_TABLE, newest)
            context = read_context(table, topic, newest.epoch, self._contexts.get(topic) or NO_CONTEXT)
            self._contexts.put(topic, context, getsizeof(topic) + context.size_bytes())
            return read_changes(table, msgspec.structs.replace(wanted, newest_epoch=newest.epoch), context)

    def is_empty(self) -> bool:
        """Whether nothing has been committed yet.

        Raises:
            UnavailableError: There is no lake, or it cannot be read now.
        """
        self._refresh()
        return self._epochs.newest == 0

    @contextmanager
    def reading_changes(self) -> Iterator[DeltaTable]:
        """routeChangeTable at the newest epoch, of a history that is not empty.

        Raises:
            UnavailableError: It cannot be read now, then or within.
        """
        newest = self._epochs.commit(self._epochs.newest)
        if newest is None:
            raise UnavailableError("nothing has been committed yet")
        with self._reading_changes():
            yield self._table(ROUTE_CHANGE_TABLE, newest)

    @contextmanager
    def _reading_changes(self) -> Iterator[None]:
        """Whatever storage raises means: not now."""
        try:
            yield
        except RoutelakeError:
            raise
        except Exception as error:
            raise UnavailableError(f"routeChangeTable cannot be read at the moment: {one_line(error)}") from error


def check_limit(limit: int) -> None:
    """Refuse what is no size of a page.

    Raises:
        BadRequestError: limit is out of range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise BadRequestError(f"limit must be from 1 to {MAX_LIMIT}, not {limit}", field="limit", value=limit)
