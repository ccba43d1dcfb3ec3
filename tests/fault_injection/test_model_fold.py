# SPDX-License-Identifier: Apache-2.0
"""The judge's model of RocketMQ and the product's rules make the same of the same events, corner by corner.

What they differ in a torture run may meet once in a day, and then it is a night's work to see which of them is wrong.
"""

from __future__ import annotations

import importlib
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dev.fault_injection.model_fold import ModelFold
from dev.fault_injection.planted.sitecustomize import MUTANTS
from dev.support import events as make
from dev.support.generated_logs import START_MS, STEPS_MS, cuts
from dev.support.readers import agreed_states
from eventlog.base import LogRecord
from nameserver.state_machine.state import RouteState
from schemas.broker import DataVersion, QueueRow
from schemas.events import AnyEvent, Resume, decode, encode, routing_key

NAMES = ("b", "x")
TOPICS = ("T", "U", "W")


def _event(rng: random.Random) -> AnyEvent:
    name = rng.choice(NAMES)
    broker_id = rng.choice((0, 0, 1, 1, 2))
    addr, topic, gateway = f"{name}-{rng.choice((0, 1, 2))}:1", rng.choice(TOPICS), rng.choice(("g1", "g2"))
    named = rng.choice((TOPICS, TOPICS[:2], TOPICS[1:], TOPICS[:1], ()))
    connection = rng.choice(("1", "2"))
    register = make.register(
        addr,
        broker_id,
        name=name,
        table=make.topics(*named, row=rng.choice((make.ROW, QueueRow(4, 4, 7, 1)))),
        version=DataVersion(rng.choice((0, 1, 1, 2)), 1, rng.choice((1, 2))),
        connection=rng.choice((None, connection)),
        gateway=gateway,
        slim=rng.random() < 0.4,
        heartbeat_timeout_millis=rng.choice((1_000, 3_000, None)),
        enable_acting_master=rng.choice((None, True, False)),
        zone_name=rng.choice((None, "HZ")),
        filter_server_list=rng.choice((None, [], ["f:1"])),
    )
    others = (
        make.heartbeat(addr, name=name, gateway=gateway),
        make.unregister(addr, broker_id, name=name),
        make.closed(addr, connection, name=name, gateway=gateway),
        make.delete_topic(topic, rng.choice((None, "c"))),
        make.register_topic(topic, name=name),
        make.wipe(name),
        make.add(name),
        make.clock(),
        make.resume(),
        make.resume(after_ms=1_000),
    )
    return register if rng.random() < 0.6 else rng.choice(others)


def of_the_product(state: RouteState) -> dict[str, Any]:
    groups = state.groups.values()
    return {
        "topics": {
            (topic, group.broker_name): tuple(row) for group in groups for topic, row in group.topics.rows.items()
        },
        "brokers": {
            group.broker_name: (dict(group.broker_addrs), group.enable_acting_master, group.zone_name)
            for group in groups
            if group.known
        },
        "clusters": {(cluster, group.broker_name) for group in groups for cluster in group.clusters},
        "live": {
            addr: (live.data_version.state_version, live.data_version.counter, live.expire_ms)
            for group in groups
            for (_, addr), live in group.live.items()
        },
        "filters": {addr: servers for group in groups for (_, addr), servers in group.filter_servers.items()},
    }


def of_the_model(fold: ModelFold) -> dict[str, Any]:
    tables = fold.model.tables
    return {
        "topics": {
            (topic, str(name)): (row.read_queue_nums, row.write_queue_nums, row.perm, row.topic_sys_flag)
            for topic, rows in tables.topic_queue_table.items()
            for name, row in rows.items()
        },
        "brokers": {
            str(name): (dict(data.broker_addrs), data.enable_acting_master, data.zone_name)
            for name, data in tables.broker_addr_table.items()
        },
        "clusters": {
            (str(cluster), str(name)) for cluster, names in tables.cluster_addr_table.items() for name in names
        },
        "live": {
            str(key.broker_addr): (
                live.data_version.state_version if live.data_version is not None else None,
                live.data_version.counter if live.data_version is not None else None,
                live.last_update_timestamp + live.heartbeat_timeout_millis,
            )
            for key, live in tables.broker_live_table.items()
        },
        "filters": {str(key.broker_addr): tuple(servers) for key, servers in tables.filter_server_table.items()},
    }


ASSORTMENT = [_event(rng) for rng in [random.Random(7)] for _ in range(600)]


def _written(entries: list[tuple[int, AnyEvent]]) -> list[LogRecord]:
    records: list[LogRecord] = []
    now_ms = START_MS
    for offset, (step_ms, event) in enumerate(entries, 1):
        if isinstance(event, Resume):
            after_ms = None if event.after_ms is None else now_ms + event.after_ms
            event = msgspec.structs.replace(event, after_ms=after_ms)
        now_ms += step_ms
        records.append(LogRecord(offset, now_ms, routing_key(event), encode(event)))
    return records


logs = st.lists(st.tuples(st.sampled_from(STEPS_MS), st.sampled_from(ASSORTMENT)), min_size=1, max_size=25).map(
    _written
)


@settings(max_examples=min(300, 3 * settings().max_examples))
@given(records=logs, sizes=cuts, shards=st.sampled_from((1, 2, 4)))
def test_model_and_product_have_the_same_state_after_each_event(
    records: list[LogRecord], sizes: list[int], shards: int
) -> None:
    """And so do live view, fold, replay and audit, however the log is cut and spread."""
    model = ModelFold()
    for record, state in zip(records, agreed_states(records, sizes, shards), strict=True):
        event = decode(record.payload)
        model.take(event, record.event_time_ms)
        assert of_the_product(state) == of_the_model(model), f"after {record.offset}: {event}"


def test_a_shard_that_expires_by_its_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    name, plant = MUTANTS["batch-expiry"]
    module = importlib.import_module(name)
    monkeypatch.setattr(module.ShardFold, "finish", module.ShardFold.finish)
    plant(module)
    records = _written([(0, make.register(heartbeat_timeout_millis=1_000)), (1_500, make.clock("g1"))])
    agreed_states(records, [2], 2)
    records = _written([(0, make.register(heartbeat_timeout_millis=1_000)), (1_500, make.delete_topic("none"))])
    agreed_states(records, [2], 2)
    records = _written(
        [
            (0, make.register(heartbeat_timeout_millis=1_000)),
            (0, make.register("x-0:1", name="x")),
            (1_500, make.heartbeat("x-0:1", name="x")),
        ]
    )
    with pytest.raises(AssertionError, match="tables at 3"):
        agreed_states(records, [3], 1)
