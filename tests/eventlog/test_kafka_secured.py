# SPDX-License-Identifier: Apache-2.0
"""A real Kafka that asks who comes: SASL_SSL with SCRAM and PLAIN, and clients' certificates."""

from __future__ import annotations

import contextlib
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from dev.peers.java import wait_until
from dev.peers.kafka import Kafka
from dev.support.certificates import Authority
from dev.support.secured_kafka import SCRAM, Properties
from eventlog import open_log
from eventlog.kafka import client as kafka_client
from eventlog.kafka.log import KafkaLog
from eventlog.open import close_readers, open_tail, records_between
from eventlog.tail import BatchEnd
from eventlog.urls import parse_url, with_config
from schemas.errors import InDoubtError, SetupError, UnavailableError
from tests.eventlog.backends import until_available

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("kafka")]

ENTRIES = [("b:a", b"one"), ("b:b", b"two"), ("kv", bytes(200_000))]


@pytest.fixture
def says(tmp_path: Path, authority: Authority) -> Properties:
    return Properties(tmp_path, authority)


def url(port: int, file: Path) -> str:
    return with_config(f"kafka://127.0.0.1:{port}/t-{uuid.uuid4().hex}", file)


def test_scram_over_tls(kafka: Kafka, says: Properties) -> None:
    """Append, read, follow, trim: every kind of client gets in."""
    place = url(kafka.sasl_port, says())
    with closing(open_log(place)) as log:
        appended = log.append(ENTRIES)
        assert [(record.key, record.payload) for record in log.read(0)] == ENTRIES
        with closing(open_tail(place)) as tail:
            assert tail.log_id == log.log_id
            assert tail.bounded_end(BatchEnd(0, 0), 100, 1_000_000).offset == len(ENTRIES)
        with contextlib.ExitStack() as stack:
            stack.callback(close_readers, place)
            read = [record for records in records_between(place, 0, len(ENTRIES)) for record in records]
        assert [(record.key, record.payload) for record in read] == ENTRIES
        assert log.trim(appended[-1].offset, 2**60) == len(ENTRIES) - 1


def test_plain_over_tls(kafka: Kafka, says: Properties) -> None:
    file = says(sasl__mechanism="PLAIN", sasl__jaas__config=None, sasl__username="gate", sasl__password="right")
    with closing(open_log(url(kafka.sasl_port, file))) as log:
        assert len(log.append(ENTRIES)) == len(ENTRIES)


def test_a_certificate_of_ours(kafka: Kafka, says: Properties, authority: Authority) -> None:
    client = authority.issue("client", is_rsa=True)
    without = {"security__protocol": "SSL", "sasl__mechanism": None, "sasl__jaas__config": None}
    file = says(**without, ssl__certificate__location=client.cert, ssl__key__location=client.key)
    with closing(open_log(url(kafka.mutual_port, file))) as log:
        assert len(log.append(ENTRIES)) == len(ENTRIES)
    with pytest.raises(SetupError, match="requires a client certificate"):
        open_log(url(kafka.mutual_port, says(**without)))


def test_refusals_of_a_real_kafka(
    kafka: Kafka, says: Properties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = Authority(tmp_path / "stranger", "a stranger")
    plain = {"ssl__truststore__type": None, "ssl__truststore__location": None}
    nobody = {"sasl__mechanism": None, "sasl__jaas__config": None}
    wrong = {"sasl__jaas__config": f"{SCRAM} required username=gate password=wrong;"}
    for port, file, said in (
        (kafka.sasl_port, says(**wrong), "rejects user gate with this password"),
        (kafka.sasl_port, says(ssl__truststore__location=stranger.path), "is not signed by a CA of ssl.truststore"),
        (
            kafka.sasl_port,
            says(security__protocol="SASL_PLAINTEXT", **plain),
            "requires TLS, but the connection is plain text",
        ),
        (kafka.sasl_port, says(security__protocol="SSL", **nobody), r"requires SASL authentication"),
        (kafka.sasl_port, says(sasl__mechanism="SCRAM-SHA-256"), "does not support SCRAM-SHA-256"),
        (kafka.port, says(), "uses plain text, but the connection uses TLS"),
        (kafka.port, says(security__protocol="SASL_PLAINTEXT", **plain), "does not use SASL"),
    ):
        with pytest.raises(SetupError, match=said) as error:
            open_log(url(port, file))
        assert "wrong" not in str(error.value)
    monkeypatch.setattr(kafka_client, "CONNECT_TIMEOUT_S", 0.3)  # without a file kafka-python tries first
    with pytest.raises(SetupError, match="requires TLS, but the connection is plain text"):
        open_log(f"kafka://127.0.0.1:{kafka.sasl_port}/topic")


@pytest.mark.deep
def test_a_password_that_changes(kafka: Kafka, says: Properties, tmp_path: Path) -> None:
    """A connection that is there goes on. A new one is refused, and then let in by what the file says."""
    secret = tmp_path / "password"
    secret.write_text("right\n")
    place = url(kafka.sasl_port, says(sasl__jaas__config=f'{SCRAM} required username=gate password="file:{secret}";'))
    with closing(KafkaLog(*parse_url(place), delivery_timeout_s=5)) as log, closing(open_tail(place)) as tail:
        log.append(ENTRIES)
        secret.write_text("other\n")
        log.append(ENTRIES)
        kafka.process.sigkill()
        with pytest.raises(InDoubtError):
            log.append(ENTRIES)
        kafka.process.start()
        for _ in range(2):
            with pytest.raises(UnavailableError, match="rejects user gate with this password") as error:
                log.append(ENTRIES)
            assert "other" not in str(error.value)
        with pytest.raises(UnavailableError, match="rejects user gate with this password"):
            open_tail(place)
        secret.unlink()
        with pytest.raises(UnavailableError, match="No such file"):
            log.append(ENTRIES)
        secret.write_text("right\n")
        appended = until_available(lambda: log.append(ENTRIES))
        wait_until(lambda: tail.next_offset() > appended[-1].offset, 60, "the tail, which was open all the time")
