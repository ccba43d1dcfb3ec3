# SPDX-License-Identifier: Apache-2.0
"""One of many servers fails: the others are done, the summary says so server by server, and the exit code is 1."""

from __future__ import annotations

from collections import Counter

import pytest

from dev.peers.java import free_port
from dev.support.recorder import Recorder
from remoting.codec.frame import RemotingCommand
from tests.cli.admin.fleet import (
    CLUSTER,
    PATIENCE_S,
    TOPIC,
    Behaviour,
    answer_after_a_second,
    answer_too_late,
    refuse,
    say_nothing,
    start_fleet,
    succeed,
)
from tests.cli.admin.run import Ran, admin

NO_ANSWER = f"no answer to request 17 within {PATIENCE_S} s; it may have taken effect anyway"


def update(name_server: str, *more: str, timeout_s: float = 30) -> Ran:
    words = ("updateTopic", "-n", name_server, "-c", CLUSTER, "-t", TOPIC, "--timeout-s", str(timeout_s), *more)
    return admin(*words)


def test_one_of_fifty_fails(recorder: Recorder) -> None:
    fleet = start_fleet(recorder, [succeed] * 30 + [refuse] + [succeed] * 19)
    ran = update(fleet.name_server, "-o", "json")
    assert ran.code == 1
    assert Counter(one["status"] for one in ran.json["outcomes"]) == {"done": 49, "failed": 1}
    (failed,) = (one for one in ran.json["outcomes"] if one["status"] == "failed")
    assert (failed["server"], failed["address"]) == ("broker-30", fleet.brokers["broker-30"])
    assert failed["detail"] == "CODE: 1  DESC: the disk is full"
    assert {one.server for one in recorder.take()} == {"NameServer", *fleet.brokers}
    ran = update(fleet.name_server)
    assert f"50 requests: 49 done, 1 failed (broker-30 {fleet.brokers['broker-30']})." in ran.out


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        (say_nothing, NO_ANSWER),
        (answer_too_late, NO_ANSWER),
        (refuse, "CODE: 1  DESC: the disk is full"),
        (None, "no connection"),
    ],
)
def test_a_broker_that_is_late_or_silent_or_refuses_or_is_dead(
    recorder: Recorder, behaviour: Behaviour | None, says: str
) -> None:
    fleet = start_fleet(recorder, [succeed, behaviour])
    ran = update(fleet.name_server, "-o", "json", timeout_s=PATIENCE_S)
    assert ran.code == 1
    details = {one["server"]: (one["status"], one["detail"]) for one in ran.json["outcomes"]}
    assert details["broker-00"] == ("done", "")
    assert details["broker-01"][0] == "failed"
    assert says in details["broker-01"][1]


def test_a_late_answer_within_the_limit_is_an_answer(recorder: Recorder) -> None:
    fleet = start_fleet(recorder, [answer_after_a_second])
    assert update(fleet.name_server).code == 0


def test_no_name_server_forgets_a_topic_that_a_broker_still_has(recorder: Recorder) -> None:
    fleet = start_fleet(recorder, [refuse, succeed])
    ran = admin("deleteTopic", "-n", fleet.name_server, "-c", CLUSTER, "-t", TOPIC, "-o", "json")
    assert ran.code == 1
    assert Counter((one["request"], one["status"]) for one in ran.json["outcomes"]) == {
        ("DELETE_TOPIC_IN_BROKER", "failed"): 1,
        ("DELETE_TOPIC_IN_BROKER", "done"): 1,
        ("DELETE_TOPIC_IN_NAMESRV", "not tried"): 1,
    }
    assert 216 not in {one.code for one in recorder.take()}


def test_no_order_configuration_for_a_topic_that_was_not_made(recorder: Recorder) -> None:
    fleet = start_fleet(recorder, [refuse])
    addr = fleet.brokers["broker-00"]
    for target in (("-b", addr), ("-c", CLUSTER)):
        ran = admin("updateTopic", "-n", fleet.name_server, *target, "-t", TOPIC, "-o", "true", "-o", "json")
        assert ran.code == 1
        assert [one["status"] for one in ran.json["outcomes"]] == ["failed", "not tried"]
    assert not {100, 101} & {one.code for one in recorder.take()}


def test_what_was_done_is_shown_when_a_later_question_fails(recorder: Recorder) -> None:
    fleet = start_fleet(recorder, [succeed])
    unknown = recorder.scripted("unknown", succeed)
    ran = admin("updateTopic", "-n", fleet.name_server, "-b", unknown, "-t", TOPIC, "-o", "true", "--output", "json")
    assert ran.code == 1
    assert [one["status"] for one in ran.json["outcomes"]] == ["done"]
    said = f"no broker has the address {unknown}. Check that it is registered with the NameServer of -n."
    assert ran.err == f"routelake: {said}\n"


def test_one_name_server_of_three_refuses(recorder: Recorder) -> None:
    def count(request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, {"wipeTopicCount": "7"})

    addresses = [
        recorder.scripted("first", count),
        recorder.scripted("second", refuse),
        recorder.scripted("third", count),
    ]
    ran = admin("wipeWritePerm", "-n", ";".join(addresses), "-b", "broker-a", "-o", "json")
    assert ran.code == 1
    assert [(one["address"], one["status"], one["detail"]) for one in ran.json["outcomes"]] == [
        (addresses[0], "done", "7 topics"),
        (addresses[1], "failed", "CODE: 1  DESC: the disk is full"),
        (addresses[2], "done", "7 topics"),
    ]


def test_a_dead_name_server_beside_a_living_one(recorder: Recorder) -> None:
    """A question is answered by the living one, with a word about the dead one; a change fails at the dead one."""
    fleet = start_fleet(recorder, [succeed])
    dead = f"127.0.0.1:{free_port()}"
    both = f"{dead};{fleet.name_server}"
    ran = admin("topicRoute", "-n", both, "-t", TOPIC)
    assert ran.code == 0
    assert ran.err.startswith(f"routelake: {dead}: no connection")
    assert ran.err.endswith(f"asked {fleet.name_server} instead\n")
    ran = admin("updateKvConfig", "-n", both, "-s", "ns", "-k", "k", "-v", "v", "-o", "json")
    assert ran.code == 1
    assert [one["status"] for one in ran.json["outcomes"]] == ["failed", "done"]
    ran = admin("getNamesrvConfig", "-n", both, "-o", "json")
    assert ran.code == 1
    assert list(ran.json["result"]) == [fleet.name_server]


def test_no_living_name_server(recorder: Recorder) -> None:
    first, second = (f"127.0.0.1:{free_port()}" for _ in range(2))
    ran = admin("topicRoute", "-n", f"{first};{second}", "-t", TOPIC)
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err.startswith("routelake: no NameServer answers: ")
    assert first in ran.err
    assert second in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_broker_that_fails_is_a_row_of_the_cluster_list(recorder: Recorder) -> None:
    fleet = start_fleet(recorder, [succeed, refuse])
    ran = admin("clusterList", "-n", fleet.name_server, "-o", "json")
    assert ran.code == 1
    assert [(one["brokerName"], one["runtimeInfo"]) for one in ran.json["result"]] == [
        ("broker-00", {}),
        ("broker-01", None),
    ]
    ran = admin("clusterList", "-n", fleet.name_server, "-m")
    assert ran.code == 1
    assert "broker-01" in ran.out


def test_a_body_that_makes_no_sense(recorder: Recorder) -> None:
    def nonsense(request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, body=b"<html>")

    address = recorder.scripted("nonsense", nonsense)
    for arguments in (("topicList",), ("topicRoute", "-t", TOPIC), ("clusterList",), ("topicClusterList", "-t", TOPIC)):
        ran = admin(*arguments, "-n", address)
        assert ran.code == 1
        assert ran.err.startswith("routelake: the answer is not ")
        assert len(ran.err.splitlines()) == 1


def test_a_progress_bar_for_many_brokers(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")  # the terminal of who runs the tests may be a dumb one
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TTY_INTERACTIVE", "1")
    fleet = start_fleet(recorder, [succeed] * 6)
    assert "6/6" in update(fleet.name_server).err
    few = start_fleet(recorder, [succeed] * 2)
    assert update(few.name_server).err == ""


def test_no_progress_bar_without_a_terminal(recorder: Recorder) -> None:
    fleet = start_fleet(recorder, [succeed] * 6)
    assert update(fleet.name_server).err == ""
