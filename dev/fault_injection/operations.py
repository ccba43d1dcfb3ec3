# SPDX-License-Identifier: Apache-2.0
"""Operations of a worker: each one as it goes over port 9876 and as it goes over HTTP.

An operation is plain data, so that a plan is a value and a record can be read without further knowledge. Every write
differs from every other one on the log: by its connection (the event's `actor.peer`) and by its contents.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from dev.model import codes
from dev.model.wire import Request

REMOTING_WRITES: Final = frozenset({"query-version", "register-topic"})
"""QUERY_DATA_VERSION, a heartbeat that is answered, and REGISTER_TOPIC_IN_NAMESRV: not over HTTP."""
WRITES: Final = REMOTING_WRITES | {
    *("register", "heartbeat", "unregister", "delete-topic", "wipe", "add-write", "put-kv", "delete-kv"),
}
READS: Final = frozenset({"route", "topics", "members", "clusters", "kv", "kv-list", "as-of"})


@dataclass(frozen=True)
class Broker:
    """One broker process, with a name, id and address of its own.

    Attributes:
        timeout_ms: heartbeatTimeoutMillis; None is RocketMQ's default of two minutes.
        acting: enableActingMaster.
    """

    cluster: str
    name: str
    id: int
    addr: str
    timeout_ms: int | None = None
    acting: bool = False

    @property
    def ha_addr(self) -> str:
        """haServerAddr."""
        return self.addr.replace("10911", "10912")

    def header(self) -> dict[str, str]:
        """The four header fields that say who it is."""
        return {
            "clusterName": self.cluster,
            "brokerName": self.name,
            "brokerAddr": self.addr,
            "brokerId": str(self.id),
        }


@dataclass(frozen=True)
class Operation:
    """One request.

    Attributes:
        kind: one of `WRITES` or `READS`; "close" loses the connection, "silence" is a broker that says nothing.
        broker: who registers, heartbeats, unregisters or is silent.
        version: DataVersion.counter of a registration, or of a question for it.
        state: DataVersion.stateVersion likewise.
        topics: topic -> numbers of read and of write queues, of a registration.
        one_way: whether it is sent as a request that gets no answer.
        ask: names of a read or an admin command: topic, name, namespace, key, value, reads, writes.
        wait_for: whether an HTTP read names the offset of this worker's last write.
        committed: whether an HTTP read asks for the latest epoch instead of the head.
        by_time: whether a question for the past names a time instead of an epoch.
        poll_s: a long poll of so many seconds, if there is an ETag to ask with.
        pause_ms: what to wait before it is sent.
    """

    kind: str
    broker: Broker | None = None
    version: int = 0
    state: int = 0
    topics: dict[str, tuple[int, int]] = field(default_factory=dict)
    one_way: bool = False
    ask: dict[str, str] = field(default_factory=dict)
    wait_for: bool = False
    committed: bool = False
    by_time: bool = False
    poll_s: int = 0
    pause_ms: int = 0

    def plain(self) -> dict[str, Any]:
        """For the record: what is not the default."""
        said: dict[str, Any] = {"kind": self.kind}
        if self.broker is not None:
            said["broker"] = vars(self.broker)
        for name in ("version", "state", "topics", "one_way", "ask", "wait_for", "committed", "by_time", "poll_s"):
            if getattr(self, name):
                said[name] = getattr(self, name)
        return said

    @property
    def subject(self) -> tuple[str, ...]:
        """Subject of a read: answers of one subject are compared with the model's to `request`."""
        return (self.kind, *(self.ask[name] for name in sorted(self.ask)))

    # --- port 9876 ---

    def request(self) -> Request:
        """Return the request as a stock peer sends it.

        Raises:
            KeyError: there is no such request, as of the past.
        """
        code = _CODES[self.kind]
        if self.kind == "register-topic":
            row = {"brokerName": self.ask["brokerName"], "perm": 6, "topicSysFlag": 0}
            row |= {"readQueueNums": int(self.ask["reads"]), "writeQueueNums": int(self.ask["writes"])}
            return Request(code, {"topic": self.ask["topic"]}, json.dumps({"queueDatas": [row]}).encode())
        if self.broker is None:
            return Request(code, dict(self.ask))
        header = self.broker.header()
        if self.kind == "query-version":
            return Request(code, header, json.dumps(self.data_version).encode())
        if self.kind != "register":
            return Request(code, header, oneway=self.one_way)
        header["haServerAddr"] = self.broker.ha_addr
        header["enableActingMaster"] = str(self.broker.acting).lower()
        if self.broker.timeout_ms is not None:
            header["heartbeatTimeoutMillis"] = str(self.broker.timeout_ms)
        return Request(code, header, json.dumps(self._body()).encode(), oneway=self.one_way)

    @property
    def data_version(self) -> dict[str, int]:
        """The broker's DataVersion as it registers it."""
        return {"stateVersion": self.state, "timestamp": 1_700_000_000_000, "counter": self.version}

    def _body(self) -> dict[str, Any]:
        table = {
            name: {"topicName": name, "readQueueNums": reads, "writeQueueNums": writes, "perm": 6, "topicSysFlag": 0}
            for name, (reads, writes) in self.topics.items()
        }
        wrapper = {"dataVersion": self.data_version, "topicConfigTable": table}
        return {"topicConfigSerializeWrapper": wrapper, "filterServerList": []}

    # --- HTTP ---

    def http(self) -> tuple[str, str, bytes | None]:
        """Method, path and body; parameters that depend on answers (wait_for, as_of) are the worker's to add."""
        ask = {name: quote(value, safe="") for name, value in self.ask.items()}
        match self.kind:
            case "register":
                assert self.broker is not None
                body: dict[str, Any] = {**self._who(), **self._body(), "enableActingMaster": self.broker.acting}
                body |= {"brokerId": self.broker.id, "haServerAddr": self.broker.ha_addr}
                if self.broker.timeout_ms is not None:
                    body["heartbeatTimeoutMillis"] = self.broker.timeout_ms
                return "POST", "/v1/brokers/register", json.dumps(body).encode()
            case "heartbeat":
                return "POST", "/v1/brokers/heartbeat", json.dumps(self._who()).encode()
            case "unregister":
                assert self.broker is not None
                body = {**self._who(), "brokerId": self.broker.id}
                return "POST", "/v1/brokers/unregister", json.dumps(body).encode()
            case "delete-topic":
                return "DELETE", f"/v1/topics/{ask['topic']}", None
            case "wipe":
                return "POST", f"/v1/brokers/{ask['brokerName']}/wipe-write-perm", None
            case "add-write":
                return "POST", f"/v1/brokers/{ask['brokerName']}/add-write-perm", None
            case "put-kv":
                path = f"/v1/kv/{ask['namespace']}/{ask['key']}"
                return "PUT", path, json.dumps({"value": self.ask["value"]}).encode()
            case "delete-kv":
                return "DELETE", f"/v1/kv/{ask['namespace']}/{ask['key']}", None
            case "route" | "as-of":
                return "GET", f"/v1/topics/{ask['topic']}/route", None
            case "topics":
                return "GET", "/v1/topics", None
            case "kv":
                return "GET", f"/v1/kv/{ask['namespace']}/{ask['key']}", None
            case "kv-list":
                return "GET", f"/v1/kv/{ask['namespace']}", None
        raise KeyError(self.kind)

    def _who(self) -> dict[str, Any]:
        assert self.broker is not None
        return {"clusterName": self.broker.cluster, "brokerName": self.broker.name, "brokerAddr": self.broker.addr}


_CODES: Final = {
    "register": codes.REGISTER_BROKER,
    "heartbeat": codes.BROKER_HEARTBEAT,
    "unregister": codes.UNREGISTER_BROKER,
    "delete-topic": codes.DELETE_TOPIC_IN_NAMESRV,
    "wipe": codes.WIPE_WRITE_PERM_OF_BROKER,
    "add-write": codes.ADD_WRITE_PERM_OF_BROKER,
    "put-kv": codes.PUT_KV_CONFIG,
    "delete-kv": codes.DELETE_KV_CONFIG,
    "query-version": codes.QUERY_DATA_VERSION,
    "register-topic": codes.REGISTER_TOPIC_IN_NAMESRV,
    "route": codes.GET_ROUTEINFO_BY_TOPIC,
    "topics": codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    "members": codes.GET_BROKER_MEMBER_GROUP,
    "clusters": codes.GET_BROKER_CLUSTER_INFO,
    "kv": codes.GET_KV_CONFIG,
    "kv-list": codes.GET_KVLIST_BY_NAMESPACE,
}
HTTP_READS: Final = ("route", "route", "route", "topics", "kv", "kv-list")
REMOTING_READS: Final = ("route", "route", "route", "topics", "members", "clusters", "kv", "kv-list")
