# SPDX-License-Identifier: Apache-2.0
"""Cache of encoded route answers. Topics with the same rows share one answer.

Caches between a request and its answer:

=============  ============================================  =========================================================
`_current`     topic -> answer, for one view                 grows with the view's topics; dropped when the view moves
`_answers`     sources of an answer -> answer                ``max_bytes``
`_parts`       set of broker groups -> common data of        a quarter of that
               their topics
=============  ============================================  =========================================================

An answer depends on the topic's rows, the broker groups of these rows, its static mapping, its order configuration, and
the requested variant. The first three are shared, immutable objects of the view, so the key contains their identities.
So an answer stays valid through every view that does not change them. Topics with the same rows share one answer, as
most topics of a cluster do.

No peer can choose a key: topics are the view's, and all zones that the view does not know have one key. An entry that
was used in this view or the previous one is never evicted. If there is no room for an answer, it is made again each
time, from pieces that are encoded already. So no peer can evict the entries that others use.

A topic on 300 groups (63 KB) is a join of pieces. A change of one broker encodes one piece again, not 10,000 answers.
`tests/nameserver/test_answers.py` compares the result with `schemas.rocketmq_json.encode_topic_route`.

One thread at a time uses it, in the gateway the event loop's.

Source: the idea of one body per (topic, version, variant) is mxsm/rocketmq-rust rocketmq-namesrv
route/response_cache.rs; the contents are ClientRequestProcessor.getRouteInfoByTopic (5.5.0).
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from functools import cached_property, lru_cache
from operator import is_
from typing import Final

import msgspec

from nameserver import route_queries as pickup
from nameserver.view.apply import Groups
from nameserver.view.model import RouteBroker, Row, TopicMapping, TopicQueues
from nameserver.view.snapshot import RouteView
from remoting.codec.reply import EncodedReply, response
from runtime.bounded import BoundedCache
from schemas.rocketmq_json import encode_broker_data, encode_cluster_info, encode_mapping, encode_topic_route

_ANSWER_BYTES: Final = 2_200
"""Memory of an answer with digest and reply without its body, in bytes, measured with tracemalloc."""

_ELSEWHERE: Final = "\0"
"""Key of every zone without a broker group. Names may be empty, but have no control character
(`remoting.codec.names`)."""

_encode = msgspec.json.Encoder().encode


def body_digest(body: bytes) -> str:
    """Return 16 hexadecimal digits that are the same for a body from any gateway."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


class RouteAnswer:
    """Answer for all topics with the same rows. Digest and reply are made when they are first needed.

    Attributes:
        body: Body of a GET_ROUTEINFO_BY_TOPIC.
        serial: Serial of the last view in which it was used. 0 if the cache had no room: then no caller may keep it.
    """

    def __init__(self, body: bytes, of: tuple[object, ...] = ()) -> None:
        """Store a body.

        Args:
            body: Body of a GET_ROUTEINFO_BY_TOPIC.
            of: Objects with the identities in the key. They must live as long as the answer.
        """
        self.body = body
        self.serial = 0
        self._of = of

    @cached_property
    def digest(self) -> str:
        """`body_digest` of the body."""
        return body_digest(self.body)

    @cached_property
    def reply(self) -> EncodedReply:
        """Reply over remoting."""
        return EncodedReply(response(body=self.body))


class _Part:
    """Common data of all topics on one set of broker groups, in one dialect.

    ``serial`` is that of the last view in which it was used. ``seen_in`` are the groups of that view.
    """

    __slots__ = ("broker_datas", "brokers", "filter_servers", "groups", "may_act", "names", "seen_in", "serial")

    def __init__(
        self,
        brokers: tuple[str, ...],
        groups: tuple[RouteBroker | None, ...],
        numeric_keys: bool,
        before: _Part | None,
    ) -> None:
        known = [group for group in groups if group is not None]
        self.brokers = brokers
        self.groups = groups
        self.may_act = any(map(pickup.may_need_acting_master, known))
        self.broker_datas = _broker_datas(groups, numeric_keys, before)
        self.filter_servers = _encode(pickup.filter_server_table(known))
        self.names = [b'{"brokerName":' + _encode(name) for name in brokers]
        self.seen_in: Groups = {}
        self.serial = 0

    def size(self) -> int:
        return len(self.filter_servers) + sum(map(len, self.broker_datas)) + sum(map(len, self.names))


class RouteAnswers:
    """Answers of one gateway process.

    Attributes:
        support_acting_master: NamesrvConfig.supportActingMaster. It may be switched at any time.
        order_message_enable: NamesrvConfig.orderMessageEnable. It may be switched at any time.
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
            support_acting_master: Initial value of the attribute.
            order_message_enable: Initial value of the attribute.
            max_bytes: Bound of the cached answers. 10,000 topics on 300 groups, all different, would be 660 MB for
                each dialect.
        """
        self.support_acting_master = support_acting_master
        self.order_message_enable = order_message_enable
        self._answers: BoundedCache[Hashable, RouteAnswer] = BoundedCache(max_bytes)
        self._parts: BoundedCache[Hashable, _Part] = BoundedCache(max_bytes // 4)
        self._current: dict[tuple[bool, str | None], dict[str, RouteAnswer]] = {}
        """Answers of the view ``_serial``, by dialect and zone. They are in ``_answers``, too."""
        self._standard: dict[str, RouteAnswer] = {}
        """Part of ``_current`` that nearly every client requests: standard JSON, no zone."""
        self._serial = self._serial_before = 0
        self._zones: tuple[Groups, frozenset[str]] = ({}, frozenset())
        self._cluster_info: tuple[object, object, bytes] = (None, None, b"")
        """Groups and clusters of a view, and their answer."""

    def switch(self, *, support_acting_master: bool, order_message_enable: bool) -> None:
        """Set both switches."""
        self.support_acting_master = support_acting_master
        self.order_message_enable = order_message_enable
        self._drop_current()

    @property
    def held_bytes(self) -> int:
        """Size of all cached answers and parts, in bytes."""
        return self._answers.bytes + self._parts.bytes

    def route(
        self, view: RouteView, topic: str, numeric_keys: bool = False, zone: str | None = None
    ) -> RouteAnswer | None:
        """Return the answer to a GET_ROUTEINFO_BY_TOPIC. None means TOPIC_NOT_EXIST.

        Args:
            view: View to answer from.
            topic: Topic.
            numeric_keys: Whether to use fastjson's dialect instead of standard JSON. A zone forces it, as in RocketMQ.
            zone: Zone to keep, without the others (``__ZONE_MODE`` is true and this is ``__ZONE_NAME``, not blank).
        """
        if view.serial != self._serial:
            self._drop_current()
            self._serial_before, self._serial = self._serial, view.serial
        if zone is not None:
            numeric_keys = True
            zone = zone.lower() if zone.lower() in self._zones_of(view) else _ELSEWHERE
        elif not numeric_keys:
            answer = self._standard.get(topic)
            if answer is not None:
                return answer
        rows = view.topics.get(topic)
        if rows is None:
            return None
        current = self._current.get((numeric_keys, zone))
        answer = None if current is None else current.get(topic)
        return self._find(view, topic, rows, numeric_keys, zone) if answer is None else answer

    def cluster_info(self, view: RouteView) -> bytes:
        """Return the body of a GET_BROKER_CLUSTER_INFO."""
        groups, clusters, body = self._cluster_info
        if groups is not view.groups or clusters is not view.clusters:
            body = encode_cluster_info(pickup.cluster_info(view))
            self._cluster_info = (view.groups, view.clusters, body)
        return body

    # --- how an answer is found or made ---

    def _drop_current(self) -> None:
        self._standard = {}
        self._current = {(False, None): self._standard}

    def _zones_of(self, view: RouteView) -> frozenset[str]:
        """Return the zones of broker groups, in lower case."""
        if self._zones[0] is not view.groups:
            names = (group.row.zone_name for group in view.groups.values())
            self._zones = (view.groups, frozenset(name.lower() for name in names if name))
        return self._zones[1]

    def _find(
        self, view: RouteView, topic: str, rows: TopicQueues, numeric_keys: bool, zone: str | None
    ) -> RouteAnswer | None:
        part = self._part(view, rows.brokers, numeric_keys)
        if not part.broker_datas:
            return None
        mapping = view.mapping_tables.get(topic)
        order_conf = view.order_topic_conf(topic) if self.order_message_enable else None
        acting = self.support_acting_master and part.may_act and pickup.promotes(topic)
        key = (id(rows), id(part), id(mapping), acting, order_conf, zone)
        answer = self._answers.get(key)
        if answer is None:
            if zone is None:
                body = _encode_route(rows, part, mapping, order_conf, numeric_keys, acting)
            else:
                body = self._encode_zoned_route(view, topic, zone)
            answer = RouteAnswer(body, (rows, part, mapping))
            if not self._answers.put(key, answer, _ANSWER_BYTES + len(body), self._is_unused):
                return answer
        answer.serial = self._serial
        self._current.setdefault((numeric_keys, zone), {})[topic] = answer
        return answer

    def _part(self, view: RouteView, brokers: tuple[str, ...], numeric_keys: bool) -> _Part:
        key = (id(brokers), numeric_keys)
        part = self._parts.get(key)
        if part is None or part.seen_in is not view.groups:
            groups = tuple(map(view.groups.get, brokers))
            if part is None or not all(map(is_, part.groups, groups)):
                part = _Part(brokers, groups, numeric_keys, part)
                self._parts.put(key, part, part.size(), self._is_unused)
            part.seen_in = view.groups
        part.serial = self._serial
        return part

    def _is_unused(self, kept: RouteAnswer | _Part) -> bool:
        """Return True if the entry was used neither in this view nor in the previous one."""
        return kept.serial < self._serial_before

    def _encode_zoned_route(self, view: RouteView, topic: str, zone: str) -> bytes:
        route = pickup.pick_up_topic_route(
            view,
            topic,
            support_acting_master=self.support_acting_master,
            order_message_enable=self.order_message_enable,
        )
        assert route is not None
        return encode_topic_route(pickup.filter_by_zone(route, zone), numeric_keys=True)


def _encode_route(
    rows: TopicQueues,
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
    queue_datas = [name + _row_piece(row) for name, row in zip(part.names, rows.rows, strict=True)]
    pieces += b',"queueDatas":[', b",".join(queue_datas), b"]"
    if mapping is not None:
        entries = [
            _encode(bname) + b":" + encode_mapping(info, numeric_keys=numeric_keys)
            for bname, info in mapping.by_bname.items()
        ]
        pieces += b',"topicQueueMappingByBroker":{', b",".join(entries), b"}"
    pieces.append(b"}")
    return b"".join(pieces)


def _broker_datas(groups: Sequence[RouteBroker | None], numeric_keys: bool, before: _Part | None) -> list[bytes]:
    """Return the brokerDatas entry of each existing group. Entries of unchanged groups are reused."""
    taken: dict[int, bytes] = {}
    if before is not None:
        taken = dict(zip(map(id, filter(None, before.groups)), before.broker_datas, strict=True))
    return [
        taken.get(id(group)) or encode_broker_data(pickup.broker_data(group), numeric_keys=numeric_keys)
        for group in groups
        if group is not None
    ]


@lru_cache(10_000)
def _row_piece(row: Row) -> bytes:
    """Return a queueDatas entry after its brokerName, which comes first in alphabetical order."""
    return _encode(pickup.queue_data("", row)).removeprefix(b'{"brokerName":""')


def _with_acting_masters(rows: TopicQueues, part: _Part, numeric_keys: bool) -> list[bytes]:
    """Return the brokerDatas entries, with the acting masters of this topic shown as masters."""
    known = (pair for pair in zip(part.groups, rows.rows, strict=True) if pair[0] is not None)
    return [
        entry
        if group is None or pickup.is_acting_master(group, row) is None
        else encode_broker_data(pickup.with_acting_master(pickup.broker_data(group)), numeric_keys=numeric_keys)
        for entry, (group, row) in zip(part.broker_datas, known, strict=True)
    ]
