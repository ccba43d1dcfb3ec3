# SPDX-License-Identifier: Apache-2.0
"""What peers have registered: text that is no markup and moves no cursor, and addresses of which none ends a command."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from dev.support.command import command, told
from dev.support.recorder import Recorder
from remoting.codec.frame import RemotingCommand
from schemas.rocketmq_json import encode_cluster_info, encode_topic_route
from schemas.route import BrokerData, ClusterInfo, QueueData, TopicRouteData

HOSTILE = {
    "markup": "[red]x[/red]",
    "a closing tag": "[/x]",
    "a link": "[link=http://evil.example]x[/link]",
    "brackets": "[fd00::7]:10911",
    "emoji": ":warning:",
    "ANSI": "\x1b[31mx\x1b]0;t\x07",
    "C1": "\x9b31mx",
    "bidi": "a\u202eb\u2066c",
    "no width": "a\u200bb\ufeff",
    "newline": "a\nbroker-z  10.0.0.9:10911",
    "return": "a\rb",
    "line separator": "a\u2028b",
    "tab": "a\tb",
    "delete": "a\x7fb\x08",
}
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")

COMMANDS = [
    ("route", "orders"),
    ("route", "orders", "-o", "json"),
    ("admin", "topicList"),
    ("admin", "topicList", "-c"),
    ("admin", "topicRoute", "-t", "orders"),
    ("admin", "topicClusterList", "-t", "orders"),
    ("admin", "topicStatus", "-t", "orders"),
    ("admin", "clusterList"),
    ("admin", "clusterList", "-m"),
    ("admin", "allocateMQ", "-t", "orders", "-i", "c1"),
    ("admin", "updateTopic", "-t", "orders", "-c", "C"),
    ("admin", "updateTopicPerm", "-t", "orders", "-c", "C", "-p", "4"),
    ("admin", "deleteTopic", "-t", "orders", "-c", "C"),
    ("admin", "updateOrderConf", "-t", "orders", "-m", "get"),
    ("admin", "updateKvConfig", "-s", "n", "-k", "k", "-v", "v"),
    ("admin", "deleteKvConfig", "-s", "n", "-k", "k"),
    ("admin", "wipeWritePerm", "-b", "broker-a"),
    ("admin", "addWritePerm", "-b", "broker-a"),
    ("admin", "getNamesrvConfig"),
    ("admin", "updateNamesrvConfig", "-k", "k", "-v", "v"),
]


def name_server(name: str, addresses: list[str], text: str) -> Callable[[RemotingCommand], RemotingCommand]:
    """Answers with one text wherever a peer can put one."""
    groups = {f"{name}{at}": {0: address} for at, address in enumerate(addresses)}
    datas = [
        BrokerData(broker_addrs=one, broker_name=key, cluster="C", enable_acting_master=False)
        for key, one in groups.items()
    ]
    info = ClusterInfo(
        broker_addr_table={one.broker_name: one for one in datas}, cluster_addr_table={"C": list(groups)}
    )
    route = TopicRouteData(
        broker_datas=datas,
        filter_server_table={text: [text]},
        order_topic_conf=text,
        queue_datas=[
            QueueData(broker_name=key, perm=6, read_queue_nums=1, topic_sys_flag=0, write_queue_nums=1)
            for key in groups
        ],
    )
    plain = text.encode("utf-8", "replace").decode()
    bodies = {
        105: encode_topic_route(route, numeric_keys=False),
        106: encode_cluster_info(info),
        206: json.dumps({"topicList": [text, "orders"]}).encode(),
        319: f"k={plain.splitlines()[0] if plain else ''}\n".encode(),
    }
    fields = {"value": text, "wipeTopicCount": text, "addTopicCount": text}

    def answer(request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, fields, body=bodies.get(request.code, b""), remark=text)

    return answer


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_foreign_text_is_text(recorder: Recorder, words: tuple[str, ...]) -> None:
    for kind, text in HOSTILE.items():
        broker = recorder.scripted(
            f"broker {kind}",
            lambda request, text=text: RemotingCommand(1, remark=text),
        )
        address = recorder.scripted(f"ns {kind}", name_server(text, [broker], text))
        done = command(*words, "-n", address)
        for output in (done.stdout, done.stderr):
            assert not OBEYED.search(output), (kind, output)
            assert "Traceback" not in output, (kind, output)
        if "json" in words:
            assert json.loads(done.stdout)["orderTopicConf"] == text
        if kind in ("markup", "a closing tag", "a link", "brackets", "emoji") and words[1] in ("orders", "topicRoute"):
            assert text in done.stdout, (kind, done.stdout)
        if kind == "newline":
            lines = (done.stdout + done.stderr).splitlines()
            assert not [line for line in lines if line.startswith("broker-z")], lines


ODD = [
    *(
        "",
        " ",
        "x",
        ":",
        "a:b:c",
        "[fd00::7]:10911",
        "fd00::7:1",
        "no.such.invalid:1",
        "127.0.0.1:0",
        "127.0.0.1:99999",
    ),
    *("127.0.0.1:-1", "127.0.0.1:\uff11", "\uff0e:1", "a" * 64 + ":1", "a" * 5000 + ":1", "..:1", ".a:1", "a..b:1"),
    *(
        "\u00fc.example:1",
        "a b:1",
        "a\0b:1",
        "[::1:1",
        "::1]:1",
        "[]:1",
        "%:1",
        "[fe80::1%nowhere]:1",
        "[red]:1",
        "http://a:1",
    ),
    *(
        "\n:1",
        "-:1",
        "xn--a:1",
        "127.0.0.1: 1",
        "127.0.0.1:1 ",
        "255.255.255.255:1",
        "127.0.0.1:1e3",
        "127.0.0.1:+1",
        "1:\u00b2",
    ),
]


@pytest.mark.parametrize(
    "words",
    [
        ("clusterList",),
        ("topicStatus", "-t", "orders"),
        ("updateTopic", "-t", "orders", "-c", "C"),
        ("topicList", "-c"),
    ],
    ids=" ".join,
)
def test_an_address_that_cannot_be_dialled_is_one_failed_line(recorder: Recorder, words: tuple[str, ...]) -> None:
    good = recorder.scripted("good", lambda request: RemotingCommand(0, body=b'{"table":{},"groupList":[]}'))
    bad_answer = recorder.scripted("bad", lambda request: RemotingCommand(0, body=b"\x00["))
    noise = random.Random(7)
    alphabet = "a1:[].%-_ \n\0\u00e9\u3002"
    drawn = ["".join(noise.choice(alphabet) for _ in range(noise.randrange(12))) + ":1" for _ in range(20)]
    for at, odd in enumerate([*ODD, bad_answer, *drawn]):
        address = recorder.scripted(f"ns {at}", name_server("broker-", [odd, good], "x"))
        code, output = told("admin", *words, "-n", address, "--timeout-s", "2")
        assert code in (0, 1), (odd, output)
        assert "Traceback" not in output, (odd, output)
        if words[0] in ("clusterList", "updateTopic"):
            failed = [line for line in output.splitlines() if " failed " in f" {line} " and not line[:1].isdigit()]
            assert len(failed) <= 1, (odd, output)
            assert good in output, (odd, output)


def test_odd_text_in_a_comparison_is_printed_as_text(recorder: Recorder) -> None:
    for at, odd in enumerate(ODD):
        ones = [recorder.scripted(f"ns {at} {n}", name_server("b", [odd, f"10.0.0.{n}:1"], "x")) for n in (1, 2)]
        done: Any = command("admin", "compare", "-n", ";".join(ones))
        assert done.returncode == 1
        assert "different: 1 broker" in done.stdout, (odd, done.stdout, done.stderr)
