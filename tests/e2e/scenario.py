# SPDX-License-Identifier: Apache-2.0
"""The main scenario: a stock RocketMQ broker and the stock mqadmin against the NameServer at an address.

Every function takes only the address of a NameServer. `test_scenario_on_stock_namesrv` proves the scenario itself
against Apache RocketMQ's own NameServer; routelake has to pass the same.

Answers to clients are read with a client in Python, because a JVM for each question would take seconds. Answers to
operators are read from mqadmin's output.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request, Response, parse_fastjson
from dev.peers.java import wait_until
from dev.support.rocketmq import StockBroker, mqadmin

CLUSTER = "e2e-cluster"
BROKER = "e2e-broker"

# A timeout that is short, and still longer than a JVM on a busy machine may pause.
TIMEOUT_MS = 8_000


@dataclass(frozen=True)
class Patience:
    """How long effects may take to show, in seconds.

    Attributes:
        write: From the reply to a write until every reader sees it.
        disconnect: From a broker's death until its routes are gone.
        expiry: From a broker's timeout until its routes are gone; the stock NameServer looks every 5 s.
        registration: From a broker's (re)start until its routes are there; it registers at once, then every 10 s.
    """

    write: float = 5.0
    disconnect: float = 5.0
    expiry: float = 8.0
    registration: float = 25.0


def ask(namesrv_addr: str, code: int, **ext: str) -> Response:
    """One request over a connection of its own."""
    host, _, port = namesrv_addr.rpartition(":")
    with RemotingClient(host, int(port)) as client:
        return client.call(Request(code, ext), timeout_s=30)


def route(namesrv_addr: str, topic: str) -> dict[str, Any] | None:
    """TopicRouteData of a topic; None for TOPIC_NOT_EXIST."""
    answer = ask(namesrv_addr, codes.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    if answer.code == codes.TOPIC_NOT_EXIST:
        return None
    assert answer.code == codes.SUCCESS, answer
    body: dict[str, Any] = parse_fastjson(answer.body.decode())[0]
    return body


def queue_data(namesrv_addr: str, topic: str) -> dict[str, Any] | None:
    """The broker's row of a topic."""
    found = route(namesrv_addr, topic)
    rows = [row for row in found["queueDatas"] if row["brokerName"] == BROKER] if found else []
    return rows[0] if rows else None


def stock_broker(namesrv_addr: str, **properties: str) -> StockBroker:
    """The scenario's broker: with slave acting master it sends its timeout along, so that it can be short."""
    return StockBroker(
        namesrv_addr,
        CLUSTER,
        BROKER,
        0,
        {
            "enableSlaveActingMaster": "true",
            "brokerNotActiveTimeoutMillis": str(TIMEOUT_MS),
            "brokerHeartbeatInterval": "1000",
            **properties,
        },
    )


@contextmanager
def registered_broker(namesrv_addr: str, patience: Patience) -> Iterator[StockBroker]:
    """A running broker. Its built-in topics have a route."""
    with stock_broker(namesrv_addr) as broker:
        wait_until(lambda: route(namesrv_addr, "TBW102") is not None, patience.registration, "first registration")
        yield broker


def admin(namesrv_addr: str, *args: str, release: str = "5.5.0") -> str:
    """Run mqadmin and return what it printed; its exit status says nothing, so a stack trace is a failure.

    4.9.7's clusterList is let off: it prints the row and then stumbles over a 5.x broker's statistics.
    """
    done = mqadmin(list(args), namesrv_addr, release)
    text = done.stdout + done.stderr
    stumbles = release.startswith("4.") and args[0] == "clusterList"
    assert stumbles or "Exception" not in text, f"mqadmin {args} on {release}:\n{text}"
    return text


# --- what mqadmin does ---


def check_cluster_list(namesrv_addr: str, broker: StockBroker, release: str = "5.5.0") -> None:
    """clusterList shows the broker."""
    text = admin(namesrv_addr, "clusterList", release=release)
    assert re.search(rf"^{CLUSTER}\s+{BROKER}\s+0\s+{re.escape(broker.address)}\s", text, re.M), text


def check_topic_on_cluster(namesrv_addr: str, broker: StockBroker, patience: Patience) -> None:
    """updateTopic -c: the route has the queues that were asked for."""
    text = admin(namesrv_addr, "updateTopic", "-c", CLUSTER, "-t", "orders", "-r", "6", "-w", "4")
    assert f"create topic to {broker.address} success" in text
    expected = {"brokerName": BROKER, "perm": 6, "readQueueNums": 6, "topicSysFlag": 0, "writeQueueNums": 4}
    wait_until(lambda: queue_data(namesrv_addr, "orders") == expected, patience.write, "route of a topic by -c")


def check_topic_on_broker(namesrv_addr: str, broker: StockBroker, patience: Patience) -> None:
    """updateTopic -b."""
    text = admin(namesrv_addr, "updateTopic", "-b", broker.address, "-t", "payments")
    assert f"create topic to {broker.address} success" in text
    wait_until(lambda: queue_data(namesrv_addr, "payments") is not None, patience.write, "route of a topic by -b")


def check_topic_route(namesrv_addr: str, broker: StockBroker, release: str = "5.5.0") -> None:
    """topicRoute prints the route as JSON."""
    text = admin(namesrv_addr, "topicRoute", "-t", "orders", release=release)
    shown = parse_fastjson(text[text.index("{") : text.rindex("}") + 1])[0]
    assert shown["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}
    assert shown["brokerDatas"][0]["cluster"] == CLUSTER
    assert [row["writeQueueNums"] for row in shown["queueDatas"]] == [4]


def check_topic_list(namesrv_addr: str, release: str = "5.5.0") -> None:
    """topicList has the topics that exist."""
    listed = set(admin(namesrv_addr, "topicList", release=release).split())
    assert {"TBW102", "orders", "payments", BROKER, CLUSTER} <= listed, listed


def check_wipe(namesrv_addr: str, patience: Patience) -> None:
    """wipeWritePerm takes the write permission of every row of the broker."""
    text = admin(namesrv_addr, "wipeWritePerm", "-b", BROKER)
    count = re.search(rf"wipe write perm of broker\[{BROKER}\] in name server\[\S+\] OK, (\d+)", text)
    assert count is not None, text
    assert int(count.group(1)) > 10
    wait_until(lambda: _perm(namesrv_addr) == 4, patience.write, "perm after wipeWritePerm")


def check_wiped_still(namesrv_addr: str, wiped_at: float) -> None:
    """The broker registers again every ten seconds with an unchanged version, which must not undo the wipe."""
    time.sleep(max(0.0, wiped_at + 11 - time.monotonic()))
    assert _perm(namesrv_addr) == 4


def check_add_write(namesrv_addr: str, patience: Patience) -> None:
    """addWritePerm gives the permission back."""
    text = admin(namesrv_addr, "addWritePerm", "-b", BROKER)
    assert f"add write perm of broker[{BROKER}]" in text, text
    wait_until(lambda: _perm(namesrv_addr) == 6, patience.write, "perm after addWritePerm")


def _perm(namesrv_addr: str) -> int | None:
    row = queue_data(namesrv_addr, "orders")
    return None if row is None else int(row["perm"])


def check_kv_config(namesrv_addr: str, patience: Patience) -> None:
    """updateKvConfig stores a value."""
    admin(namesrv_addr, "updateKvConfig", "-s", "e2e", "-k", "colour", "-v", "green")
    wait_until(lambda: _colour(namesrv_addr).ext == {"value": "green"}, patience.write, "KV value")


def check_kv_deletion(namesrv_addr: str, patience: Patience) -> None:
    """deleteKvConfig removes it."""
    admin(namesrv_addr, "deleteKvConfig", "-s", "e2e", "-k", "colour")
    wait_until(lambda: _colour(namesrv_addr).code == codes.QUERY_NOT_FOUND, patience.write, "no KV value")


def _colour(namesrv_addr: str) -> Response:
    return ask(namesrv_addr, codes.GET_KV_CONFIG, namespace="e2e", key="colour")


def check_delete_topic(namesrv_addr: str, patience: Patience) -> None:
    """deleteTopic takes the topic from the brokers and from the NameServer."""
    admin(namesrv_addr, "deleteTopic", "-c", CLUSTER, "-t", "payments")
    wait_until(lambda: route(namesrv_addr, "payments") is None, patience.write, "no route of a deleted topic")


# --- what happens to the broker ---


def check_kill_and_restart(namesrv_addr: str, broker: StockBroker, patience: Patience) -> None:
    """A killed broker's routes go at once, because its connection closes; after a restart they are back."""
    broker.sigkill()
    took = wait_until(lambda: route(namesrv_addr, "orders") is None, patience.disconnect, "no route after SIGKILL")
    assert took < TIMEOUT_MS / 1000, "the closed connection should have been enough, not the timeout"
    assert BROKER not in cluster_info(namesrv_addr)["brokerAddrTable"]
    broker.start()
    wait_until(lambda: route(namesrv_addr, "orders") is not None, patience.registration, "route after the restart")
    row = queue_data(namesrv_addr, "orders")
    assert row is not None
    assert (row["readQueueNums"], row["writeQueueNums"], row["perm"]) == (6, 4, 6)


def check_freeze_and_thaw(namesrv_addr: str, broker: StockBroker, patience: Patience) -> None:
    """A frozen broker keeps its connection and its routes until its timeout; when it goes on, they are back."""
    broker.sigstop()
    frozen = time.monotonic()
    assert route(namesrv_addr, "orders") is not None
    wait_until(
        lambda: route(namesrv_addr, "orders") is None, TIMEOUT_MS / 1000 + patience.expiry, "no route after SIGSTOP"
    )
    # The last heartbeat was up to a heartbeat interval before the freeze, or longer on a busy machine.
    assert time.monotonic() - frozen > TIMEOUT_MS / 1000 - 4, "the route went before the broker's timeout"
    broker.sigcont()
    wait_until(lambda: route(namesrv_addr, "orders") is not None, patience.registration, "route after SIGCONT")


def check_orderly_shutdown(namesrv_addr: str, broker: StockBroker, patience: Patience) -> None:
    """A broker that shuts down in order unregisters itself."""
    broker.terminate(wait=False)
    wait_until(lambda: route(namesrv_addr, "orders") is None, patience.disconnect, "no route after shutdown")


def cluster_info(namesrv_addr: str) -> dict[str, Any]:
    """GET_BROKER_CLUSTER_INFO."""
    info: dict[str, Any] = parse_fastjson(ask(namesrv_addr, codes.GET_BROKER_CLUSTER_INFO).body.decode())[0]
    return info


def run(namesrv_addr: str, patience: Patience | None = None, report: Callable[[str], None] = print) -> None:
    """The whole scenario, in the order of issue 3.

    mqadmin spends most of its seconds waiting for its own threads to end, so what does not depend on each other runs
    side by side.

    Args:
        namesrv_addr: host:port of the NameServer to prove.
        patience: How long effects may take.
        report: Told the name and duration of each part.
    """
    patience = patience or Patience()
    with registered_broker(namesrv_addr, patience) as broker:
        report(f"broker ready in {broker.start_seconds:.1f} s")
        with _reported("clusterList, updateTopic, updateKvConfig", report):
            side_by_side(
                lambda: check_cluster_list(namesrv_addr, broker),
                lambda: check_topic_on_cluster(namesrv_addr, broker, patience),
                lambda: check_topic_on_broker(namesrv_addr, broker, patience),
                lambda: check_kv_config(namesrv_addr, patience),
            )
        with _reported("wipeWritePerm", report):
            check_wipe(namesrv_addr, patience)
            wiped_at = time.monotonic()
        with _reported("topicRoute, topicList, and all three again with 4.9.7", report):
            side_by_side(
                lambda: check_topic_route(namesrv_addr, broker),
                lambda: check_topic_list(namesrv_addr),
                lambda: check_cluster_list(namesrv_addr, broker, "4.9.7"),
                lambda: check_topic_route(namesrv_addr, broker, "4.9.7"),
                lambda: check_topic_list(namesrv_addr, "4.9.7"),
            )
            check_wiped_still(namesrv_addr, wiped_at)
        with _reported("addWritePerm, deleteTopic, deleteKvConfig", report):
            side_by_side(
                lambda: check_add_write(namesrv_addr, patience),
                lambda: check_delete_topic(namesrv_addr, patience),
                lambda: check_kv_deletion(namesrv_addr, patience),
            )
        with _reported("SIGKILL", report):
            check_kill_and_restart(namesrv_addr, broker, patience)
        with _reported("SIGSTOP", report):
            check_freeze_and_thaw(namesrv_addr, broker, patience)
        with _reported("shutdown", report):
            check_orderly_shutdown(namesrv_addr, broker, patience)


def side_by_side(*checks: Callable[[], None]) -> None:
    """Run checks in threads; the first failure is raised when all have ended."""
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(check) for check in checks]
    for check in running:
        check.result()


@contextmanager
def _reported(name: str, report: Callable[[str], None]) -> Iterator[None]:
    began = time.monotonic()
    yield
    report(f"{name}: {time.monotonic() - began:.1f} s")
