# SPDX-License-Identifier: Apache-2.0
"""Encoded answers, each encoded once.

A route answer depends on five things only: the topic's rows, the broker groups behind them, its static mapping, its
order configuration, and the variant asked for. All of them are shared, immutable objects of the view, so the cache is
keyed by their identity: an entry stays good through every view swap that leaves them alone, and topics that look alike
(most topics of a cluster do) share one body. On top lies a plain dict by topic, dropped at each swap.

The two large parts of a body are put together from pieces: every group's ``brokerDatas`` entry is encoded once and
joined per set of groups (`_Part`), every distinct row's ``queueDatas`` entry once. A topic on 300 groups (63 KB) is
then a join of pieces, and a change of one broker re-encodes one piece, not 10,000 answers.
`tests/api/view/test_answers.py` holds the result against `schemas.rocketmq_json.encode_topic_route`, byte by byte.

One thread at a time; the gateway's loop owns it.

Source: the idea of one body per (topic, version, variant) is mxsm/rocketmq-rust rocketmq-namesrv
route/response_cache.rs; the contents are ClientRequestProcessor.getRouteInfoByTopic (5.5.0).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import msgspec

from api.bounded import BoundedCache
from api.view import pickup
from api.view.advance import Groups
from api.view.rows import BrokerGroup, Row, TopicMapping, TopicRows
from api.view.snapshot import RouteView
from schemas.rocketmq_json import encode_broker_data, encode_cluster_info, encode_mapping, encode_topic_route

_MAX_PIECES: Final = 10_000

_encode = msgspec.json.Encoder().encode


class _Part:
    """What all topics on one set of broker groups have in common, in one dialect."""

    __slots__ = ("broker_datas", "brokers", "filter_servers", "groups", "may_act", "names", "seen_in")

    def __init__(
        self, brokers: tuple[str, ...], groups: tuple[BrokerGroup | None, ...], broker_datas: list[bytes]
    ) -> None:
        known = [group for group in groups if group is not None]
        self.brokers = brokers
        self.groups = groups
        self.may_act = any(map(pickup.may_need_acting_master, known))
        self.broker_datas = broker_datas if self.may_act or not known else [b",".join(broker_datas)]
        self.filter_servers = _encode(pickup.filter_server_table(known))
        self.names = [b'{"brokerName":' + _encode(name) for name in brokers]
        self.seen_in: Groups = {}

    def size(self) -> int:
        return len(self.filter_servers) + sum(map(len, self.broker_datas)) + sum(map(len, self.names))


class _Body:
    """An encoded answer, and the objects whose identities are its key: they must live as long as it does."""

    __slots__ = ("data", "mapping", "part", "rows")

    def __init__(self, data: bytes, rows: TopicRows, part: _Part, mapping: TopicMapping | None) -> None:
        self.data, self.rows, self.part, self.mapping = data, rows, part, mapping


class RouteAnswers:
    """The cache of one gateway process.

    Attributes:
        support_acting_master: NamesrvConfig.supportActingMaster; may be switched at any time.
        order_message_enable: NamesrvConfig.orderMessageEnable; likewise.
    """

    def __init__(
        self,
        *,
        support_acting_master: bool = False,
        order_message_enable: bool = False,
        max_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        """Start empty.

        Args:
            support_acting_master: As the attribute.
            order_message_enable: As the attribute.
            max_bytes: Bound of what is kept; 10,000 topics on 300 groups, no two alike, would be 660 MB a dialect.
        """
        self.support_acting_master = support_acting_master
        self.order_message_enable = order_message_enable
        self._bodies: BoundedCache[Hashable, _Body] = BoundedCache(max_bytes)
        self._zoned: BoundedCache[Hashable, tuple[bytes, _Body]] = BoundedCache(max_bytes // 8)
        self._parts: BoundedCache[Hashable, _Part] = BoundedCache(max_bytes // 4)
        self._row_pieces: dict[Row, bytes] = {}
        self._group_pieces: dict[tuple[str, bool], tuple[BrokerGroup, bytes]] = {}
        self._tables: dict[str, tuple[object, bytes]] = {}
        self._serial = 0
        self._hot: dict[tuple[bool, bool, bool], dict[str, bytes]] = {}

    def switch(self, *, support_acting_master: bool, order_message_enable: bool) -> None:
        """Set both switches."""
        self.support_acting_master = support_acting_master
        self.order_message_enable = order_message_enable

    @property
    def held_bytes(self) -> int:
        """How much is kept."""
        return self._bodies.bytes + self._zoned.bytes + self._parts.bytes

    def route(
        self, view: RouteView, topic: str, *, numeric_keys: bool = False, zone: str | None = None
    ) -> bytes | None:
        """The body of a GET_ROUTEINFO_BY_TOPIC; None means TOPIC_NOT_EXIST.

        Args:
            view: The cut to answer from.
            topic: The topic.
            numeric_keys: fastjson's dialect instead of standard JSON. A zone forces it, as the real hook does.
            zone: Keep this zone only (``__ZONE_MODE`` is true and this is ``__ZONE_NAME``, not blank).
        """
        if view.serial != self._serial:
            self._hot = {}
            self._serial = view.serial
        if zone is not None:
            return self._zoned_route(view, topic, zone)
        variant = (numeric_keys, self.support_acting_master, self.order_message_enable)
        hot = self._hot.get(variant)
        if hot is None:
            hot = self._hot[variant] = {}
        data = hot.get(topic)
        if data is None:
            body = self._body(view, topic, numeric_keys)
            if body is None:
                return None
            data = body.data
            self._hot.setdefault(variant, {})[topic] = data
        return data

    def cluster_info(self, view: RouteView) -> bytes:
        """The body of a GET_BROKER_CLUSTER_INFO."""
        known = self._tables.get("cluster_info")
        source = (view.groups, view.clusters)
        if known is None or not _same(known[0], source):
            known = self._tables["cluster_info"] = (source, encode_cluster_info(pickup.cluster_info(view)))
        return known[1]

    def all_topics(self, view: RouteView) -> bytes:
        """The body of a GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        known = self._tables.get("all_topics")
        if known is None or known[0] is not view.topics:
            known = self._tables["all_topics"] = (view.topics, encode_topic_list(view.topic_names()))
        return known[1]

    # --- how a body is made ---

    def _body(self, view: RouteView, topic: str, numeric_keys: bool) -> _Body | None:
        rows = view.topics.get(topic)
        if rows is None:
            return None
        part = self._part(view, rows.brokers, numeric_keys)
        if not part.broker_datas:
            return None
        mapping = view.mapping_tables.get(topic)
        order_conf = view.order_topic_conf(topic) if self.order_message_enable else None
        acting = self.support_acting_master and part.may_act and pickup.promotes(topic)
        key = (id(rows), id(part), id(mapping), acting, order_conf)
        body = self._bodies.get(key)
        if body is None:
            data = self._encode_route(rows, part, mapping, order_conf, numeric_keys, acting)
            body = _Body(data, rows, part, mapping)
            if self._bodies.put(key, body, len(data)):
                self._hot = {}  # it must not keep alive what was forgotten
        return body

    def _part(self, view: RouteView, brokers: tuple[str, ...], numeric_keys: bool) -> _Part:
        key = (id(brokers), numeric_keys)
        part = self._parts.get(key)
        if part is not None and part.seen_in is view.groups:
            return part
        groups = tuple(map(view.groups.get, brokers))
        if part is None or not all(map(_is, part.groups, groups)):
            known = [self._group_piece(group, numeric_keys) for group in groups if group is not None]
            part = _Part(brokers, groups, known)
            self._parts.put(key, part, part.size())
        part.seen_in = view.groups
        return part

    def _encode_route(
        self,
        rows: TopicRows,
        part: _Part,
        mapping: TopicMapping | None,
        order_conf: str | None,
        numeric_keys: bool,
        acting: bool,
    ) -> bytes:
        pieces = [
            b'{"brokerDatas":[',
            b",".join(_with_acting_masters(rows, part, numeric_keys) if acting else part.broker_datas),
            b'],"filterServerTable":',
            part.filter_servers,
        ]
        if order_conf is not None:
            pieces += b',"orderTopicConf":', _encode(order_conf)
        row_piece = self._row_piece
        queue_datas = [name + row_piece(row) for name, row in zip(part.names, rows.rows, strict=True)]
        pieces += b',"queueDatas":[', b",".join(queue_datas), b"]"
        if mapping is not None:
            entries = [
                _encode(bname) + b":" + encode_mapping(info, numeric_keys=numeric_keys)
                for bname, info in mapping.by_bname.items()
            ]
            pieces += b',"topicQueueMappingByBroker":{', b",".join(entries), b"}"
        pieces.append(b"}")
        return b"".join(pieces)

    def _group_piece(self, group: BrokerGroup, numeric_keys: bool) -> bytes:
        """A brokerDatas entry."""
        key = (group.name, numeric_keys)
        known = self._group_pieces.get(key)
        if known is None or known[0] is not group:
            if len(self._group_pieces) >= _MAX_PIECES:
                self._group_pieces.clear()
            piece = encode_broker_data(pickup.broker_data(group), numeric_keys=numeric_keys)
            known = self._group_pieces[key] = (group, piece)
        return known[1]

    def _row_piece(self, row: Row) -> bytes:
        """A queueDatas entry after its brokerName, which comes first in alphabetical order."""
        piece = self._row_pieces.get(row)
        if piece is None:
            if len(self._row_pieces) >= _MAX_PIECES:
                self._row_pieces.clear()
            piece = _encode(pickup.queue_data("", row)).removeprefix(b'{"brokerName":""')
            self._row_pieces[row] = piece
        return piece

    def _zoned_route(self, view: RouteView, topic: str, zone: str) -> bytes | None:
        whole = self._body(view, topic, numeric_keys=True)
        if whole is None:
            return None
        key = (id(whole), zone.lower())
        known = self._zoned.get(key)
        if known is None:
            route = pickup.pick_up_topic_route(
                view,
                topic,
                support_acting_master=self.support_acting_master,
                order_message_enable=self.order_message_enable,
            )
            if route is None:
                return None
            data = encode_topic_route(pickup.filter_by_zone(route, zone), numeric_keys=True)
            known = (data, whole)
            self._zoned.put(key, known, len(data) + len(zone))
        return known[0]


def encode_topic_list(topics: list[str], broker_addr: str | None = None) -> bytes:
    """TopicList.encode. ``brokerAddr`` is there only for GET_SYSTEM_TOPIC_LIST_FROM_NS."""
    listed = _encode(topics)
    addr = b"" if broker_addr is None else b'"brokerAddr":' + _encode(broker_addr) + b","
    return b"{" + addr + b'"topicList":' + listed + b"}"


def _with_acting_masters(rows: TopicRows, part: _Part, numeric_keys: bool) -> list[bytes]:
    """The brokerDatas entries, with the acting masters of this topic shown as masters."""
    known = (pair for pair in zip(part.groups, rows.rows, strict=True) if pair[0] is not None)
    return [
        entry
        if group is None or pickup.is_acting_master(group, row) is None
        else encode_broker_data(pickup.with_acting_master(pickup.broker_data(group)), numeric_keys=numeric_keys)
        for entry, (group, row) in zip(part.broker_datas, known, strict=True)
    ]


def _is(one: object, other: object) -> bool:
    return one is other


def _same(known: object, source: tuple[object, ...]) -> bool:
    return isinstance(known, tuple) and all(map(_is, known, source))
