# SPDX-License-Identifier: Apache-2.0
"""A routelake that begins with SQLite and goes on in a Kafka that asks who comes, as its operator sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from dev.peers.java import wait_until
from dev.peers.kafka import Kafka
from dev.peers.routelake import Routelake
from dev.support.certificates import Authority
from dev.support.command import process
from dev.support.http_api import broker
from dev.support.secured_kafka import SCRAM, Properties, fixtures
from tests.e2e.scenario import route

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(900)]

HOUR_MS = 3_600_000


authority, kafka = fixtures("module")


def register(running: Routelake, name: str, *topics: str, host: int = 1) -> dict[str, Any]:
    body = broker(name, topics=topics, host=host, heartbeatTimeoutMillis=HOUR_MS)
    told: dict[str, Any] = running.send("POST", "/v1/brokers/register", body, 60)
    return told


def last_change(running: Routelake, topic: str, offset: int) -> dict[str, Any]:
    """What its history says last of it, once the tables have an offset."""

    def found() -> list[dict[str, Any]]:
        try:
            changes: list[dict[str, Any]] = running.get(f"/v1/topics/{topic}/changes?limit=1&wait_for={offset}")[
                "changes"
            ]
        except HTTPError:  # it waits for some seconds, and the fold may take longer
            return []
        return changes

    wait_until(lambda: bool(found()), 120, f"a change of {topic}")
    return found()[0]


def test_an_event_log_moves_from_sqlite_to_kafka_with_authentication(
    kafka: Kafka, authority: Authority, tmp_path: Path
) -> None:
    says, data_dir = Properties(tmp_path, authority), tmp_path / "data"
    file = says()
    to = f"kafka://127.0.0.1:{kafka.sasl_port}/events"

    with Routelake(data_dir) as running:
        register(running, "broker-a", "orders", "payments")
        deleted = running.send("DELETE", "/v1/topics/payments", None, 60)
        before = last_change(running, "payments", deleted["offset"])
        assert before["offset"] == deleted["offset"]
        assert running.stop() == 0

    moved = process("event-log", "copy", "--data-dir", data_dir, "--to", to, "--event-log-config", file)
    assert moved.returncode == 0, moved.stderr
    assert f"from now on, use --event-log {to}.from-1 --event-log-config {file}" in moved.stdout
    again = process("event-log", "copy", "--data-dir", data_dir, "--to", to, "--event-log-config", file)
    assert again.returncode == 0, again.stderr
    assert "(0 were new)" in again.stdout
    old = process("gateway", "--data-dir", data_dir)
    assert (old.returncode, old.stderr.count("was moved to")) == (2, 1), old.stderr

    with Routelake(data_dir, "serve", ("--event-log", f"{to}.from-1", "--event-log-config", str(file))) as running:
        assert route(running.namesrv_addr, "orders") is not None
        assert route(running.namesrv_addr, "payments") is None
        assert last_change(running, "payments", deleted["offset"]) == before
        registered = register(running, "broker-b", "orders", "refunds", host=2)
        assert registered["offset"] > deleted["offset"]
        rows = route(running.namesrv_addr, "orders")
        assert rows is not None
        assert {row["brokerName"] for row in rows["queueDatas"]} == {"broker-a", "broker-b"}
        assert last_change(running, "orders", registered["offset"])["offset"] == registered["offset"]
        assert running.stop() == 0

    log = ("--event-log", f"{to}.from-1", "--event-log-config", file)
    proof = process("history", "verify", "--data-dir", data_dir, *log)
    assert proof.returncode == 0, proof.stdout + proof.stderr
    backed_up = process("backup", tmp_path / "backup", "--data-dir", data_dir, *log)
    assert backed_up.returncode == 0, backed_up.stderr
    assert "config" not in (tmp_path / "backup" / "backup.json").read_text()


def test_a_refused_kafka_login_is_explained_in_the_last_line(
    kafka: Kafka, authority: Authority, tmp_path: Path
) -> None:
    says, stranger = Properties(tmp_path, authority), Authority(tmp_path / "stranger", "a stranger")
    to = f"kafka://127.0.0.1:{kafka.sasl_port}/refused"
    wrong = f"{SCRAM} required username=gate password=wrong;"
    plain = {"ssl__truststore__type": None, "ssl__truststore__location": None}
    for file, said in (
        (says(sasl__jaas__config=wrong), "rejects user gate with this password, by SCRAM-SHA-512"),
        (says(ssl__truststore__location=stranger.path), "that is not signed by a CA of ssl.truststore"),
        (says(security__protocol="SASL_PLAINTEXT", **plain), "requires TLS, but the connection is plain text"),
    ):
        ended = process("serve", "--data-dir", tmp_path / "data", "--event-log", to, "--event-log-config", file)
        assert ended.returncode == 2, ended.stderr
        line = next(line for line in ended.stderr.splitlines() if said in line)
        assert str(file) in line
        assert "Traceback" not in ended.stderr
        assert "wrong" not in ended.stderr
