# SPDX-License-Identifier: Apache-2.0
"""What only the Kafka log can get wrong: its topic, its limits, and brokers that do not answer."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import MetadataEmptyBrokerList

from api.live_view.replica import LiveReplica
from dev.peers.java import classpath, free_port, wait_until
from dev.peers.kafka import Kafka
from dev.peers.routelake import ROOT
from dev.support import events as make
from eventlog import EventLog, LogRecord, open_log
from eventlog.base import lacks
from eventlog.kafka import client as kafka_client
from eventlog.kafka import log as kafka_log
from eventlog.kafka.log import KafkaLog
from eventlog.kafka.topic import TOPIC_CONFIG
from eventlog.open import close_readers, open_reader, open_tail, records_between
from eventlog.tail import BatchEnd
from eventlog.urls import parse_url
from nameserver.view.snapshot import RouteView
from schemas.errors import BadRequestError, InDoubtError, SetupError, UnavailableError
from schemas.events import encode, routing_key
from tests.eventlog.backends import until_available

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("kafka")]


@pytest.fixture
def admin(kafka_address: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=kafka_address)
    yield client
    client.close()


@pytest.fixture
def url(new_topic: Callable[[], str]) -> str:
    return new_topic()


def topic_of(url: str) -> str:
    return parse_url(url)[1]


def make_topic(admin: KafkaAdminClient, url: str, partitions: int = 1, /, **config: str) -> None:
    """TOPIC_CONFIG with changes; `__` in a name stands for a dot."""
    changes = {name.replace("__", "."): value for name, value in config.items()}
    spec = {"num_partitions": partitions, "replication_factor": 1, "configs": {**TOPIC_CONFIG, **changes}}
    admin.create_topics({topic_of(url): spec}, wait_for_metadata=True)


def config_of(admin: KafkaAdminClient, url: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic_of(url))
    described: dict[str, Any] = admin.describe_configs([resource], config_filter="all")["topic"][topic_of(url)]
    return {name: entry["value"] for name, entry in described.items()}


def test_a_missing_topic_is_made(admin: KafkaAdminClient, url: str) -> None:
    open_log(url).close()
    (described,) = admin.describe_topics([topic_of(url)])
    assert len(described["partitions"]) == 1
    assert TOPIC_CONFIG.items() <= config_of(admin, url).items()


def test_an_existing_topic_that_is_fit_is_used(admin: KafkaAdminClient, url: str) -> None:
    make_topic(admin, url)
    with contextlib.closing(open_log(url)) as log:
        log.append([("k", b"1")])
        assert len(log.read(0)) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.timestamp.type", "CreateTime"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000000"),
    ],
)
def test_a_topic_that_is_not_fit_is_refused_with_the_command(
    admin: KafkaAdminClient, url: str, name: str, value: str
) -> None:
    make_topic(admin, url, 1, **{name: value})
    with pytest.raises(SetupError) as refused:
        open_log(url)
    assert f"{name}={value}" in str(refused.value)
    command = str(refused.value.fields["command"])
    assert command.startswith("kafka-configs.sh --bootstrap-server 127.0.0.1:")
    assert command.endswith(
        f"--alter --entity-type topics --entity-name {topic_of(url)} --add-config {name}={TOPIC_CONFIG[name]}"
    )
    assert str(refused.value).endswith(command)


def test_all_that_is_wrong_is_named_at_once(admin: KafkaAdminClient, url: str) -> None:
    """A topic as kafka-topics.sh makes it by default."""
    admin.create_topics({topic_of(url): {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    with pytest.raises(SetupError, match=r"--add-config message.timestamp.type=LogAppendTime,retention.ms=-1$"):
        open_log(url)


def test_a_reader_makes_no_topic(admin: KafkaAdminClient, url: str) -> None:
    with pytest.raises(UnavailableError, match="Kafka shows no such topic"):
        open_reader(url)
    assert topic_of(url) not in admin.list_topics()
    with contextlib.closing(open_log(url)) as log, contextlib.closing(open_reader(url)) as reader:
        assert reader.read(0) == []
        log.append([("k", b"1"), ("k", b"2")])
        assert [record.payload for record in reader.read(1)] == [b"2"]
        assert reader.read(0, max_bytes=1) == log.read(0)[:1]
        assert reader.read(1) == log.read(1), "from where the bound on bytes ended the last read"
    with pytest.raises(UnavailableError, match="closed"):
        reader.read(0)


def test_a_reader_waits_until_kafka_knows_its_brokers(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [MetadataEmptyBrokerList(), MetadataEmptyBrokerList()]
    shown = KafkaConsumer.partitions_for_topic

    def starting(consumer: KafkaConsumer, topic: str) -> set[int] | None:
        if answers:
            raise answers.pop()
        return shown(consumer, topic)

    with contextlib.closing(open_log(url)) as log:
        log.append([("k", b"1")])
        monkeypatch.setattr(KafkaConsumer, "partitions_for_topic", starting)
        with contextlib.closing(open_reader(url)) as reader:
            assert [record.payload for record in reader.read(0)] == [b"1"]
    assert not answers


def test_a_topic_of_several_partitions_is_refused(admin: KafkaAdminClient, url: str) -> None:
    make_topic(admin, url, 3)
    with pytest.raises(SetupError, match=r"has 3 partitions.*kafka-topics.sh .*--partitions 1"):
        open_log(url)


def test_a_smaller_message_limit_is_obeyed_before_anything_is_sent(admin: KafkaAdminClient, url: str) -> None:
    make_topic(admin, url, max__message__bytes="10000")
    with contextlib.closing(open_log(url)) as log:
        with pytest.raises(BadRequestError, match=r"20000 bytes.*kafka-configs.sh.*max.message.bytes="):
            log.append([("", b"small"), ("", bytes(20_000))])
        assert log.read(0) == []
        # A list above the limit is split, a single record up to it is not.
        log.append([("k", bytes(8_900))] * 5)
        assert len(log.read(0)) == 5


def test_ends_of_transactions_of_others_are_no_deleted_records(kafka_address: str, url: str) -> None:
    """They have offsets, and are no records: at the log's begin, in it, at any edge of a read, and at its end."""

    def foreign(*, commits: bool) -> None:
        producer = KafkaProducer(bootstrap_servers=kafka_address, transactional_id=f"foreign-{topic_of(url)}")
        try:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic_of(url), key=b"kv", value=b"foreign", partition=0)
            producer.flush()
            (producer.commit_transaction if commits else producer.abort_transaction)()
        finally:
            producer.close()

    def own(log: EventLog, number: int) -> None:
        event = make.put("n", f"k{number}")
        log.append([(routing_key(event), encode(event))])

    with contextlib.closing(open_log(url)) as log:
        foreign(commits=True)
        own(log, 1)
        foreign(commits=False)
        own(log, 2)
        foreign(commits=True)
        records, end = log.read(0), log.end().next_offset
        offsets = [record.offset for record in records]
        assert len(offsets) == 5
        ends_of_transactions = sorted({*range(end)} - {*offsets})
        # Three; a coordinator that was slow to hear of one writes it again.
        assert len(ends_of_transactions) >= 3 and (ends_of_transactions[0], ends_of_transactions[-1]) == (1, end - 1)
        for start in range(end):
            found = log.read(start, 1)
            assert [record.offset for record in found] == [offset for offset in offsets if offset >= start][:1]
            assert not lacks(log, start, found)
        for start in range(end):
            for stop in range(start + 1, end + 1):
                read = [record.offset for records in records_between(url, start, stop) for record in records]
                assert read == [offset for offset in offsets if start <= offset < stop], (start, stop)
        close_readers(url)
        with contextlib.closing(open_tail(url)) as tail:
            at, ends = BatchEnd(0, 0), []
            while (after := tail.bounded_end(at, 1, 1_000_000)).offset != at.offset:
                tail.check_readable_from(after.offset)
                ends.append(after.offset)
                at = after
            assert ends == [offset + 1 for offset in offsets]
            own(log, 3)
            assert tail.wait_for_change(time.monotonic() + 30, 0.01)
            tail.check_readable_from(at.offset)
            assert tail.bounded_end(at, 1, 1_000_000).offset == 9
        head = LiveReplica(lambda: open_log(url), lambda view, offset, outcomes: None)
        try:
            view = head.begin(RouteView.empty())
        finally:
            head.stop()
        assert view.log_offset == 8
        assert [view.kv_get("n", f"k{number}") for number in (1, 2, 3)] == ["v"] * 3
        assert log.trim(3, 2**60) == 3
        assert lacks(log, 0, log.read(0))


def test_a_policy_that_refuses_large_messages(tmp_path: Path) -> None:
    """As Kafkas of a cloud have: the topic is made with what they allow, and larger events are refused alone."""
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("javac is not installed")
    source = tmp_path / "SmallMessages.java"
    source.write_text(_POLICY, encoding="utf-8")
    jars = classpath("kafka")
    subprocess.run([javac, "-cp", jars, "-d", str(tmp_path), str(source)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dev.peers.peer.classpath", lambda name: os.pathsep.join((str(tmp_path), jars)))
        kafka = Kafka({"create.topic.policy.class.name": "SmallMessages"})
    with kafka:
        url = f"kafka://{kafka.address}/events"
        with contextlib.closing(open_log(url)) as log:
            assert log.limits.event_bytes == 1_048_588 - 1_024
            log.append([("kv", bytes(1_000_000))] * 2)
            with pytest.raises(BadRequestError, match=r"with what Kafka's policy allows"):
                log.append([("kv", bytes(1_048_588))])


_POLICY = """
import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

public class SmallMessages implements CreateTopicPolicy {
    public void configure(Map<String, ?> configs) {}
    public void close() {}
    public void validate(RequestMetadata request) {
        if (Integer.parseInt(request.configs().getOrDefault("max.message.bytes", "0")) > 8388608)
            throw new PolicyViolationException("Config property 'max.message.bytes' exceeded max limit of 8388608");
    }
}
"""


def test_a_topic_made_anew_is_another_log(admin: KafkaAdminClient, url: str) -> None:
    with contextlib.closing(open_log(url)) as log:
        before = log.log_id
    admin.delete_topics([topic_of(url)])

    def is_another() -> bool:
        """The broker may go on answering for the old one for a moment."""
        with contextlib.suppress(InDoubtError, UnavailableError), contextlib.closing(open_log(url)) as log:
            return log.log_id != before
        return False

    wait_until(is_another, 60, "another log")
    with contextlib.closing(open_log(url)) as log:
        assert log.log_id != before
    with contextlib.closing(open_log(url + "-other")) as other:
        assert other.log_id not in (before, log.log_id)


def test_null_keys_and_values_read_as_empty(url: str, kafka_address: str) -> None:
    with contextlib.closing(open_log(url)) as log:
        with contextlib.closing(KafkaProducer(bootstrap_servers=kafka_address)) as foreign:
            for key, value in ((b"k", None), (None, b"v"), (b"\xff\xfe", b"v")):
                foreign.send(topic_of(url), key=key, value=value)
                foreign.flush()
        assert [record[2:] for record in log.read(0)] == [("k", b""), ("", b"v"), ("\ufffd\ufffd", b"v")]


def test_a_log_that_ends_with_a_transaction_marker_has_an_end(url: str, kafka_address: str) -> None:
    with contextlib.closing(open_log(url)) as log:
        (mine,) = log.append([("k", b"mine")])
        foreign = KafkaProducer(bootstrap_servers=kafka_address, transactional_id=topic_of(url))
        with contextlib.closing(foreign):
            foreign.init_transactions()
            foreign.begin_transaction()
            foreign.send(topic_of(url), b"foreign").get()  # type: ignore[no-untyped-call]
            foreign.commit_transaction()
        records = log.read(0)
        assert [record.payload for record in records] == [b"mine", b"foreign"]
        assert log.end() == (mine.offset + 3, records[-1].event_time_ms)
        assert log.append([("k", b"next")])[0].offset == mine.offset + 3


def test_lists_of_several_processes_stay_together(url: str) -> None:
    names = ["p0", "p1", "p2"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.eventlog.appender", url, name, "40"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    with contextlib.closing(open_log(url)) as log:
        records = log.read(0)
    assert [record.event_time_ms for record in records] == sorted(record.event_time_ms for record in records)
    by_offset: dict[int, LogRecord] = {record.offset: record for record in records}
    acknowledged = 0
    for name, output in zip(names, outputs, strict=True):
        lines = [tuple(map(int, line.split())) for line in output.splitlines()]
        acknowledged += len(lines)
        for number, offset, event_time_ms in lines:
            record = by_offset[offset]
            assert (record.key, record.event_time_ms) == (name, event_time_ms)
            assert record.payload.startswith(f"{name}:{number}:".encode())
        assert [line[1] for line in lines] == sorted(line[1] for line in lines)
    assert acknowledged == len(records)


def test_a_list_is_one_record_batch(url: str) -> None:
    """Kafka stamps a batch as a whole: one time for the list, however long building it takes."""
    with contextlib.closing(open_log(url)) as log:
        appended = log.append([("k", bytes(1000))] * 5000)
        assert len({at.event_time_ms for at in appended}) == 1
        assert [at.offset for at in appended] == list(range(appended[0].offset, appended[0].offset + 5000))


def test_a_list_is_one_record_batch_however_long_queueing_it_takes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that does other things meanwhile."""
    send = KafkaProducer.send

    def slowly(*args: Any, **kwargs: Any) -> Any:
        threading.Event().wait(0.6)
        return send(*args, **kwargs)

    with contextlib.closing(open_log(url)) as log:
        monkeypatch.setattr(KafkaProducer, "send", slowly)
        appended = log.append([("k", b"v")] * 4)
        assert len({at.event_time_ms for at in appended}) == 1


def test_a_topic_that_begins_at_a_later_offset(url: str) -> None:
    """docs/adr/0018: the log's offsets are Kafka's and what the topic's name says."""
    place, first = f"{url}.from-400124", 400_124
    with contextlib.closing(open_log(place)) as log:
        assert log.end().next_offset == first
        assert log.read(0) == []
        appended = log.append([("k", str(number).encode()) for number in range(10)])
        assert [at.offset for at in appended] == list(range(first, first + 10))
        assert [record.offset for record in log.read(first + 4)] == list(range(first + 4, first + 10))
        assert log.trim(first + 3, 2**60) == 3
        assert log.read(0)[0].payload == b"3"
        with contextlib.closing(open_tail(place)) as tail:
            assert tail.first_offset == first
            assert tail.bounded_end(BatchEnd(first + 3, 0), 4, 1_000_000).offset == first + 7
            with pytest.raises(SetupError, match=f"from offset {first} to {first + 2}"):
                tail.check_readable_from(first)
    read = [record.offset for records in records_between(place, first + 5, first + 8) for record in records]
    close_readers(place)
    assert read == [first + 5, first + 6, first + 7]


def test_a_tail_that_was_not_asked_for_its_bounds(url: str) -> None:
    """As SQLite's: a batch ends where the log does, and not where it begins."""
    with contextlib.closing(open_log(url)) as log:
        log.append([("k", b"v")] * 3)
        with contextlib.closing(open_tail(url)) as tail:
            assert tail.bounded_end(BatchEnd(0, 0), 100, 1_000_000).offset == 3


def test_a_frozen_broker_is_unavailable_in_bounded_time_and_then_usable_again(
    kafka: Kafka, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(KafkaLog([kafka.address], topic_of(url), delivery_timeout_s=2)) as log:
        until_available(lambda: log.append([("k", b"before")]))
        log.read(0)
        log.trim(0, 0)
        calls: list[Callable[[], object]] = [
            lambda: log.append([("k", b"doubt"), ("k", b"doubt")]),
            lambda: log.append([("k", b"no producer")]),
            lambda: log.read(0),
            log.end,
            lambda: log.trim(1, 1),
        ]
        kafka.process.sigstop()
        try:
            with monkeypatch.context() as hurried:  # a broker that is well has as long as ever
                hurried.setattr(kafka_log, "READ_TIMEOUT_S", 1.0)
                hurried.setattr(log._reader, "answer_s", 1.0)
                hurried.setattr(kafka_client, "CONNECT_TIMEOUT_S", 1.0)
                for call, kind in zip(calls, [InDoubtError, *[UnavailableError] * 4], strict=True):
                    start = time.monotonic()
                    with pytest.raises(kind):
                        call()
                    assert time.monotonic() - start < 10
        finally:
            kafka.process.sigcont()
        until_available(lambda: log.append([("k", b"after")]))
        # The controller may take the partition from a broker that was silent for 9 s, for a moment.
        payloads = [record.payload for record in until_available(lambda: log.read(0))]
        assert payloads[0] == b"before"
        assert payloads[-1] == b"after"
        assert payloads.count(b"doubt") in (0, 2)
        end = until_available(log.end).next_offset
        assert until_available(lambda: log.trim(end, 2**60)) == len(payloads) - 1


def test_acknowledged_records_outlive_a_killed_broker(kafka: Kafka, url: str) -> None:
    with contextlib.closing(open_log(url)) as log:
        before = log.append([("k", str(index).encode()) for index in range(100)])
        kafka.process.sigkill()
        kafka.process.start()
        until_available(lambda: log.append([("k", b"after")]))  # one that was in doubt may be there, too
        records = until_available(lambda: log.read(0))
        assert [record.payload for record in records[:100]] == [str(index).encode() for index in range(100)]
        assert {record.payload for record in records[100:]} == {b"after"}
        assert until_available(log.end).next_offset == before[-1].offset + 1 + len(records[100:])


def test_no_broker_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "CONNECT_TIMEOUT_S", 0.5)
    address = f"127.0.0.1:{free_port()}"
    before = set(threading.enumerate())
    start = time.monotonic()
    with pytest.raises(UnavailableError, match=address):
        open_log(f"kafka://{address}/topic")
    assert time.monotonic() - start < 9  # it would be 10 s
    # A gateway that waits for Kafka tries again and again.
    assert set(threading.enumerate()) <= before
