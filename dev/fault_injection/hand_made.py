# SPDX-License-Identifier: Apache-2.0
"""A history written by hand, in which nothing is wrong, and its parts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from dev.fault_injection.answers import tables_of
from dev.fault_injection.case import Case
from dev.fault_injection.evidence import Epoch, Evidence, Logged
from dev.fault_injection.operations import Broker, Operation
from dev.fault_injection.record import Entry, Record
from dev.support import events
from schemas.broker import DataVersion
from schemas.events import Actor, AnyEvent, Clock, PutKvConfig, RegisterBroker

BROKER = Broker("c", "b", 0, "10.9.0.1:10911", 8_000)
REMOTING, HTTP = "127.0.0.1:1", "127.0.0.1:2"
ROUTE = Operation("route", ask={"topic": "T"})


def registration(queues: int, counter: int) -> RegisterBroker:
    row = events.ROW._replace(read_queue_nums=queues, write_queue_nums=queues)
    return events.register(
        BROKER.addr,
        name=BROKER.name,
        ha_server_addr=BROKER.ha_addr,
        table=events.topics("T", "U", row=row),
        version=replace_counter(counter),
        heartbeat_timeout_millis=BROKER.timeout_ms,
    )


def replace_counter(counter: int) -> DataVersion:
    return DataVersion(0, 1_700_000_000_000, counter)


def body(queues: int) -> str:
    row = {"brokerName": "b", "perm": 6, "readQueueNums": queues, "topicSysFlag": 0, "writeQueueNums": queues}
    data = {"brokerAddrs": {"0": BROKER.addr}, "brokerName": "b", "cluster": "c", "enableActingMaster": False}
    return json.dumps({"brokerDatas": [data], "filterServerTable": {}, "queueDatas": [row]})


def actor(peer: str, via: str) -> Actor:
    return Actor(gateway="g", via=via, peer=peer)


def written(event: AnyEvent, peer: str, via: str) -> AnyEvent:
    import msgspec

    return msgspec.structs.replace(event, actor=actor(peer, via))


def register_entry(queues: int, counter: int, sent_s: float) -> Entry:
    operation = Operation("register", BROKER, counter, topics={"T": (queues, queues), "U": (queues, queues)})
    return Entry("w", "remoting", REMOTING, operation, sent_s, sent_s + 0.1, 0)


def put_entry(offset: int, sent_s: float) -> Entry:
    operation = Operation("put-kv", ask={"namespace": "n", "key": "k", "value": "v"})
    answer = json.dumps({"outcome": "applied", "eventTime": "1970-01-01T00:00:03.000Z"})
    return Entry("a", "http", HTTP, operation, sent_s, sent_s + 0.1, 200, answer, offset=offset, visible=True)


def read_entry(queues: int, sent_s: float, offset: int | None, **more: Any) -> Entry:
    via = "remoting" if offset is None else "http"
    code = 0 if offset is None else 200
    entry = Entry("r", via, "127.0.0.1:3", ROUTE, sent_s, sent_s + 0.1, code, body(queues), offset=offset)
    return replace(entry, **{**({} if offset is None else {"epoch": 0}), **more})


def good_case() -> Case:
    """Offsets 1 and 2 register, with 8 and then 4 queues; 3 puts a KV entry; reads after each."""
    log = [
        Logged(1, 1_000, written(registration(8, 1), REMOTING, "remoting")),
        Logged(2, 2_000, written(registration(4, 2), REMOTING, "remoting")),
        Logged(3, 3_000, written(PutKvConfig(actor=events.actor(), namespace="n", key="k", value="v"), HTTP, "http")),
        Logged(4, 5_000, Clock(actor=Actor(gateway="g", via="routelake"))),
    ]
    entries = [
        register_entry(8, 1, 1.0),
        read_entry(8, 1.5, 1),
        read_entry(8, 1.6, None),
        register_entry(4, 2, 2.0),
        read_entry(4, 2.5, 2),
        read_entry(4, 2.6, None),
        put_entry(3, 3.0),
        read_entry(4, 3.5, 3, asked={"wait_for": "3"}),
        read_entry(4, 3.6, 4, epoch=1, asked={"reads": "committed"}),
        read_entry(4, 3.7, 4, epoch=1, asked={"as_of": "1"}, operation=Operation("as-of", ask=ROUTE.ask)),
    ]
    evidence = Evidence(log=log, epochs=[Epoch(1, 4, 4, 5_000)])
    evidence.changes = Counter({(str(offset), "C", "b", "-1", "None", "None", "None"): 1 for offset in (1, 2, 3)})
    found = Case(Record({"seed": 1}, entries, rests=[1.0]), evidence)
    evidence.topics, evidence.brokers, evidence.kv = tables_of(found.expected.model)
    return found


def again(case: Case) -> Case:
    """Judged again after a change."""
    return Case(case.record, case.evidence)
