# SPDX-License-Identifier: Apache-2.0
"""Routes for tests: short to write, and drawn by Hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from schemas.broker import TopicQueueMappingInfo
from schemas.route import BrokerData, QueueData, TopicRouteData

NAMES = st.sampled_from(["a", "b", "c", "broker-a", "Z", "é", "\U0001f600", "\uffee"])
"""The last two are in another order by UTF-16 units than by code points."""


def row(name: str = "broker-a", *, read: int = 4, write: int = 4, perm: int = 6, flag: int = 0) -> QueueData:
    return QueueData(broker_name=name, perm=perm, read_queue_nums=read, topic_sys_flag=flag, write_queue_nums=write)


def group(name: str = "broker-a", addrs: dict[int, str] | None = None, **more: Any) -> BrokerData:
    return BrokerData(
        broker_addrs={0: f"{name}:10911"} if addrs is None else addrs,
        broker_name=name,
        **{"cluster": "c1", "enable_acting_master": False, **more},
    )


def route(
    rows: list[QueueData] | None = None,
    groups: list[BrokerData] | None = None,
    *,
    order: str | None = None,
    mappings: dict[str, TopicQueueMappingInfo] | None = None,
    filters: dict[str, list[str]] | None = None,
) -> TopicRouteData:
    rows = [row()] if rows is None else rows
    return TopicRouteData(
        broker_datas=[group(name) for name in dict.fromkeys(r.broker_name for r in rows)] if groups is None else groups,
        filter_server_table=filters or {},
        order_topic_conf=order,
        queue_datas=rows,
        topic_queue_mapping_by_broker=mappings,
    )


rows_st = st.builds(
    row,
    NAMES,
    read=st.integers(-1, 3),
    write=st.integers(-1, 3),
    perm=st.integers(0, 7),
    flag=st.integers(0, 1),
)
groups_st = st.builds(
    group,
    NAMES,
    st.dictionaries(st.integers(0, 2), st.sampled_from(["h:1", "h:2", "h:3"]), max_size=3),
    cluster=st.sampled_from(["c1", "c2"]),
    enable_acting_master=st.booleans(),
    zone_name=st.none() | st.just("z"),
)
orders_st = st.none() | st.lists(st.sampled_from(["a:2", "b:1", "c:0", "a:-1", ":2", "a:+1"]), max_size=3).map(";".join)


@st.composite
def mappings_st(draw: Any) -> dict[str, TopicQueueMappingInfo] | None:
    """No two brokers of one scope share an epoch: then RocketMQ's answer would hang on the order of a HashMap."""
    names = draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3))
    epochs = draw(st.lists(st.integers(-2, 9), unique=True, min_size=len(names), max_size=len(names)))
    found = {
        name: TopicQueueMappingInfo(
            topic="t",
            scope=draw(st.sampled_from(["__global__", "s", None])),
            total_queues=draw(st.integers(0, 4)),
            bname=name,
            epoch=epoch,
            curr_id_map=draw(st.dictionaries(st.integers(0, 4), st.integers(0, 9), max_size=4)),
        )
        for name, epoch in zip(names, epochs, strict=True)
    }
    return draw(st.sampled_from([found, None]))


routes_st = st.builds(
    route,
    st.lists(rows_st, max_size=4),
    st.lists(groups_st, max_size=4),
    order=orders_st,
    mappings=mappings_st(),
    filters=st.dictionaries(st.sampled_from(["h:1", "h:2"]), st.lists(st.just("f"), max_size=1), max_size=1),
)
