"""What people and scripts get to see."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from api.remoting.frame import RemotingCommand
from tests.clients.admin.run import admin
from tests.clients.admin.world import BOTH, MASTERS, NAME_SERVERS, ONE, ORDER_CONF, answer_as_name_server
from tests.support.recorder import Recorder


def cells(out: str) -> list[list[str]]:
    """The rows of the tables in it, titles included."""
    return [
        [cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")]
        for line in out.splitlines()
        if line[:1] in "│┃"
    ]


def test_topic_route(world: Recorder) -> None:
    ran = admin("topicRoute", "-n", ONE, "-t", "orders")
    assert cells(ran.out) == [
        ["Cluster", "Broker", "Addresses", "Read queues", "Write queues", "Perm"],
        ["east", "broker-a", "0=127.77.1.1:19911, 1=127.77.2.1:19911", "8", "8", "4 R--"],
        ["east", "broker-b", "0=127.77.1.2:19911", "8", "8", "6 RW-"],
        ["east", "broker-c", "0=127.77.1.3:19911", "6", "4", "6 RW-"],
        ["Total:", "3", "", "22", "20", ""],
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
        ["", "no-route", ""],
    ]


def test_topic_status(world: Recorder) -> None:
    ran = admin("topicStatus", "-n", ONE, "-t", "orders")
    assert cells(ran.out)[1:] == [[f"broker-{name}", "0", "2", "12", ""] for name in "abc"]
    assert "Topic put TPS: 0\n" in ran.out


def test_cluster_list(world: Recorder) -> None:
    titles, *rows = cells(admin("clusterList", "-n", ONE, "-c", "west").out)
    assert titles[:6] == ["Cluster", "Broker", "BID", "Address", "Version", "InTPS(LOAD)"]
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
        if seconds != 7:  # somebody else's: the module is everybody's
            await real_sleep(seconds)
            return
        slept.append(seconds)

    def answer(request: RemotingCommand) -> RemotingCommand:
        return answer_as_name_server(request) if len(slept) < 2 else RemotingCommand(1, remark="enough")

    address = world.scripted("watched", answer)
    monkeypatch.setattr("clients.admin.cluster_commands.asyncio.sleep", sleep)
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
    assert ["broker-a", MASTERS["broker-a"], "UPDATE_AND_CREATE_TOPIC", "done", ""] in cells(ran.out)
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
    code = "import sys, clients.cli; sys.exit('clients.admin.command' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
