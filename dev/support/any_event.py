# SPDX-License-Identifier: Apache-2.0
"""Any event at all: every field takes every value its type allows, and some beyond.

`any_events` holds what a payload may say; `absurd_events` also numbers that no table column and no Java field can hold,
which a payload written by hand or by a broken gateway may contain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from schemas import events
from schemas.broker import DataVersion, QueueRow, TopicQueueMappingInfo

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ABSURD = st.sampled_from((2**31, 2**63, 2**64, 10**30, -(2**31) - 1, -(2**63) - 1))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ("b", "b", "broker-a", "", "é☃", "a'b", 'a"b', "a/b", "%2F", "..", "\x00", "\n", "𝔘")
)


def _optional(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[str | None]:
    return st.none() | strategy


def _events(int32: st.SearchStrategy[int], int64: st.SearchStrategy[int]) -> st.SearchStrategy[events.AnyEvent]:
    actors = st.builds(events.Actor, gateway=texts, via=texts, peer=_optional(texts), user=_optional(texts))
    channels = st.builds(events.Channel, gateway=texts, connection=texts)
    rows = st.builds(QueueRow, int32, int32, int32, int32)
    mappings = st.builds(
        TopicQueueMappingInfo,
        topic=_optional(texts),
        scope=_optional(texts),
        total_queues=int32,
        bname=_optional(texts),
        epoch=int64,
        dirty=st.booleans(),
        curr_id_map=st.none() | st.dictionaries(int32, int32, max_size=2),
    )
    strategies = []
    fields_of: dict[Callable[..., events.AnyEvent], dict[str, st.SearchStrategy[Any]]] = {
        events.RegisterBroker: {
            "cluster_name": texts,
            "broker_name": texts,
            "broker_addr": texts,
            "broker_id": int64,
            "data_version": st.builds(DataVersion, int64, int64, int64),
            "topic_config_digest": texts,
            "topic_config_table": st.none() | st.dictionaries(texts, rows, max_size=4),
            "topic_queue_mapping_info_map": st.dictionaries(texts, mappings, max_size=2),
            "filter_server_list": st.none() | st.lists(texts, max_size=2),
            "ha_server_addr": _optional(texts),
            "heartbeat_timeout_millis": st.none() | int64,
            "enable_acting_master": st.none() | st.booleans(),
            "zone_name": _optional(texts),
            "delete_absent_topics": st.booleans(),
            "channel": st.none() | channels,
        },
        events.UnregisterBroker: {
            "cluster_name": texts,
            "broker_name": texts,
            "broker_addr": texts,
            "broker_id": st.none() | int64,
        },
        events.BrokerHeartbeat: {"cluster_name": texts, "broker_name": texts, "broker_addr": texts},
        events.ChannelClosed: {
            "cluster_name": texts,
            "broker_name": texts,
            "broker_addr": texts,
            "channel": channels,
            "grace_ms": int64,
        },
        events.DeleteTopic: {"topic": texts, "cluster_name": _optional(texts)},
        events.RegisterTopic: {
            "topic": texts,
            "queue_data": st.builds(events.RegisterTopicQueue, texts, int32, int32, int32, int32),
        },
        events.WipeWritePerm: {"broker_name": texts},
        events.AddWritePerm: {"broker_name": texts},
        events.PutKvConfig: {"namespace": texts, "key": texts, "value": _optional(texts)},
        events.DeleteKvConfig: {"namespace": texts, "key": texts},
        events.AccessRefused: {
            "request": texts,
            "needed": _optional(texts),
            "role": _optional(texts),
            "reason": texts,
            "remark": texts,
            "is_refused": st.booleans(),
            "times": int64,
            "claimed_user": _optional(texts),
            "topic": _optional(texts),
            "broker_name": _optional(texts),
        },
        events.Clock: {},
        events.Resume: {"after_ms": st.none() | int64},
        events.Preserve: {"live": int32, "silent": int32, "percent": int32},
        events.PreserveEnd: {"grace_ms": int64, "reason": texts},
    }
    for kind, fields in fields_of.items():
        strategies.append(st.builds(kind, actor=actors, **fields))
    return st.one_of(strategies)


any_events = _events(INT32, INT64)
absurd_events = _events(INT32 | ABSURD, INT64 | ABSURD)
