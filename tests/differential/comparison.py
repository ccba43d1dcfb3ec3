# SPDX-License-Identifier: Apache-2.0
"""One server and the model, side by side: the same steps to both, every answer compared.

The server is reached over the wire only, so the same comparison judges the stock NameServer and routelake. It may serve
thousands of histories: each gets names of its own (`histories.renamed`), and `clean` takes the brokers of a finished
history away so that the tables stay small. What never shrinks in RocketMQ (the mapping table, KV namespaces, stale live
rows) stays.

`Comparison` has the server to itself: its model lives as long as the server, and answers are compared whole. `SharedComparison` is
one of many that play at the same time, as a slow server needs: each history has a model of its own, and of the answers
that show everything (cluster info, topic lists, order configuration) only the history's own names are compared.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

from dev.histories.audit import audit_requests
from dev.histories.steps import ORDER_NAMESPACE, Advance, CloseChannel, Step
from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.namesrv import NameServerModel
from dev.model.settings import Settings
from dev.model.wire import Request, Response, canonical

ADMIN = "admin"


class Disagreement(AssertionError):
    """The server answered what the model does not allow."""


class TooSlow(Exception):
    """The machine was so slow that a timeout passed unintended; the history says nothing."""


SETTLE_TIMEOUT_S: Final = 30.0
"""How long a queued effect may take."""


class Comparison:
    """A connection to one server, and the model of it."""

    def __init__(
        self,
        host: str,
        port: int,
        model: NameServerModel,
        *,
        examples: Iterator[int] | None = None,
        unregisters_at_once: bool = False,
    ) -> None:
        """Prepare; connections are made when they are needed.

        Args:
            host: Of the server.
            port: Of the server.
            model: In the state the server is in, with the same settings.
            examples: Where the numbers of histories come from; comparisons that share a server share them.
            unregisters_at_once: Whether 104 is done when it is answered. RocketMQ only queues it.
        """
        self.host, self.port, self.model = host, port, model
        self._unregisters_at_once = unregisters_at_once
        self._examples = examples or itertools.count(1)
        self._channels: dict[str, RemotingClient] = {}
        self._example = 0
        self._played: list[str] = []
        self.steps_compared = 0
        self.reads_compared = 0

    def close(self) -> None:
        """Close every connection."""
        for client in self._channels.values():
            client.close()
        self._channels.clear()

    # --- a whole history ---

    def play(self, steps: Iterable[Step], settings: Settings | None = None) -> None:
        """Play a history, compare every answer, then every table that can be read, and clean up.

        Args:
            steps: The history.
            settings: Set by 318 first; None keeps the server's own.

        Raises:
            Disagreement: An answer the model does not allow.
            TooSlow: A broker may have expired between two steps.
        """
        self._example = next(self._examples)
        self._played = []
        try:
            if settings is not None:
                self.apply(settings)
            for step in steps:
                self._step(step)
                self.steps_compared += 1
            self._check_pace()
            self.audit()
        finally:
            self.clean()

    def apply(self, settings: Settings) -> None:
        """Set every switch of the server and of the model (318)."""
        pairs = settings.properties()
        del pairs["configBlackList"]
        body = "".join(f"{key}={value}\n" for key, value in sorted(pairs.items()))
        self.compare(Request(codes.UPDATE_NAMESRV_CONFIG, {}, body.encode()))

    def audit(self) -> None:
        """Read everything about this history's names through every code that reads."""
        for request in audit_requests(self._example):
            self.compare(request)
            self.reads_compared += 1

    # --- one step ---

    def _step(self, step: Step) -> None:
        self._played.append(repr(step))
        if isinstance(step, Advance):
            self._advance(step.ms)
        elif isinstance(step, CloseChannel):
            self._close(step.channel)
        else:
            self._check_pace()
            request = step.request(self._example)
            if request.code == codes.UNREGISTER_BROKER:
                self._unregister(request, step.channel)
            else:
                self.compare(request, step.channel, binary=step.binary)

    def compare(self, request: Request, channel: str = ADMIN, *, binary: bool = False) -> Response:
        """Send one request to both and compare the answers."""
        expires_ms = self._next_expiry_ms()
        expected = self.model.handle(request, self._now_ms(), self._client(channel))
        allowed = [self._form(request, answer) for answer in (expected, *self.model.also_allowed)]
        answer = self._answer(request, channel, binary=binary)
        actual = self._form(request, answer)
        if actual not in allowed:
            if self._now_ms() > expires_ms:
                raise TooSlow  # a process stood still after the look at the pace, and the server let a broker expire
            played = "\n  ".join(self._played)
            raise Disagreement(
                f"{request}\nserver: {json.dumps(actual, ensure_ascii=False)} ({answer.remark})\n"
                f"model:  {json.dumps(allowed, ensure_ascii=False)} ({expected.remark})\nplayed:\n  {played}"
            )
        return answer

    def _answer(self, request: Request, channel: str, *, binary: bool) -> Response:
        """Ask the server."""
        return self._client(channel).call(request, binary=binary)

    def _form(self, request: Request, answer: Response) -> dict[str, Any]:
        """What is compared of an answer."""
        return canonical(request, answer)

    def _unregister(self, request: Request, channel: str) -> None:
        """104 is answered before it is done: wait until it is."""
        self.compare(request, channel)
        self._settle()

    def _settle(self) -> None:
        """Wait until every unregistration the server has queued is done.

        A sentinel is registered, and unregistered behind what was queued: when it is gone, that is done as well,
        because one thread takes them in order, under one lock.
        """
        if self._unregisters_at_once:
            return
        sentinel = {
            "brokerName": f"sentinel-{self._example}",
            "brokerAddr": "10.255.255.1:1",
            "clusterName": f"sentinels-{self._example}",
            "brokerId": "0",
        }
        self._ask(Request(codes.REGISTER_BROKER, sentinel))
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline:
            # Sent again and again, because an exception in the batch before can take this one with it.
            self._ask(Request(codes.UNREGISTER_BROKER, sentinel))
            for _ in range(20):
                group = self._ask(Request(codes.GET_BROKER_MEMBER_GROUP, sentinel))
                if b'"brokerAddrs":{}' in group.body:
                    return
                time.sleep(0.001)
        raise Disagreement(f"the server did not finish its unregistrations within {SETTLE_TIMEOUT_S} s")

    def _close(self, channel: str) -> None:
        """Lose a connection, unless what follows would depend on hash order."""
        client = self._channels.get(channel)
        if client is None or self.model.close_is_unspecified(client):
            return
        before = self._groups()
        del self._channels[channel]
        client.close()
        self.model.close_channel(client, self._now_ms())
        self._await_groups(before)

    def _advance(self, ms: int) -> None:
        """Let real time pass, so that the server's own scan finds the silent brokers."""
        if self.model.scan_is_unspecified(self._now_ms() + ms):
            return
        time.sleep(ms / 1000)
        now_ms = self._now_ms()
        before = self._groups()
        closed = self.model.tables.scan_not_active_broker(now_ms)
        for client in closed:
            self.model.close_channel(client, now_ms)
        for name in [name for name, client in self._channels.items() if client in closed]:
            self._channels.pop(name).close()
        self._await_groups(before)

    def _check_pace(self) -> None:
        """Refuse to go on when a broker may have expired unnoticed."""
        if self._now_ms() > self._next_expiry_ms():
            raise TooSlow

    def _next_expiry_ms(self) -> float:
        """When the next broker of an open connection may expire, and a margin before that."""
        open_ones = set(self._channels.values())
        return min(
            (
                live.last_update_timestamp + live.heartbeat_timeout_millis - min(500, live.heartbeat_timeout_millis / 2)
                for live in self.model.tables.broker_live_table.values()
                if live.channel in open_ones
            ),
            default=math.inf,
        )

    def _groups(self) -> dict[str, dict[int, str | None]]:
        """The members of every broker group, as the model has them."""
        return {name: dict(data.broker_addrs) for name, data in self.model.tables.broker_addr_table.items()}

    def _await_groups(self, before: dict[str, dict[int, str | None]]) -> None:
        """Wait until the server shows every group that lost a member since as the model does."""
        after = self._groups()
        names = [name for name, members in before.items() if after.get(name) != members]
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        for name in names:
            request = Request(codes.GET_BROKER_MEMBER_GROUP, {"brokerName": name, "clusterName": "any"})
            while True:
                try:
                    self.compare(request)
                    break
                except Disagreement:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.005)
        self._settle()

    # --- cleaning ---

    def clean(self) -> None:
        """Unregister this history's brokers from both, drop its order configuration and its connections."""
        tables, suffix = self.model.tables, f"-{self._example}"
        for name, data in list(tables.broker_addr_table.items()):
            if name.endswith(suffix):
                for broker_id, addr in list(data.broker_addrs.items()) or [(0, "10.0.0.1:1")]:
                    self._remove(data.cluster, name, addr, broker_id)
        for cluster, names in list(tables.cluster_addr_table.items()):
            # A name that another cluster claimed first is not taken from this one's set: let it claim it alone.
            for name in [name for name in names if name and name.endswith(suffix)]:
                ext = {"clusterName": cluster, "brokerName": name, "brokerAddr": "10.0.0.1:1", "brokerId": "0"}
                self.compare(Request(codes.REGISTER_BROKER, ext))
                self._remove(cluster, name, "10.0.0.1:1", 0)
        for cluster, addr in list(tables.broker_live_table):
            if cluster.endswith(suffix):
                self._remove(cluster, "nobody", addr, 0)
        for key in list(self.model.kv.config_table.get(ORDER_NAMESPACE, {})):
            self.compare(Request(codes.DELETE_KV_CONFIG, {"namespace": ORDER_NAMESPACE, "key": str(key)}))
        for name in [name for name in self._channels if name != ADMIN]:
            self._channels.pop(name).close()

    def _remove(self, cluster: str, name: str, addr: str | None, broker_id: int) -> None:
        ext = {"clusterName": cluster, "brokerName": name, "brokerAddr": str(addr), "brokerId": str(broker_id)}
        self._unregister(Request(codes.UNREGISTER_BROKER, ext), ADMIN)

    # --- plumbing ---

    def _client(self, channel: str) -> RemotingClient:
        if channel not in self._channels:
            self._channels[channel] = RemotingClient(self.host, self.port)
        return self._channels[channel]

    def _ask(self, request: Request) -> Response:
        """Ask the server alone."""
        return self._client(ADMIN).call(request)

    @staticmethod
    def _now_ms() -> int:
        return time.monotonic_ns() // 1_000_000


class SharedComparison(Comparison):
    """A comparison on a server that plays other histories at the same time.

    Its histories must not change settings (318) nor depend on those of others.
    """

    def play(self, steps: Iterable[Step], settings: Settings | None = None) -> None:
        """Play a history against a model of its own.

        Args:
            steps: The history.
            settings: What the server was started with.
        """
        self.model = self._fresh_model(settings)
        super().play(steps)

    def _fresh_model(self, settings: Settings | None) -> NameServerModel:
        """A NameServer that knows nothing yet."""
        return NameServerModel(settings)

    def _answer(self, request: Request, channel: str, *, binary: bool) -> Response:
        """RocketMQ encodes GET_BROKER_CLUSTER_INFO without its lock, and fails where another history changes it: again."""
        while True:
            answer = super()._answer(request, channel, binary=binary)
            if "ConcurrentModificationException" not in (answer.remark or ""):
                return answer

    def _form(self, request: Request, answer: Response) -> dict[str, Any]:
        """Only what bears this history's number."""
        form = canonical(request, answer)
        body, suffix = form["body"], f"-{self._example}"
        if request.code == codes.GET_BROKER_CLUSTER_INFO:
            form["body"] = {name: _own(table, suffix) for name, table in body.items()}
            if not any(group["brokerAddrs"] for group in form["body"]["brokerAddrTable"].values()):
                form["dialect"] = None  # the keys that told were another history's
        elif body and "topicList" in body:
            form["body"] = [topic for topic in body["topicList"] if topic.endswith(suffix)]
        elif body and "table" in body:
            form["body"] = _own(body["table"], suffix) or None
        if request.code == codes.GET_KVLIST_BY_NAMESPACE and request.ext.get("namespace") == ORDER_NAMESPACE:
            form["code"] = codes.SUCCESS  # whether the order configuration exists at all may be another's doing
        return form


def _own(table: dict[str, Any], suffix: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key.endswith(suffix)}
