# SPDX-License-Identifier: Apache-2.0
"""`routelake plan`, and the transcript of the production checklist."""

from __future__ import annotations

import json

from dev.peers.routelake import ROOT
from dev.support.command import command


def test_the_production_checklist_shows_what_it_prints() -> None:
    page = (ROOT / "docs" / "how-to" / "operate" / "production-checklist.md").read_text(encoding="utf-8")
    given = "plan --brokers 300 --topics 10000"
    done = command(*given.split())
    assert done.returncode == 0, done.stderr
    assert f"$ ./routelake {given}\n{done.stdout}```" in page


def test_json_has_the_demand_the_plan_and_the_ports() -> None:
    done = command("plan", "--brokers", "60", "--topics", "2000", "--groups-per-topic", "4", "-o", "json")
    found = json.loads(done.stdout)
    assert found["queueRows"] == 8_000 and found["demand"]["groupsATopic"] == 4
    assert {(port["to"], port["port"]) for port in found["ports"]} == {
        ("gateway", 9876), ("gateway", 8080), ("Kafka", 9092), ("object store", 443),
    }  # fmt: skip


def test_one_machine_has_sqlite_and_no_kafka() -> None:
    done = command("plan", "--brokers", "20", "--topics", "500", "--one-machine")
    assert "event log (SQLite)" in done.stdout and "Kafka" not in done.stdout
    done = command("plan", "--brokers", "50000", "--topics", "500", "--one-machine")
    assert done.stdout.rstrip().endswith("One machine is not enough for this. Plan without --one-machine.")
