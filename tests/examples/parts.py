# SPDX-License-Identifier: Apache-2.0
"""Short histories that each show one rule, with the answers that show it.

Some are rules of the reference that generated histories rarely reach, others are shrunk histories on which the model
and the real NameServer once disagreed, or on which a deliberately broken model went unnoticed. The model must give the
expected answers (`tests/examples/test_examples.py`). The real NameServer and routelake's handlers must give the same as the
model (`tests/differential`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dev.histories.steps import CompressedBody, Send, Step
from dev.model import codes
from dev.model.settings import Settings

C1, C2 = "cluster-a", "cluster-b"
A, B = "broker-a", "broker-b"
ADDR1, ADDR2, ADDR3 = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
T1, T2, T3 = "topic-a", "topic-b", "topic-c"
SYNC = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"


@dataclass(frozen=True)
class Expect:
    """A step and what must come back.

    Attributes:
        step: The request.
        answer: Dotted path into `canonical(...)`, such as "body.queueDatas" -> what is there (None: nothing).
    """

    step: Send
    answer: Mapping[str, Any]


@dataclass(frozen=True)
class Example:
    """A history, the switches it needs, and why it is here."""

    why: str
    steps: list[Step | Expect]
    settings: Settings = field(default_factory=Settings)

    @property
    def plain_steps(self) -> list[Step]:
        """The history alone."""
        return [step.step if isinstance(step, Expect) else step for step in self.steps]


def version(state: int = 0, timestamp: int = 1_000, counter: int = 1) -> dict[str, int]:
    """A DataVersion."""
    return {"counter": counter, "stateVersion": state, "timestamp": timestamp}


def config(topic: str, perm: int = 6, flag: int = 0, queues: int = 4) -> dict[str, Any]:
    """A TopicConfig."""
    return {
        "perm": perm,
        "readQueueNums": queues,
        "topicName": topic,
        "topicSysFlag": flag,
        "writeQueueNums": queues,
    }


def mapping(topic: str, bname: str, epoch: int = 1) -> dict[str, Any]:
    """A TopicQueueMappingInfo."""
    return {
        "bname": bname,
        "currIdMap": {"0": 0},
        "dirty": False,
        "epoch": epoch,
        "scope": "__global__",
        "topic": topic,
        "totalQueues": 4,
    }


def register(
    name: str,
    addr: str,
    broker_id: int = 0,
    topics: list[dict[str, Any]] | None = None,
    *,
    cluster: str = C1,
    at: dict[str, int] | None = None,
    filters: Sequence[str] | None = (),
    mappings: list[dict[str, Any]] | None = None,
    peer: int = 513,
    channel: str | None = None,
    acting: bool | None = None,
    zone: str | None = None,
    **ext: str,
) -> Send:
    """REGISTER_BROKER with two topics unless said otherwise; a peer before 5.0 unless `acting` is given."""
    configs = [config(T1), config(T2)] if topics is None else topics
    wrapper = {
        "dataVersion": at or version(),
        "topicConfigTable": {item["topicName"]: item for item in configs},
        "topicQueueMappingInfoMap": {item["topic"]: item for item in mappings or []},
    }
    body = {"filterServerList": None if filters is None else list(filters), "topicConfigSerializeWrapper": wrapper}
    header = {**who(name, addr, broker_id, cluster), "haServerAddr": addr.replace("10911", "10912"), **ext}
    if acting is not None:
        header["enableActingMaster"] = str(acting).lower()
    if zone is not None:
        header["__ZONE_NAME"] = zone
    return Send(codes.REGISTER_BROKER, header, json.dumps(body), peer, channel or f"{cluster}/{addr}")


def who(name: str, addr: str, broker_id: int = 0, cluster: str = C1) -> dict[str, str]:
    """The four header fields that say who a broker is."""
    return {"brokerName": name, "brokerAddr": addr, "clusterName": cluster, "brokerId": str(broker_id)}


def unregister(name: str, addr: str, broker_id: int = 0, cluster: str = C1) -> Send:
    """UNREGISTER_BROKER."""
    return Send(codes.UNREGISTER_BROKER, who(name, addr, broker_id, cluster))


def row(name: str, perm: int = 6, flag: int = 0, queues: int = 4) -> dict[str, Any]:
    """A QueueData."""
    return {
        "brokerName": name,
        "perm": perm,
        "readQueueNums": queues,
        "topicSysFlag": flag,
        "writeQueueNums": queues,
    }


def broker(name: str, *, acting: bool = False, zone: str | None = None, **addrs: str) -> dict[str, Any]:
    """A BrokerData of C1, its addresses by keys such as id0."""
    numbered = {key.removeprefix("id"): addr for key, addr in addrs.items()}
    data = {"brokerAddrs": numbered, "brokerName": name, "cluster": C1, "enableActingMaster": acting}
    return data if zone is None else {**data, "zoneName": zone}


def route(topic: str, *rows: dict[str, Any], brokers: list[dict[str, Any]] | None = None) -> Expect:
    """GET_ROUTEINFO_BY_TOPIC answers these rows (none: TOPIC_NOT_EXIST), and these brokers if they are given."""
    ask = Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    if not rows:
        return Expect(ask, {"code": codes.TOPIC_NOT_EXIST, "ext": None, "body": None})
    answer: dict[str, Any] = {"code": 0, "body.queueDatas": list(rows)}
    if brokers is not None:
        answer["body.brokerDatas"] = brokers
    return Expect(ask, answer)


def group(name: str, **addrs: str) -> Expect:
    """GET_BROKER_MEMBER_GROUP answers these addresses, by keys such as id0."""
    expected = {key.removeprefix("id"): addr for key, addr in addrs.items()}
    ask = Send(codes.GET_BROKER_MEMBER_GROUP, {"brokerName": name, "clusterName": C1})
    return Expect(ask, {"code": 0, "body.brokerMemberGroup.brokerAddrs": expected})


def live(addr: str, at: dict[str, int] | None, cluster: str = C1, name: str = A) -> Expect:
    """QUERY_DATA_VERSION answers this version (None: no live row)."""
    named = {"clusterName": cluster, "brokerName": name, "brokerAddr": addr}
    ask = Send(codes.QUERY_DATA_VERSION, named, json.dumps(version()))
    changed = "false" if at == version() else "true"
    return Expect(ask, {"code": 0, "ext.changed": changed, "body": at})


def clusters(table: dict[str, list[str]]) -> Expect:
    """GET_BROKER_CLUSTER_INFO lists these names by cluster."""
    return Expect(Send(codes.GET_BROKER_CLUSTER_INFO), {"code": 0, "body.clusterAddrTable": table})


def topic_list(code: int, *topics: str, **ext: str) -> Expect:
    """A topic list has exactly these."""
    return Expect(Send(code, ext), {"code": 0, "body.topicList": sorted(topics, key=repr)})


def wipe(name: str, count: int) -> Expect:
    """WIPE_WRITE_PERM_OF_BROKER counts this many rows."""
    ask = Send(codes.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": name})
    return Expect(ask, {"code": 0, "ext": {"wipeTopicCount": str(count)}})


def add_write(name: str, count: int) -> Expect:
    """ADD_WRITE_PERM_OF_BROKER counts this many rows."""
    ask = Send(codes.ADD_WRITE_PERM_OF_BROKER, {"brokerName": name})
    return Expect(ask, {"code": 0, "ext": {"addTopicCount": str(count)}})


def register_topic(topic: str, *rows: dict[str, Any]) -> Send:
    """REGISTER_TOPIC_IN_NAMESRV."""
    return Send(codes.REGISTER_TOPIC_IN_NAMESRV, {"topic": topic}, json.dumps({"queueDatas": rows}))


def put(namespace: str, key: str, value: str | None) -> Send:
    """PUT_KV_CONFIG."""
    ext = {"namespace": namespace, "key": key}
    return Send(codes.PUT_KV_CONFIG, ext if value is None else {**ext, "value": value})


def fails(send: Send, ext: dict[str, str] | None = None) -> Expect:
    """SYSTEM_ERROR; extFields tell a refusal ({}) from an exception (None)."""
    return Expect(send, {"code": codes.SYSTEM_ERROR, "ext": ext, "body": None})


def succeeds(send: Send, **ext: str) -> Expect:
    """SUCCESS with exactly these extFields."""
    return Expect(send, {"code": codes.SUCCESS, "ext": ext})


DEFLATED = CompressedBody(
    json.dumps(version()), ("topic-a 4 4 6 SINGLE_TAG {}", "topic-b 4 4 6 SINGLE_TAG {}"), "[]", ()
)


def deflated(body: CompressedBody, peer: int, **ext: str) -> Send:
    """REGISTER_BROKER with a deflated body."""
    return Send(codes.REGISTER_BROKER, {**who(A, ADDR1), **ext}, body, peer, f"{C1}/{ADDR1}")
