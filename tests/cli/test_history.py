# SPDX-License-Identifier: Apache-2.0
"""`routelake history`: over HTTP and on the tables, for people and for programs; `test_variables` has processes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest

from cli.data_options import lake_place
from cli.history.show import show_changes, show_diff
from cli.history.source import of_gateway, of_tables
from cli.output import Form
from dev.support.command import command, process
from dev.support.http_api import broker
from dev.support.live import LiveRoutelake
from schemas.errors import RoutelakeError, SetupError


def cli(*args: str) -> CompletedProcess[str]:
    return command("history", *args, ROUTELAKE_TIME_ZONE="UTC")


class Past:
    """A routelake in which a broker with ten topics was wiped, and one of them deleted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.live = LiveRoutelake(folder)
        with httpx.Client(base_url=self.live.http_url, timeout=60) as client:
            self.client = client
            topics = [f"t{number}" for number in range(10)]
            self.post("/v1/brokers/register", json=broker(topics=topics, heartbeatTimeoutMillis=86_400_000))
            self.post("/v1/brokers/broker-a/wipe-write-perm")
            self.post("/v1/topics/t3", method="DELETE")
            url = "/v1/changes?command=WIPE_WRITE_PERM_OF_BROKER&limit=1"
            self.wiped: int = client.get(url).json()["changes"][0]["epoch"]
            self.changes: list[Any] = client.get("/v1/changes?limit=1000").json()["changes"]

    def post(self, path: str, method: str = "POST", **more: Any) -> None:
        answer = self.client.request(method, path, **more)
        assert answer.status_code == 200, answer.text
        offset = answer.json()["offset"]
        assert self.client.get(f"/v1/epochs?wait_for={offset}&wait_timeout=30000").status_code == 200


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    past = Past(tmp_path_factory.mktemp("history"))
    yield past
    past.live.close()


def where(past: Past, source: str) -> list[str]:
    return (
        ["--http", past.live.http_url.removeprefix("http://")] if source == "http" else ["--data-dir", str(past.folder)]
    )


@pytest.mark.parametrize("source", ["http", "lake"])
def test_changes_for_people(past: Past, source: str) -> None:
    found = cli("changes", "--to", "now", "--topic", "", *where(past, source))
    assert found.returncode == 0, found.stderr
    title, *lines, zone = found.stdout.splitlines()
    assert title.split() == ["#Time", "#Epoch", "#Command", "#Result", "#By", "#Table", "#Target", "#Change"]
    assert zone == "times are of UTC"
    wiped = [line for line in lines if "WIPE_WRITE" in line]
    assert "broker-a t0, t1, t2 and 7 more" in wiped[0]  # ten rows, one line
    assert wiped[0].endswith("perm 6 -> 4")
    assert len(wiped) == 2  # and the command
    assert lines[0].endswith("- readQueueNums=8 writeQueueNums=8 perm=4 topicSysFlag=0")
    few = cli("changes", "--limit", "1", *where(past, source)).stdout.splitlines()
    assert (len(few), few[-1]) == (4, "there are older ones. Set --limit to show more (1)")
    assert cli("changes", "--user", "nobody", *where(past, source)).stdout.startswith("no change found\n")


@pytest.mark.parametrize("source", ["http", "lake"])
def test_changes_for_programs(past: Past, source: str) -> None:
    lines = cli("changes", "--json", *where(past, source)).stdout.splitlines()
    assert [json.loads(line) for line in lines] == past.changes
    some = cli("changes", "--csv", "--command", "DELETE_TOPIC_IN_NAMESRV", "--from", "-1h", *where(past, source))
    if "is before the first epoch" not in some.stderr:
        rows = list(csv.DictReader(io.StringIO(some.stdout)))
        assert [row["topic"] for row in rows] == ["t3", "t3"]
    at = str(past.wiped - 1)
    some = cli("changes", "--csv", "--from", at, "--to", str(past.wiped), "--broker", "broker-a", *where(past, source))
    rows = list(csv.DictReader(io.StringIO(some.stdout)))
    assert {row["command"] for row in rows} == {"WIPE_WRITE_PERM_OF_BROKER"}
    assert len(rows) == 11


@pytest.mark.parametrize("source", ["http", "lake"])
def test_diff_lists_the_differences_between_two_epochs(past: Past, source: str) -> None:
    at = str(past.wiped - 1)
    lines = cli("diff", "--from", at, *where(past, source)).stdout.splitlines()
    assert [line.split()[1] for line in lines[1:-1]] == ["~", "~", "~", "-", *"~~~~~~"]
    assert lines[1].split() == ["topicQueueTable", "~", "broker-a", "t0", "perm", "6", "->", "4"]
    assert lines[-1].startswith(f"from epoch {at} of 20")
    assert lines[-1].endswith(", UTC")
    found = json.loads(cli("diff", "--from", at, "--topic", "t3", "--json", *where(past, source)).stdout)
    assert found["from"]["epoch"] == past.wiped - 1
    assert [(each["op"], each["key"]["topic"]) for each in found["differences"]] == [("d", "t3")]
    rows = list(csv.DictReader(io.StringIO(cli("diff", "--from", at, "--csv", *where(past, source)).stdout)))
    assert [row["op"] for row in rows] == ["u", "u", "u", "d", *"uuuuuu"]
    same = cli("diff", "--from", at, "--to", at, *where(past, source)).stdout.splitlines()
    assert same[0] == "nothing is different"


def test_pages_make_one_answer(past: Past, capsys: pytest.CaptureFixture[str]) -> None:
    for source in (of_gateway(past.live.http_url), of_tables(lake_place(past.folder, ""))):
        show_changes(source.changes({}, 3), Form.JSON, None, None, source.events_not_in_tables)
        assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == past.changes
        show_changes(source.changes({}, 3), Form.CSV, 4, None, source.events_not_in_tables)
        assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == 4
        show_diff(source.diff({"from": str(past.wiped - 1)}, 3), Form.JSON, None, None)
        assert len(json.loads(capsys.readouterr().out)["differences"]) == 10
        show_diff(source.diff({"from": str(past.wiped - 1)}, 3), Form.TABLE, 5, None)
        assert capsys.readouterr().out.splitlines()[-1] == "there are more. Set --limit to show more (5)"


@pytest.mark.parametrize("source", ["http", "lake"])
def test_timeline_and_blame(past: Past, source: str) -> None:
    found = cli("timeline", "t3", *where(past, source))
    assert found.returncode == 0, found.stderr
    gone, wiped, made = found.stdout.splitlines()[1:4]
    assert gone.endswith("gone")
    assert wiped.endswith("readable, 0 to write, 8 to read, on broker-a")
    assert "REGISTER_BROKER" in made
    rows = [json.loads(line) for line in cli("timeline", "t3", "--json", *where(past, source)).stdout.splitlines()]
    assert [row["writable"] for row in rows] == [False, False, True]
    then = ["--from", str(past.wiped), "--to", str(past.wiped)]
    (row,) = cli("timeline", "t3", *then, "--json", *where(past, source)).stdout.splitlines()
    assert (json.loads(row)["to"], json.loads(row)["writable"]) == (None, False)
    few = cli("timeline", "t3", "--limit", "1", *where(past, source)).stdout
    assert few.splitlines()[-1] == "there are older ones. Set --limit to show more (1)"
    lines = cli("timeline", "--broker", "broker-a", *where(past, source)).stdout.splitlines()
    assert lines[1].endswith("alive: 10.0.0.1:10911 (0=10.0.0.1:10911)")
    (group,) = csv.DictReader(
        io.StringIO(cli("timeline", "--broker", "broker-a", "--csv", *where(past, source)).stdout)
    )
    assert (group["to"], json.loads(group["begunBy"])["command"]) == ("", "REGISTER_BROKER")
    blamed = cli("blame", "t3", "--as-of", str(past.wiped), *where(past, source)).stdout.splitlines()
    (perm,) = (line.split() for line in blamed if "perm" in line.split())
    assert (perm[2], perm[-2]) == ("4", "WIPE_WRITE_PERM_OF_BROKER")
    assert blamed[-1].startswith(f"as of epoch {past.wiped} of 20")
    for words, says in ((["timeline", "t 4"], "has no topic 't 4'"), (["blame", "t3"], "had no route")):
        refused = cli(*words, *where(past, source))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert says in refused.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("diff", 2, "--from is missing"),
        ("timeline", 2, "set either TOPIC or --broker BROKERNAME"),
        ("timeline t --broker b", 2, "set either TOPIC or --broker BROKERNAME"),
        ("blame t --as-of never", 2, "--as-of 'never' is not a point in time"),
        ("changes --from tomorrow", 2, "--from 'tomorrow' is not a point in time; write an epoch (17), now"),
        ("changes --time-zone Mars", 2, "'Mars': unknown time zone"),
        ("changes --json --csv", 2, "--json and --csv cannot be used together"),
        ("changes --data-dir nothing", 2, "there are no tables in"),
        ("changes --data-dir nothing --http 127.0.0.1:1", 2, "--http and --data-dir cannot be used together"),
        ("changes --http 127.0.0.1:1", 1, "http://127.0.0.1:1 does not answer"),
        ("changes --http 127.0.0.1:1", 1, "refused; name another gateway with --http, or the tables with --data-dir"),
    ],
)
def test_what_is_refused(words: str, code: int, says: str) -> None:
    found = cli(*words.split())
    assert (found.returncode, found.stdout) == (code, "")
    assert says in found.stderr
    assert found.stderr.count("\n") == 1


def test_what_the_gateway_or_the_tables_refuse(past: Past) -> None:
    for source in (of_gateway(past.live.http_url), of_tables(lake_place(past.folder, ""))):
        with pytest.raises(RoutelakeError, match="from must not be after to"):
            list(source.diff({"from": "2", "to": "1"}))
        with pytest.raises(RoutelakeError, match="is before the first epoch"):
            list(source.changes({"from": "1999-01-01T00:00:00Z"}))
        for ask, way_out in ((source.changes, "leave out from to begin there"), (source.diff, "the first epoch is 1")):
            with pytest.raises(RoutelakeError, match=f"; {way_out}$"):
                list(ask({"from": "1999-01-01T00:00:00Z"}))
        with pytest.raises(RoutelakeError, match="command must be one of"):
            list(source.changes({"command": "X"}))
    for address in ("http://", "http://[", "ftp://x", "no host"):
        with pytest.raises((SetupError, RoutelakeError)):
            list(of_gateway(address).changes({}))


def test_variables(past: Past) -> None:
    data_dir, http = str(past.folder), past.live.http_url
    of_either = (
        process("history", "changes", "--limit", "1", ROUTELAKE_DATA_DIR=data_dir),
        command("history", "changes", "--limit", "1", ROUTELAKE_GATEWAY=http),
    )
    assert [(found.returncode, found.stderr) for found in of_either] == [(0, "")] * 2
    assert of_either[0].stdout == of_either[1].stdout
    changes = ("history", "changes")
    assert command(*changes, "--http", http, ROUTELAKE_DATA_DIR="nothing").returncode == 0
    assert command(*changes, "--data-dir", data_dir, ROUTELAKE_GATEWAY="127.0.0.1:1").returncode == 0
    neither = command(*changes, ROUTELAKE_DATA_DIR=data_dir, ROUTELAKE_GATEWAY=http)
    assert neither.returncode == 2
    assert "ROUTELAKE_GATEWAY and ROUTELAKE_DATA_DIR are both set. Use --http to ask a gateway" in neither.stderr


def test_the_remoting_port_given_as_http_is_named(past: Past) -> None:
    address = past.live.namesrv_addr
    found = process("history", "changes", "--http", address)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith(f"routelake: http://{address}: this port has no HTTP. Use the port that --http")
