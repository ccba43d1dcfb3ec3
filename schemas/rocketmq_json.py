# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's two JSON dialects, in both directions.

fastjson writes the keys of a Java ``Map<Long, …>`` or ``Map<Integer, …>`` as bare numbers, which is not JSON::

    numeric    "brokerAddrs":{0:"10.0.0.1:10911"}
    standard   "brokerAddrs":{"0":"10.0.0.1:10911"}

Only ``brokerAddrs`` and ``currIdMap`` are such maps. In both dialects object keys are alphabetical, nulls are left out,
and empty maps and lists are written. Maps with text keys are quoted in both, also if a key looks like a number.

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.RemotingSerializable, ClientRequestProcessor (which chooses the
dialect of a route answer).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from schemas.broker import TopicQueueMappingInfo
from schemas.route import BrokerData, ClusterInfo, QueueData, TopicRouteData

T = TypeVar("T")

# A whole string, or a bare key. All quantifiers are possessive, and no scan starts inside an earlier one: linear time.
_STRING_OR_BARE_KEY = re.compile(
    rb'("(?:[^"\\]++|\\.)*+(?:"|\\?\Z))|([{,]\s*+)(-?[0-9]++)(?=\s*+:)',
    re.DOTALL,
)


# The two maps with such keys, which contain no other objects. Text between their strings has no letter of their names.
# So a scan ends where the next one could begin. No two scans read the same bytes, and all together take linear time.
_ID_MAP = re.compile(
    rb'"(?:brokerAddrs|currIdMap)"\s*+:\s*+\{(?:[\s0-9:,.+\-Eaeflnrstu]++|"(?:[^"\\]++|\\.)*+")*+\}',
    re.DOTALL,
)


def quote_numeric_keys(data: bytes) -> bytes:
    """Put quotes around bare numeric object keys, but not inside strings. Other errors of the text stay.

    It calls Python for each string, so use it for answers to own requests.
    """
    return _STRING_OR_BARE_KEY.sub(_quote_key, data)


def quote_id_maps(data: bytes, most: int) -> bytes:
    """Do `quote_numeric_keys` only within ``brokerAddrs`` and ``currIdMap``, for data of unknown senders.

    Args:
        data: Data as sent.
        most: Maximum number of keys in all of these maps together.

    Raises:
        ValueError: The maps have more keys.
    """
    left = most

    def quote(found: re.Match[bytes]) -> bytes:
        nonlocal left
        left -= found[0].count(b":") - 1
        if left < 0:
            raise ValueError(f"numeric keys: at most {most} are accepted")
        return quote_numeric_keys(found[0])

    return _ID_MAP.sub(quote, data)


def _quote_key(match: re.Match[bytes]) -> bytes:
    string: bytes | None = match.group(1)
    return string if string is not None else b'%b"%b"' % match.group(2, 3)


def decode(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode either dialect. If the data is not JSON, decode it with its numeric keys quoted.

    Args:
        data: UTF-8 text.
        decoder: Decoder of the expected type.

    Raises:
        ValueError: The data is in neither dialect, or of another type (`msgspec.DecodeError`, `UnicodeDecodeError`).
        RecursionError: The data is nested too deeply.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return decoder.decode(quote_numeric_keys(data))


class _BrokerDataWire(msgspec.Struct, rename="camel", omit_defaults=True):
    """BrokerData with its map of ids already encoded."""

    broker_addrs: msgspec.Raw
    broker_name: str
    cluster: str
    enable_acting_master: bool
    zone_name: str | None = None


class _MappingWire(msgspec.Struct, rename="camel", omit_defaults=True):
    """TopicQueueMappingInfo in the order of its wire names."""

    bname: str | None = None
    curr_id_map: msgspec.Raw | None = None
    dirty: bool | msgspec.UnsetType = msgspec.UNSET
    epoch: int | str | msgspec.UnsetType = msgspec.UNSET
    scope: str | None = None
    topic: str | None = None
    total_queues: int | msgspec.UnsetType = msgspec.UNSET


class _RouteWire(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """TopicRouteData with its maps of ids already encoded."""

    broker_datas: list[_BrokerDataWire]
    filter_server_table: dict[str, list[str]]
    order_topic_conf: str | None = None
    queue_datas: list[QueueData]
    topic_queue_mapping_by_broker: dict[str, _MappingWire] | None = None


class _ClusterInfoWire(msgspec.Struct, rename="camel"):
    """ClusterInfo with its maps of ids already encoded."""

    broker_addr_table: dict[str, _BrokerDataWire]
    cluster_addr_table: dict[str, list[str]]


_encode = msgspec.json.Encoder().encode
_MOST_SAFE: Final = 2**53 - 1
"""JavaScript's Number.MAX_SAFE_INTEGER."""


def _id_map(entries: Mapping[int, str] | Mapping[int, int], *, numeric_keys: bool) -> msgspec.Raw:
    """Encode a map with numbers as keys, in ascending order."""
    quote = b"" if numeric_keys else b'"'
    pairs = [b"%b%d%b:%b" % (quote, key, quote, _encode(value)) for key, value in sorted(entries.items())]
    return msgspec.Raw(b"{%b}" % b",".join(pairs))


def _broker_data(data: BrokerData, *, numeric_keys: bool) -> _BrokerDataWire:
    return _BrokerDataWire(
        _id_map(data.broker_addrs, numeric_keys=numeric_keys),
        data.broker_name,
        data.cluster,
        data.enable_acting_master,
        data.zone_name,
    )


def _mapping(info: TopicQueueMappingInfo, *, numeric_keys: bool) -> _MappingWire:
    ids = info.curr_id_map
    # In standard JSON a number that JavaScript would round is written as text (fastjson2's BrowserCompatible).
    is_safe = numeric_keys or -_MOST_SAFE <= info.epoch <= _MOST_SAFE
    return _MappingWire(
        info.bname,
        None if ids is None else _id_map(ids, numeric_keys=numeric_keys),
        info.dirty,
        info.epoch if is_safe else str(info.epoch),
        info.scope,
        info.topic,
        info.total_queues,
    )


def encode_broker_data(data: BrokerData, *, numeric_keys: bool) -> bytes:
    """Encode one entry of ``brokerDatas``. Callers cache it for every topic of the group (`encode_topic_route`)."""
    return _encode(_broker_data(data, numeric_keys=numeric_keys))


def encode_topic_route(route: TopicRouteData, *, numeric_keys: bool) -> bytes:
    """Encode the body of a route answer (TopicRouteData.encode)."""
    mappings = route.topic_queue_mapping_by_broker
    return _encode(
        _RouteWire(
            broker_datas=[_broker_data(data, numeric_keys=numeric_keys) for data in route.broker_datas],
            filter_server_table=dict(sorted(route.filter_server_table.items())),
            order_topic_conf=route.order_topic_conf,
            queue_datas=route.queue_datas,
            topic_queue_mapping_by_broker=None
            if mappings is None
            else {bname: _mapping(info, numeric_keys=numeric_keys) for bname, info in sorted(mappings.items())},
        )
    )


def encode_cluster_info(info: ClusterInfo, *, numeric_keys: bool = True) -> bytes:
    """Encode the body of a cluster info answer. Over remoting the keys are always numeric (ClusterInfo.encode)."""
    return _encode(
        _ClusterInfoWire(
            {
                name: _broker_data(data, numeric_keys=numeric_keys)
                for name, data in sorted(info.broker_addr_table.items())
            },
            dict(sorted(info.cluster_addr_table.items())),
        )
    )


def encode_member_group(cluster: str | None, broker_name: str | None, broker_addrs: Mapping[int, str]) -> bytes:
    """Encode the body of a member group answer. Keys are always numeric (GetBrokerMemberGroupResponseBody.encode)."""
    group: dict[str, object] = {"brokerAddrs": _id_map(broker_addrs, numeric_keys=True)}
    if broker_name is not None:
        group["brokerName"] = broker_name
    if cluster is not None:
        group["cluster"] = cluster
    return _encode({"brokerMemberGroup": group})


def encode_mapping(info: TopicQueueMappingInfo, *, numeric_keys: bool) -> bytes:
    """Encode one topic queue mapping (TopicQueueMappingInfo.encode)."""
    return _encode(_mapping(info, numeric_keys=numeric_keys))


class _ReadBrokerData(msgspec.Struct, rename="camel"):
    """BrokerData as any release writes it: 4.x has no enableActingMaster, 3.x no cluster."""

    broker_name: str
    broker_addrs: dict[int, str] | None = None
    cluster: str | None = None
    enable_acting_master: bool = False
    zone_name: str | None = None

    def data(self) -> BrokerData:
        return BrokerData(
            broker_addrs=self.broker_addrs or {},
            broker_name=self.broker_name,
            cluster=self.cluster or "",
            enable_acting_master=self.enable_acting_master,
            zone_name=self.zone_name,
        )


class _ReadRoute(msgspec.Struct, rename="camel"):
    """TopicRouteData as any release writes it."""

    broker_datas: list[_ReadBrokerData] | None = None
    queue_datas: list[QueueData] | None = None
    filter_server_table: dict[str, list[str]] | None = None
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class _ReadClusterInfo(msgspec.Struct, rename="camel"):
    """ClusterInfo as any release writes it."""

    broker_addr_table: dict[str, _ReadBrokerData]
    cluster_addr_table: dict[str, list[str]]


_route_decoder = msgspec.json.Decoder(_ReadRoute, strict=False)  # a large epoch is text
_cluster_info_decoder = msgspec.json.Decoder(_ReadClusterInfo, strict=False)


def decode_topic_route(data: bytes) -> TopicRouteData:
    """Decode a route answer of either dialect, as any NameServer since 3.x writes it.

    Raises:
        ValueError: The data is not a route.
    """
    found = decode(data, _route_decoder)
    return TopicRouteData(
        broker_datas=[group.data() for group in found.broker_datas or ()],
        filter_server_table=found.filter_server_table or {},
        order_topic_conf=found.order_topic_conf,
        queue_datas=found.queue_datas or [],
        topic_queue_mapping_by_broker=found.topic_queue_mapping_by_broker,
    )


def decode_cluster_info(data: bytes) -> ClusterInfo:
    """Decode a cluster info answer of either dialect, as any NameServer since 3.x writes it.

    Raises:
        ValueError: The data is not a cluster info.
    """
    found = decode(data, _cluster_info_decoder)
    return ClusterInfo(
        broker_addr_table={name: group.data() for name, group in found.broker_addr_table.items()},
        cluster_addr_table=found.cluster_addr_table,
    )
