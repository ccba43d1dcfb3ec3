# SPDX-License-Identifier: Apache-2.0
"""Bad input: one line that says what is wrong, exit code 2, and nothing is sent."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from dev.support.recorder import Recorder
from tests.cli.admin.run import admin
from tests.cli.admin.world import MASTERS, ONE, SLAVE_OF_A

pytestmark = pytest.mark.xdist_group("admin")

A = MASTERS["broker-a"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("updateTopic -b {a} -t bad!name", "contains illegal characters"),
        ("updateTopic -b {a} -t größe", "contains illegal characters"),
        ("updateTopic -b {a} -t ''", "The specified topic is blank"),
        ("updateTopic -b {a} -t {long}", "is longer than topic max length: 127"),
        ("updateTopic -b {a} -t %RETRY%{long}{long}", "longer than topic max length: 255"),
        ("updateTopic -b {a} -t TBW102", "'TBW102' is a system topic"),
        ("updateTopic -b {a} -t rmq_sys_mine", "'rmq_sys_mine' is a system topic"),
        ("updateTopicPerm -b {a} -t SELF_TEST_TOPIC -p 6", "is a system topic"),
        ("updateTopicPerm -b {a} -t bad!name -p 6", "contains illegal characters"),
        ("deleteTopic -c east -t SCHEDULE_TOPIC_XXXX", "is a system topic"),
        ("deleteTopic -c east -t ' '", "-t is blank"),
        ("deleteTopic -c ' ' -t orders", "-c is blank"),
        ("updateTopic -b {a} -t orders -r 0", "-r 0: a topic has at least 1 queue"),
        ("updateTopic -b {a} -t orders -w -1", "-w -1: a topic has at least 1 queue"),
        ("updateTopic -b {a} -t orders -w 2147483648", "at most 2147483647"),
        ("updateTopic -b {a} -t orders -p 8", "-p 8 is not a permission"),
        ("updateTopicPerm -c east -t orders -p -1", "-p -1 is not a permission"),
        ("updateTopic -b {a} -t orders -u yes", "-u 'yes': expected true or false"),
        ("updateTopic -b {a} -t orders -o maybe", "-o 'maybe': expected true or false"),
        ("updateTopic -b {a} -t orders -a type=FIFO", "format is wrong"),
        ("updateTopic -b {a} -t orders -a +a=1,+a=2", "key duplication"),
        ("updateTopic -t orders", "set either -b"),
        ("updateTopic -b {a} -c east -t orders", "set either -b"),
        ("updateTopic -b broker-a -t orders", "-b: 'broker-a' is no address"),
        ("updateTopicList -b {a} -f /nowhere/topics.json", "/nowhere/topics.json: No such file"),
        ("updateOrderConf -t orders -m put", "-m put needs the order configuration"),
        ("updateKvConfig -s ns -k ' ' -v v", "-k is blank"),
        ("clusterList -i 0", "-i 0: expected at least 1 second"),
        ("allocateMQ -t orders -i a,,b", "-i is blank"),
        ("allocateMQ -t orders -i a,a", "names a client twice"),
        ("compare", "compare needs at least two NameServers"),
    ],
)
def test_refused_before_anything_is_sent(world: Recorder, line: str, says: str) -> None:
    words = shlex.split(line.format(a=A, long="x" * 128))
    ran = admin(words[0], "-n", ONE, *words[1:])
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("routelake: ")
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1
    assert world.take() == []


@pytest.mark.parametrize(
    ("name_servers", "says"),
    [
        ("127.0.0.1:9876 127.0.0.1:9877", "separate addresses by ';'"),
        ("http://127.0.0.1:8080", "is an HTTP address"),
        ("9876", "is no address: expected HOST:PORT"),
        ("127.0.0.1:99999", "is no address"),
        (";", "names no NameServer"),
        ("", "no NameServer is set"),
    ],
)
@pytest.mark.parametrize("command", ["topicList", "getNamesrvConfig", "compare"])
def test_name_server_lists(name_servers: str, says: str, command: str) -> None:
    ran = admin(command, "-n", name_servers)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1


def test_order_on_a_broker_needs_a_name_server_before_anything_changes(world: Recorder) -> None:
    ran = admin("updateTopic", "-b", A, "-t", "orders", "-o", "true")
    assert ran.code == 2
    assert "no NameServer is set" in ran.err
    assert world.take() == []


def test_one_broker_needs_no_name_server(world: Recorder) -> None:
    assert admin("updateTopic", "-b", A, "-t", "orders").code == 0
    assert [one.server for one in world.take()] == ["broker-a"]


def test_the_name_server_may_come_from_the_environment(world: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", ONE)
    assert admin("topicRoute", "-t", "orders").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("updateTopic", "-b", A), "--topic"),
        (("updateTopic", "-b", A, "-t", "orders", "-r", "many"), "integer"),
        (("updateOrderConf", "-t", "orders", "-m", "drop"), "drop"),
        (("topicRoute", "-t", "orders", "-o", "yaml"), "yaml"),
        (("sendMessage",), "sendMessage"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], says: str) -> None:
    ran = admin(*arguments)
    assert ran.code == 2
    assert says in ran.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("not json", "expected a JSON array of TopicConfig"),
        ("{}", "expected a JSON array of TopicConfig"),
        ("[]", "there is no topic in it"),
        ('[{"readQueueNums": 4}]', "topic 1: The specified topic is blank"),
        ('[{"topicName": "fine"}, {"topicName": "TBW102"}]', "topic 2: 'TBW102' is a system topic"),
        ('[{"topicName": "fine", "writeQueueNums": 0}]', "topic 1 (fine): writeQueueNums 0"),
        ('[{"topicName": "fine", "perm": 9}]', "topic 1 (fine): perm 9 is not a permission"),
        ('[{"topicName": "fine", "topicFilterType": "ANY"}]', "expected a JSON array of TopicConfig"),
    ],
)
def test_topic_files(world: Recorder, tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "topics.json"
    file.write_text(content)
    ran = admin("updateTopicList", "-n", ONE, "-c", "east", "-f", str(file))
    assert ran.code == 2
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1
    assert world.take() == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("updateTopic", "-c", "nowhere", "-t", "orders"), "no cluster 'nowhere'"),
        (("updateTopicList", "-c", "nowhere", "-f", "FILE"), "no cluster 'nowhere'"),
        (("deleteTopic", "-c", "nowhere", "-t", "orders"), "no cluster 'nowhere'"),
        (("clusterList", "-c", "nowhere"), "no cluster 'nowhere'"),
        (("updateTopicPerm", "-b", SLAVE_OF_A, "-t", "orders", "-p", "6"), "is not the master"),
        (("topicRoute", "-t", "nowhere"), "CODE: 17"),
        (("topicRoute", "-t", "nowhere"), "/changes over HTTP shows its result"),
        (("topicStatus", "-t", "nowhere"), "CODE: 17"),
        (("updateOrderConf", "-t", "new", "-m", "get"), "new has no order configuration"),
    ],
)
def test_a_missing_file_is_a_failure(world: Recorder, tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    file = tmp_path / "topics.json"
    file.write_text(json.dumps([{"topicName": "fine"}]))
    ran = admin(*(str(file) if word == "FILE" else word for word in arguments), "-n", ONE)
    assert (ran.code, ran.out) == (1, "")
    assert says in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not {one.code for one in world.take()} & {17, 18, 215, 216}


def test_a_route_of_unequal_brokers_is_warned_of(world: Recorder) -> None:
    ran = admin("updateTopicPerm", "-n", ONE, "-b", A, "-t", "orders", "-p", "6")
    assert ran.code == 0
    assert ran.err == (
        "routelake: queue numbers differ between brokers: updateTopicPerm sets those of broker-c (read 6, write 4)\n"
    )
