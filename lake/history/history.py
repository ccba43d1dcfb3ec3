# SPDX-License-Identifier: Apache-2.0
"""History of a lake: points in time (`as_of`), routes and tables at them (`past_rows`), and changes.

Thread-safe. Reads run without the interpreter lock.

`topics_at` and similar functions answer current queries at a point in time, and read only the required part of the
tables. Heartbeat times in brokerLiveTable are those of the epoch, also for a time within the next epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from sys import getsizeof
from typing import Any, Final

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from lake.delta.query import text, texts
from lake.history.as_of import NOW, AsOf, Epochs, or_else, parse_as_of, rfc3339, unix_time_hint
from lake.history.kept import Answers, Recent
from lake.history.state_at import Condition, PastRows, key_literal, reading
from lake.view_loader import changes_from
from nameserver.route_queries import pick_up_topic_route
from nameserver.view.snapshot import RouteView
from schemas.codes import ResponseCode
from schemas.errors import (
    BadRequestError,
    NotFoundError,
    OtherLakeError,
    UnavailableError,
)
from schemas.kv import ORDER_TOPIC_CONFIG, is_reserved
from schemas.rocketmq_json import encode_topic_route
from schemas.route_commit import NO_MARK, EpochMark, RouteCommit
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    ROUTE_CHANGE_TABLE,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)

MAX_LIMIT: Final = 1000
"""Maximum number of rows on a page."""
_MIB: Final = 1024 * 1024
_ROUTES_BYTES: Final = 8 * _MIB
_CONTEXTS_BYTES: Final = 8 * _MIB
_ANSWERS_BYTES: Final = 20 * _MIB


class PastRoute(msgspec.Struct, frozen=True):
    """A route, and its commit.

    Attributes:
        commit: The commit. For a time within the next epoch, it has offset and event time of the last change up to it.
        body: The route in the JSON of HTTP answers: standard keys, no zone.
    """

    commit: RouteCommit
    body: bytes


class History:
    """Reads the history of one lake.

    Args:
        lake_dir: Directory or URI of the lake, which may not exist yet.
    """

    def __init__(self, lake_dir: str | Path) -> None:
        """Create the reader. The first query opens the lake."""
        self._epochs = Epochs(str(lake_dir))
        self._rows = PastRows(str(lake_dir), self._epochs)
        self._routes: Recent[tuple[int, datetime, bool, str, bool, bool], PastRoute]
        self._routes = self._epochs.with_lake(Recent(_ROUTES_BYTES))
        self.contexts: Recent[str, Any] = self._epochs.with_lake(Recent(_CONTEXTS_BYTES))
        """Cache of `lake.history.filters`, by topic. Data up to an epoch stays valid, as the table only grows."""
        self.answers = self._epochs.with_lake(Answers(_ANSWERS_BYTES))
        """Cache of `lake.history.activity` and `lake.history.lifelines`."""

    # --- commits ---

    def resolve(self, as_of: str, name: str = "as_of") -> AsOf:
        """Resolve an epoch number or a time to a point in time. ``now`` is the newest epoch.

        Args:
            as_of: Epoch number, time with offset from UTC, or ``now``.
            name: Name of the parameter, for errors.

        Raises:
            BadRequestError: The text is neither an epoch nor a time, or a time without offset, or a Unix time.
            FutureEpochError: The epoch is not committed.
            FutureTimeError: The time is in the future.
            BeforeHistoryError: The first epoch is later. ``first_epoch`` and ``first_time`` name it.
            VacuumedError: The first recorded epoch is later. ``oldest_epoch`` and ``oldest_time`` name it.
            UnavailableError: There is no lake, or it cannot be read now.
        """
        wanted = None if as_of == NOW else parse_as_of(as_of, name)
        self._epochs.refresh()
        return self._epochs.point(wanted, as_of, name, self._rows.last_change)

    def window(self, from_: str | None, to: str | None, *, needs_from: bool = False) -> tuple[AsOf | None, AsOf]:
        """Resolve the two points in time of a query.

        Args:
            from_: The first, as for `resolve`, or None for the start of the history.
            to: The second, as for `resolve`, or None for now.
            needs_from: Raise an error without ``from_``.

        Raises:
            BadRequestError: A point in time is invalid, or ``from`` is missing or after ``to``.
            RoutelakeError: As `resolve`.
        """
        after = self.resolve(NOW if to is None else to, "to")
        with or_else("the first epoch is 1" if needs_from else "leave out from to begin there"):
            before = None if from_ is None else self.resolve(from_, "from")
        if before is not None and before.place > after.place:
            what = f"from must not be after to: {from_} is after {NOW if to is None else to}"
            raise BadRequestError(what, field="from", value=from_)
        return before, after

    def epochs(self, limit: int = 100, before: int | None = None) -> list[RouteCommit]:
        """Commits, newest first. ``before`` is an epoch, for the next page. The tables of some may be vacuumed.

        Raises:
            BadRequestError: limit is out of range, or ``before`` looks like a Unix time.
            UnavailableError: There is no lake, or it cannot be read now.
        """
        check_limit(limit)
        self._epochs.refresh()
        newest = self._epochs.newest
        if before is not None and before > newest and unix_time_hint(str(before), "before") is not None:
            what = f"before={before} looks like a Unix time, and must be an epoch; the newest is {newest}"
            raise BadRequestError(what, field="before", value=before)
        wanted = self._epochs.before(self._epochs.newest + 1 if before is None else before, limit)
        found = self._epochs.commits(wanted)
        return [found[epoch] for epoch in wanted if epoch in found]

    def commits(self, epochs: list[int]) -> dict[int, RouteCommit]:
        """Commits of some epochs. Epochs that are not recorded are left out. Adjacent epochs are fastest.

        Raises:
            UnavailableError: routeCommitTable cannot be read now.
        """
        return self._epochs.commits(epochs)

    def event_time(self, epoch: int) -> datetime | None:
        """Event time of an epoch, or None if it is not recorded. From memory, as of the last query."""
        return self._epochs.time_of(epoch)

    def mark(self) -> EpochMark:
        """The newest epoch at the last query, for a later `check_mark`."""
        commit = self._epochs.commit(self._epochs.newest)
        return NO_MARK if commit is None else commit.mark

    def check_mark(self, mark: EpochMark, name: str) -> None:
        """Refuse a mark of another lake at the same path.

        Args:
            mark: Result of an earlier `mark`.
            name: Name of the parameter, for errors.

        Raises:
            OtherLakeError: The mark is no epoch of this lake.
            UnavailableError: There is no lake, or it cannot be read now.
        """
        self._epochs.refresh()
        commit = self._epochs.commit(mark.epoch) if 0 < mark.epoch <= self._epochs.newest else None
        if mark.epoch and (commit is None or not commit.mark.may_be(mark)):
            raise OtherLakeError(
                f"{name} is from another lake, from before a restore, or too old: begin without it", field=name
            )

    # --- routes ---

    def route(
        self,
        topic: str,
        as_of: str | AsOf,
        *,
        support_acting_master: bool = False,
        order_message_enable: bool = False,
    ) -> PastRoute:
        """The route of a topic at an epoch or a time.

        Raises:
            NotFoundError: The topic had no route then (TOPIC_NOT_EXIST).
            BadRequestError, FutureEpochError, VacuumedError, UnavailableError: As `resolve`.
        """
        point = as_of if isinstance(as_of, AsOf) else self.resolve(as_of)
        commit = point.commit
        whole = point.until is None  # an epoch and a time within the next one may have the same event time
        key = (commit.epoch, commit.event_time, whole, topic, support_acting_master, order_message_enable)
        known = self._routes.get(key)
        if known is not None:
            return known
        view = self._view_of_topic(topic, point)
        route = pick_up_topic_route(
            view, topic, support_acting_master=support_acting_master, order_message_enable=order_message_enable
        )
        if route is None:
            raise NotFoundError(
                f"topic {topic} had no route at epoch {commit.epoch} of {rfc3339(commit.event_time)}",
                code=ResponseCode.TOPIC_NOT_EXIST,
                topic=topic,
                epoch=commit.epoch,
            )
        past = PastRoute(commit, encode_topic_route(route, numeric_keys=False))
        self._routes.put(key, past, getsizeof(topic) + len(past.body))
        return past

    def _view_of_topic(self, topic: str, point: AsOf) -> RouteView:
        """A view with one topic and the other rows of its route."""
        of_topic = f'"topic" = {text(topic)}'
        queues = self._rows.at(TOPIC_QUEUE_TABLE, point, Condition(of_topic))
        brokers = sorted(set(queues["brokerName"].to_pylist()))
        of_brokers = Condition(f'"brokerName" IN {texts(brokers)}')
        order = f'"namespace" = {text(ORDER_TOPIC_CONFIG)} AND "key" = {text(topic)}'
        conditions = {
            BROKER_ADDR_TABLE.name: of_brokers,
            FILTER_SERVER_TABLE.name: of_brokers,
            TOPIC_QUEUE_MAPPING_INFO_TABLE.name: Condition(of_topic),
            KV_CONFIG_TABLE.name: Condition(order, f'"key" = {key_literal(namespace=ORDER_TOPIC_CONFIG, key=topic)}'),
        }

        return self.view(point, conditions if brokers else {}, queues)

    # --- tables ---

    def view(self, point: AsOf, conditions: Mapping[str, Condition], queues: pa.Table | None = None) -> RouteView:
        """Rows of the state tables at a point in time that meet conditions. A table without a condition is empty.

        Args:
            point: The point in time.
            conditions: By table name.
            queues: Rows of topicQueueTable, if they have been read.

        Raises:
            UnavailableError: The tables cannot be read now.
        """

        def read(spec: Table) -> pa.Table | None:
            if spec is TOPIC_QUEUE_TABLE and queues is not None:
                return queues
            found = conditions.get(spec.name)
            return None if found is None else self._rows.at(spec, point, found)

        return RouteView.empty().apply(changes_from(point.commit, read))

    def topics(self, point: AsOf, broker_names: Collection[str] | None = None) -> Sequence[str]:
        """Sorted names of the topics with a row at a point in time, of all or of some broker groups.

        Raises:
            UnavailableError: The tables cannot be read now.
        """
        if broker_names is not None and not broker_names:
            return []
        where = "true" if broker_names is None else f'"brokerName" IN {texts(sorted(broker_names))}'
        return self._rows.topics(point, where)

    # --- changes ---

    def is_empty(self) -> bool:
        """Return True if nothing has been committed yet.

        Raises:
            UnavailableError: There is no lake, or it cannot be read now.
        """
        self._epochs.refresh()
        return self._epochs.newest == 0

    @contextmanager
    def reading_changes(self) -> Iterator[DeltaTable]:
        """Context with routeChangeTable at the newest epoch. The history must not be empty.

        Raises:
            UnavailableError: The table cannot be read now. The body of the context may also raise this.
        """
        newest = self._epochs.commit(self._epochs.newest)
        if newest is None:
            raise UnavailableError("nothing has been committed yet")
        with reading(ROUTE_CHANGE_TABLE.name):
            yield self._rows.table(ROUTE_CHANGE_TABLE, newest)


def check_limit(limit: int) -> None:
    """Refuse an invalid page size.

    Raises:
        BadRequestError: limit is out of range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise BadRequestError(f"limit must be from 1 to {MAX_LIMIT}, not {limit}", field="limit", value=limit)


def topics_at(history: History, point: AsOf, cluster: str | None = None) -> Sequence[str]:
    """Sorted names of the topics, of a cluster or of all."""
    if cluster is None:
        return history.topics(point)
    wanted = Condition(f'"cluster" = {text(cluster)}', _begins_with("cluster", cluster))
    members = history.view(point, {CLUSTER_ADDR_TABLE.name: wanted}).clusters
    return history.topics(point, members.get(cluster, ()))


def page_at(history: History, point: AsOf, page: Sequence[str]) -> RouteView:
    """A view of the topics of a page, which are adjacent in the order of names, and of all broker groups."""
    if not page:
        return RouteView.empty()
    between = f'"topic" >= {text(page[0])} AND "topic" <= {text(page[-1])}'
    return history.view(point, {TOPIC_QUEUE_TABLE.name: Condition(between), BROKER_ADDR_TABLE.name: Condition()})


def clusters_at(history: History, point: AsOf) -> RouteView:
    """A view of all broker groups and clusters."""
    return history.view(point, {BROKER_ADDR_TABLE.name: Condition(), CLUSTER_ADDR_TABLE.name: Condition()})


def brokers_at(history: History, point: AsOf) -> RouteView:
    """A view of all live addresses, and of all broker groups, which have the broker ids."""
    return history.view(point, {BROKER_ADDR_TABLE.name: Condition(), BROKER_LIVE_TABLE.name: Condition()})


def broker_at(history: History, point: AsOf, broker_name: str) -> RouteView:
    """A view of one broker group and its topics."""
    of_group = Condition(f'"brokerName" = {text(broker_name)}')
    tables = (BROKER_ADDR_TABLE, BROKER_LIVE_TABLE, TOPIC_QUEUE_TABLE)
    return history.view(point, {table.name: of_group for table in tables})


def kv_at(history: History, point: AsOf, namespace: str, key: str | None = None) -> RouteView:
    """A view of one namespace, or of one key in it."""
    if is_reserved(namespace):
        return RouteView.empty()
    of_rows = f'"namespace" = {text(namespace)}'
    if key is None:
        wanted = Condition(of_rows, _begins_with("namespace", namespace))
    else:
        of_changes = f'"key" = {key_literal(namespace=namespace, key=key)}'
        wanted = Condition(f'{of_rows} AND "key" = {text(key)}', of_changes)
    return history.view(point, {KV_CONFIG_TABLE.name: wanted})


def _begins_with(column: str, value: str) -> str:
    """SQL condition for a value of the first key column, in the JSON of routeChangeTable."""
    head = msgspec.json.encode({column: value}).decode().removesuffix("}")
    return f'(starts_with("key", {text(head + ",")}) OR "key" = {text(head + "}")})'
