# SPDX-License-Identifier: Apache-2.0
"""Transport of route requests to a NameServer, and the answers."""

from __future__ import annotations

from typing import Protocol

import msgspec

from clients.route.errors import BadRouteError
from schemas.broker import Int, TopicQueueMappingInfo
from schemas.rocketmq_json import decode
from schemas.route import BrokerData, QueueData, TopicRouteData


class RouteAnswer(msgspec.Struct, frozen=True):
    """Answer about a topic: ``route`` is None for TOPIC_NOT_EXIST. ``tag`` identifies this answer."""

    route: TopicRouteData | None
    tag: str | None = None


class RouteTransport(Protocol):
    """Asks one address at a time, keeps its connections.

    Attributes:
        can_wait: Whether ``wait_s`` means anything.
    """

    can_wait: bool

    async def fetch(
        self, address: str, topic: str, *, timeout_s: float, tag: str | None = None, wait_s: float = 0.0
    ) -> RouteAnswer | None:
        """Ask for a topic's route.

        Args:
            address: Whom.
            topic: With its namespace.
            timeout_s: For connecting and the answer together, on top of ``wait_s``.
            tag: Of what is known already.
            wait_s: With a tag: let the server answer only when it has something else, or after so long.

        Returns:
            None: what the tag stands for is still so.

        Raises:
            ConnectError, AnswerTimeoutError, ConnectionLostError: No answer.
            AnswerError: An error other than TOPIC_NOT_EXIST.
            BadRouteError: An answer that cannot be read.
        """

    async def drop(self, address: str) -> None:
        """Close what leads to one address; the next fetch connects anew."""

    async def close(self) -> None:
        """Close everything."""


class _Row(msgspec.Struct, rename="camel"):
    """QueueData as any release writes it."""

    broker_name: str
    read_queue_nums: Int = 0
    write_queue_nums: Int = 0
    perm: Int = 0
    topic_sys_flag: Int = 0


class _Group(msgspec.Struct, rename="camel"):
    """BrokerData likewise: 4.x knows no enableActingMaster, 3.x no cluster."""

    broker_name: str
    broker_addrs: dict[int, str] | None = None
    cluster: str | None = None
    enable_acting_master: bool = False
    zone_name: str | None = None


class _Route(msgspec.Struct, rename="camel"):
    """TopicRouteData likewise."""

    broker_datas: list[_Group] | None = None
    queue_datas: list[_Row] | None = None
    filter_server_table: dict[str, list[str]] | None = None
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


_decoder = msgspec.json.Decoder(_Route, strict=False)  # a large epoch is text


def decode_route(address: str, body: bytes) -> TopicRouteData:
    """A route as any NameServer since 3.x writes it, in either JSON dialect.

    Raises:
        BadRouteError: The body holds no route.
    """
    try:
        found = decode(body, _decoder)
    except (ValueError, RecursionError) as error:
        raise BadRouteError(address, f"answered with something that is no route: {error}") from error
    return TopicRouteData(
        broker_datas=[
            BrokerData(
                broker_addrs=group.broker_addrs or {},
                broker_name=group.broker_name,
                cluster=group.cluster or "",
                enable_acting_master=group.enable_acting_master,
                zone_name=group.zone_name,
            )
            for group in found.broker_datas or ()
        ],
        filter_server_table=found.filter_server_table or {},
        order_topic_conf=found.order_topic_conf,
        queue_datas=[
            QueueData(
                broker_name=row.broker_name,
                perm=row.perm,
                read_queue_nums=row.read_queue_nums,
                topic_sys_flag=row.topic_sys_flag,
                write_queue_nums=row.write_queue_nums,
            )
            for row in found.queue_datas or ()
        ],
        topic_queue_mapping_by_broker=found.topic_queue_mapping_by_broker,
    )
