# SPDX-License-Identifier: Apache-2.0
"""The judge's rules about listeners and differences, as in test_rules.py."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dev.fault_injection.answers import tables_of
from dev.fault_injection.case import Case
from dev.fault_injection.evidence import Epoch
from dev.fault_injection.followers import Follower
from dev.fault_injection.hand_made import BROKER, again, good_case, read_entry
from dev.fault_injection.plan import Worker
from dev.fault_injection.record import Heard, Injected, Recorder, read_record
from dev.fault_injection.rules_of_followers import differences, every_epoch_is_told
from dev.support.loops import until


def heard(kind: str, time_s: float, epoch: int | None = None, after: int | None = None, **more: Any) -> Heard:
    return Heard(**{"worker": "f", "gateway": 0, "topic": "", "stream": 1, **more}, kind=kind, time_s=time_s, epoch=epoch, after=after)  # fmt: skip


def event(number: int, time_s: float, offset: int, topics: list[str], **more: Any) -> Heard:
    brokers = ["b"] if topics else []
    data = {"epoch": number, "offset": offset, "topics": topics, "brokers": brokers}
    return heard("epoch", time_s, number, data={**data, "topicCount": len(topics), "brokerCount": len(brokers)}, **more)


@pytest.fixture
def case() -> Case:
    """Epoch 1 ends with the first registration, 2 with the second, 3 with a KV entry. One listener heard them all."""
    case = good_case()
    case.evidence.epochs = [Epoch(1, 1, 1, 1_000), Epoch(2, 2, 2, 2_000), Epoch(3, 4, 4, 5_000)]
    both = frozenset({"T", "U"}), frozenset({"b"})
    case.evidence.changed = {1: both, 2: both, 3: (frozenset(), frozenset())}
    case.record.heard = [
        *(heard("begin", 1.0), heard("id", 1.1, 0), event(1, 1.2, 1, ["T", "U"]), event(2, 2.2, 2, ["T", "U"])),
        *(event(3, 5.2, 4, []), heard("id", 20.0, 3), heard("end", 21.0)),
    ]
    return case


def messages(case: Case) -> list[str]:
    return [violation.message for violation in every_epoch_is_told(again(case))]


def test_a_good_listener(case: Case) -> None:
    assert messages(case) == []
    judged = again(case)
    every_epoch_is_told(judged)
    assert judged.judged["event"] == 3


def test_an_epoch_that_is_missing(case: Case) -> None:
    del case.record.heard[3]
    assert messages(case) == ["epoch 3 after 2: something between them is missing"]


def test_an_epoch_that_an_id_leaves_out(case: Case) -> None:
    del case.record.heard[4]
    assert messages(case) == ["epoch 3 after 2: something between them is missing"]


def test_an_epoch_twice_and_one_that_goes_back(case: Case) -> None:
    case.record.heard.insert(4, case.record.heard[3])
    assert messages(case) == ["epoch 2 after epoch 2"]
    case.record.heard[4] = heard("id", 2.3, 1)
    assert messages(case) == ["id 1 after epoch 2"]


def test_who_comes_back_is_told_from_there(case: Case) -> None:
    again_told = replace(case.record.heard[3], stream=2)
    case.record.heard += [heard("begin", 30.0, after=1, stream=2), heard("id", 30.1, 1, stream=2), again_told]
    assert messages(case) == []
    case.record.heard[-1] = replace(again_told, data={**again_told.data, "topics": ["T"], "topicCount": 1})
    assert messages(case) == ["one epoch is told in two ways"]
    case.record.heard[-1] = heard("reset", 30.2, 3, stream=2)
    assert "reset after 1, in the lake that it knew" in messages(case)


def test_who_listens_to_a_topic(case: Case) -> None:
    of_topic = [replace(each, topic="T") for each in case.record.heard]
    case.record.heard = [each for each in of_topic if each.epoch != 3 or each.kind == "id"]
    assert messages(case) == []
    del case.record.heard[3]
    assert messages(case) == ["nothing of epochs [2], which changed T"]
    case.record.heard = of_topic
    assert messages(case) == ["told to who listens to T"]


def test_what_an_event_names(case: Case) -> None:
    wrong = {**case.record.heard[3].data, "topics": ["T"], "topicCount": 1}
    case.record.heard[3] = replace(case.record.heard[3], data=wrong)
    assert [message.partition(" ")[0] for message in messages(case)] == ["names"]
    case.record.heard[3] = replace(case.record.heard[3], data={**wrong, "offset": 3, "topicCount": 2})
    assert len(messages(case)) == 3
    case.evidence.epochs.pop()
    assert "epoch 3 is not in routeCommitTable" in messages(case)


def test_who_is_told_too_late(case: Case) -> None:
    silent: dict[str, Any] = {"worker": "a", "stream": 7}
    case.record.heard[:0] = [
        heard("begin", 2.0, after=1, **silent),
        heard("id", 2.1, 1, **silent),
        heard("end", 40.0, **silent),
    ]
    assert messages(case) == ["told up to 1, 10 s after 3 was there"]


def test_a_difference(case: Case) -> None:
    key, row = {"topic": "T", "brokerName": "b"}, {"writeQueueNums": 8, "readQueueNums": 8, "perm": 6}
    rows = [
        {"tableName": "topicQueueTable", "key": {**key, "topic": topic}, "before": row, "after": {**row, "readQueueNums": 4, "writeQueueNums": 4}}
        for topic in ("T", "U")
    ]  # fmt: skip
    case.record.heard.append(heard("diff", 9.0, 2, 1, data={"differences": rows}))
    assert differences(again(case)) == []
    rows[0]["after"] = row
    assert "by the model from (8, 8, 6) to (4, 4, 6)" in differences(again(case))[0].message
    del rows[0]
    assert differences(again(case))[0].message.startswith("nothing of ('T', 'b')")
    case.record.heard[-1] = replace(case.record.heard[-1], epoch=7)
    assert differences(again(case))[0].message == "it is of an epoch that is not there"


def test_a_difference_of_the_first_epoch(case: Case) -> None:
    """Before it there was nothing."""
    topics, _, _ = tables_of(case.expected.model)
    rows: list[dict[str, Any]] = [
        {"tableName": "topicQueueTable", "key": {"topic": topic, "brokerName": name}, "before": None,
         "after": {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6}}
        for topic, name in topics
    ]  # fmt: skip
    case.record.heard.append(heard("diff", 9.0, 1, 0, data={"differences": rows}))
    assert [each.message for each in differences(again(case))] == [
        f"nothing of b, which went from None to {{0: '{BROKER.addr}'}} by the model"
    ]


def test_who_is_told_nothing_at_all(case: Case) -> None:
    """Nobody else listens: what the gateway has shown to a reader is enough."""
    begin = heard("begin", 2.0, after=1)
    case.record.heard = [begin, heard("id", 2.1, 1), heard("id", 12.0, 1), heard("id", 27.0, 1)]
    assert messages(case) == []
    case.record.entries.append(read_entry(4, 6.0, 4, epoch=3))
    assert messages(case) == ["told up to 1, 10 s after 3 was there"]
    case.record.heard[1:] = [heard("id", 2.1, 1), heard("unanswered", 26.0, asked_s=3.0), heard("id", 27.0, 1)]
    assert messages(case) == [], "it was busy with a question of its own"


def test_who_was_cut_off_is_told_later(case: Case) -> None:
    case.record.heard = [heard("begin", 2.0, after=1, gateway=1), heard("id", 27.0, 1, gateway=1)]
    case.record.entries.append(read_entry(4, 6.0, 4, epoch=3, gateway=1))
    assert messages(case) == ["told up to 1, 10 s after 3 was there"]
    case.record.faults = [Injected("separate-second", 5.0, 20.0)]
    assert messages(case) == []


class _Events(BaseHTTPRequestHandler):
    """Two epochs, and then nothing more; each connection's question is kept."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("last-event-id")))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        if self.path.startswith("/v1/diff"):
            self.wfile.write(b'{"differences":[]}')
            return
        with suppress(OSError):  # the test is over
            self.wfile.write(b"retry: 2000\nid: 5\n\n")
            for number in (6, 7):
                self.wfile.write(b'event: epoch\nid: %d\ndata: {"epoch":%d}\n\n' % (number, number))

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_follower_comes_back_where_it_was(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "record.jsonl", {})
    with ThreadingHTTPServer(("127.0.0.1", 0), _Events) as server:
        asked: list[tuple[str, str | None]] = []
        server.asked = asked  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address: Any = SimpleNamespace(host="127.0.0.1", http_port=server.server_port)
        follower = Follower(Worker("f", "follower", "events", 1), address, recorder)
        follower.start()
        until(lambda: sum(path.startswith("/v1/events") for path, _ in asked) > 4)
        server.shutdown()
    until(lambda: "Refused" in (tmp_path / "record.jsonl").read_text())
    follower.stop()
    follower.join()
    recorder.close()
    assert follower.defect is None
    events = [(path, last) for path, last in asked if path.startswith("/v1/events")]
    assert events[0] == ("/v1/events?", None)
    assert any(last == "7" for _, last in events)
    assert any("from=" in path for path, _ in events)
    record = read_record(tmp_path / "record.jsonl")
    refused = {each.stream for each in record.heard if "Refused" in each.data.get("error", "")}
    begun = {each.stream for each in record.heard if each.kind == "begin"}
    assert refused, "nobody listened any more"
    assert not refused & begun, "whom nobody answers has no connection that could have been told anything"
    first, *_ = [each for each in record.heard if each.kind == "epoch"]
    assert (first.stream, first.epoch, first.data) == (1, 6, {"epoch": 6})
    assert json.dumps(first.line())
