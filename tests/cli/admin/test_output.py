# SPDX-License-Identifier: Apache-2.0
"""What people and scripts get to see."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys

import pytest

from dev.support.recorder import Recorder
from remoting.codec.frame import RemotingCommand
from tests.cli.admin.run import admin
from tests.cli.admin.world import BOTH, MASTERS, NAME_SERVERS, ONE, ORDER_CONF, answer_as_name_server

pytestmark = pytest.mark.xdist_group("admin")


def cells(out: str) -> list[list[str]]:
    """The rows of the tables in it, titles without their # included."""
    rows: list[list[str]] = []
    columns = 0
    for line in out.splitlines():
        row = re.split(" {2,}", line)
        if line.startswith("#"):
            columns = len(row)
            row = [title.removeprefix("#") for title in row]
        if len(row) == columns:
            rows.append(row)
    return rows


def test_topic_route(world: Recorder) -> None:
    ran = admin("topicRoute", "-n", ONE, "-t", "orders")
    assert cells(ran.out) == [
        ["ClusterName", "BrokerName", "BrokerAddrs", "ReadQueue", "WriteQueue", "Perm"],
        ["east", "broker-a", "0=127.77.1.1:19911, 1=127.77.2.1:19911", "8", "8", "4 R--"],
        ["east", "broker-b", "0=127.77.1.2:19911", "8", "8", "6 RW-"],
        ["east", "broker-c", "0=127.77.1.3:19911", "6", "4", "6 RW-"],
        ["Total:", "3", "-", "22", "20", "-"],
    ]
    document = admin("topicRoute", "-n", ONE, "-t", "orders", "-o", "json").json
    assert set(document) == {"brokerDatas", "filterServerTable", "queueDatas"}
    assert document["brokerDatas"][1]["brokerAddrs"] == {"0": "127.77.1.1:19911", "1": "127.77.2.1:19911"}


def test_topic_list(world: Recorder) -> None:
    plain = admin("topicList", "-n", ONE)
    assert plain.out.splitlines() == sorted(
        ["orders", "west-only", "east", "orphaned", "%RETRY%readers", "%DLQ%readers", "no-route"]
    )
    assert cells(admin("topicList", "-n", ONE, "-c").out)[1:4] == [
        ["east", "east", "auditors"],
        ["east", "east", "readers"],
        ["-", "no-route", "-"],
    ]


def test_topic_status(world: Recorder) -> None:
    ran = admin("topicStatus", "-n", ONE, "-t", "orders")
    assert cells(ran.out)[1:] == [[f"broker-{name}", "0", "2", "12", "-"] for name in "abc"]
    assert "Topic put TPS: 0\n" in ran.out


def test_cluster_list(world: Recorder) -> None:
    titles, *rows = cells(admin("clusterList", "-n", ONE, "-c", "west").out)
    assert titles[:6] == ["Cluster Name", "Broker Name", "BID", "Addr", "Version", "InTPS(LOAD)"]
    (row,) = rows
    assert row[:5] == ["west", "broker-w", "0", "127.77.3.1:19911", "V5_5_0"]
    assert row[5:9] == ["1.50(0,0ms)", "2.50(0,0ms|N,Nms)", "0-0(0.0w, 0, 0)", "0"]
    assert row[10:] == ["0.2500", "true"]
    assert cells(admin("clusterList", "-n", ONE, "-c", "west", "-m").out)[1][4:] == ["0", "0", "2", "1"]


def test_cluster_list_again_and_again(world: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is stopped, here by a NameServer that has enough."""
    slept: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds != 7:  # the module is shared by all tests
            await real_sleep(seconds)
            return
        slept.append(seconds)

    def answer(request: RemotingCommand) -> RemotingCommand:
        return answer_as_name_server(request) if len(slept) < 2 else RemotingCommand(1, remark="enough")

    address = world.scripted("watched", answer)
    monkeypatch.setattr("cli.admin.cluster_commands.asyncio.sleep", sleep)
    ran = admin("clusterList", "-n", address, "-c", "west", "-i", "7")
    assert (ran.code, slept) == (1, [7, 7])
    assert ran.out.count("broker-w") == 2
    assert ran.err.endswith("CODE: 1  DESC: enough\n")


def test_configurations_side_by_side(world: Recorder) -> None:
    titles, *rows = cells(admin("getNamesrvConfig", "-n", BOTH).out)
    assert titles == ["Key", *NAME_SERVERS.values()]
    assert ["listenPort", "9876", "9876"] in rows


def test_a_change_says_what_happened_where(world: Recorder) -> None:
    ran = admin("updateTopic", "-n", ONE, "-c", "east", "-t", "orders")
    assert ["broker-a", MASTERS["broker-a"], "UPDATE_AND_CREATE_TOPIC", "done", "-"] in cells(ran.out)
    assert "5 requests: 5 done.\n" in ran.out
    assert "perm=RW-" in ran.out


def test_order_configuration(world: Recorder) -> None:
    assert admin("updateOrderConf", "-n", ONE, "-t", "orders", "-m", "get").out == f"{ORDER_CONF}\n"


def test_allocation(world: Recorder) -> None:
    ran = admin("allocateMQ", "-n", ONE, "-t", "orders", "-i", "10.0.0.1,10.0.0.2,10.0.0.3", "-o", "json")
    shares = ran.json["result"]
    assert [len(share) for share in shares.values()] == [8, 7, 7]
    assert shares["10.0.0.1"][0] == {"brokerName": "broker-a", "queueId": 0, "topic": "orders"}


def test_dry_run_for_people(world: Recorder) -> None:
    ran = admin("deleteTopic", "-n", ONE, "-c", "west", "-t", "orders", "--dry-run")
    assert ran.code == 0
    assert [[row[3], row[-1]] for row in cells(ran.out)[1:]] == [
        ["106", "yes, it only reads"],
        ["215", "no"],
        ["216", "no"],
    ]
    assert ran.out.endswith("Dry run: nothing was changed.\n")
    ran = admin("deleteTopic", "-n", ONE, "-c", "south", "-t", "orders", "--dry-run")
    assert ran.code == 1
    assert "broker-s -: DELETE_TOPIC_IN_BROKER failed: has no master now\n" in ran.out


@pytest.mark.parametrize("letter", ["-o", "--output", "--order"])
def test_output_of_update_topic(world: Recorder, letter: str) -> None:
    """-o is mqadmin's --order there; json and table are no order, so it can be both."""
    ran = admin("updateTopic", "-n", ONE, "-b", MASTERS["broker-a"], "-t", "orders", "-o", "false", letter, "json")
    assert ran.json["outcomes"][0]["status"] == "done"


def test_text_stands_as_it_is(recorder: Recorder) -> None:
    address = recorder.scripted("odd", lambda request: RemotingCommand(1, remark="[bold]no[/bold] :smile: [/]"))
    ran = admin("updateKvConfig", "-n", address, "-s", "a", "-k", "b", "-v", "c")
    assert "CODE: 1  DESC: [bold]no[/bold] :smile: [/]" in ran.out


def test_help_in_both_spellings() -> None:
    for option in ("-h", "--help"):
        ran = admin("updateTopic", option)
        assert ran.code == 0
        assert "--readQueueNums" in ran.out


def test_other_commands_do_not_load_these() -> None:
    code = "import sys, cli.main; sys.exit('cli.admin.command' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


PIPED = [
    "topicRoute -t orders",
    "topicList -c",
    "topicStatus -t orders",
    "clusterList",
    "clusterList -m",
    "getNamesrvConfig",
    "allocateMQ -t orders -i 10.0.0.1,10.0.0.2",
    "updateTopic -c east -t orders",
    "deleteTopic -c west -t orders --dry-run",
    "compare -n 127.77.0.1:19876;127.77.0.2:19876",
]


@pytest.mark.parametrize("words", PIPED)
def test_in_a_pipe_there_are_no_boxes_no_colours_and_nothing_is_cut(world: Recorder, words: str) -> None:
    ran = admin(*words.split(), *(() if "-n" in words.split() else ("-n", ONE)))
    assert ran.code == 0
    assert not re.search("[\u2500-\u257f\u2026\x1b\t]", ran.out)
    assert all(line == line.rstrip() for line in ran.out.splitlines())


def test_a_long_value_is_whole_in_a_pipe(world: Recorder) -> None:
    long = "x" * 2000
    address = world.scripted("long", lambda _: RemotingCommand(0, body=f"listenPort={long}\n".encode()))
    assert cells(admin("getNamesrvConfig", "-n", address).out)[1] == ["listenPort", long]


@pytest.mark.parametrize(
    "words",
    [*PIPED, "topicList", "topicClusterList -t orders", "updateOrderConf -t orders -m get", "wipeWritePerm -b a"],
)
def test_json_of_every_command(world: Recorder, words: str) -> None:
    ran = admin(*words.split(), "--output", "json", *(() if "-n" in words.split() else ("-n", ONE)))
    assert ran.code == 0, ran.err
    assert ran.json is not None


NO_BROKERS = {106: b'{"brokerAddrTable":{},"clusterAddrTable":{}}', 206: b'{"topicList":[]}'}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("clusterList", "no broker is registered"),
        ("clusterList -m", "no broker is registered"),
        ("topicList", "lists no topic"),
        ("topicList -c", "lists no topic"),
    ],
)
def test_an_empty_result_says_so(recorder: Recorder, words: str, says: str) -> None:
    address = recorder.scripted("empty", lambda request: RemotingCommand(0, body=NO_BROKERS[request.code]))
    ran = admin(*words.split(), "-n", address)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("routelake: ") and ran.err.count("\n") == 1
    assert says in ran.err
    assert admin(*words.split(), "-n", address, "-o", "json").json in ([], {"topicList": []})


def answer_ok_to_everything(request: RemotingCommand) -> RemotingCommand:
    """What a stock 5.5.0 NameServer answers about a broker, a topic, a key that it does not have."""
    match request.code:
        case 205:
            return RemotingCommand(0, {"wipeTopicCount": "0"})
        case 327:
            return RemotingCommand(0, {"addTopicCount": "0"})
        case 105:
            return RemotingCommand(17, remark="No topic route info in name server for the topic: nothing")
        case 101:
            return RemotingCommand(22, remark="No config item, Namespace: a Key: b")
        case 319:
            return RemotingCommand(0, body=b"listenPort=9876\n")
        case 100 | 102 | 216 | 318:
            return RemotingCommand(0)
    return answer_as_name_server(request)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("wipeWritePerm -b nobody", "no topic of a broker 'nobody' is known there"),
        ("addWritePerm -b nobody", "no topic of a broker 'nobody' is known there"),
        ("deleteTopic -c west -t nothing", "no NameServer of -n knew a topic 'nothing'"),
        ("deleteKvConfig -s a -k b", "namespace 'a' had no key 'b'"),
        ("updateOrderConf -t nothing -m delete", "nothing had no order configuration"),
        ("updateNamesrvConfig -k listenPrt -v 1", "there is no setting 'listenPrt'"),
    ],
)
def test_a_change_of_what_is_not_there_is_a_failure(world: Recorder, words: str, says: str) -> None:
    """Stock mqadmin ends with 0, having done nothing."""
    address = world.scripted("stock", answer_ok_to_everything)
    ran = admin(*words.split(), "-n", address)
    assert ran.code == 1
    assert says in ran.out + ran.err
    ran = admin(*words.split(), "-n", address, "-o", "json")
    assert ran.code == 1
    assert ran.json["outcomes"]
