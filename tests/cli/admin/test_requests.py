# SPDX-License-Identifier: Apache-2.0
"""`routelake admin` sends what stock mqadmin 5.5.0 sends: codes, headers, bodies, servers and order."""

from __future__ import annotations

import pytest

from dev.support.recorder import Recorded, Recorder
from tests.cli.admin.commands import CASES, command
from tests.cli.admin.golden_requests import comparable, recorded
from tests.cli.admin.run import admin
from tests.cli.admin.world import BROKERS, NAME_SERVERS

pytestmark = pytest.mark.xdist_group("admin")

GOLDEN = recorded()
FAILING = {
    "updateTopic without master",
    "updateTopicPerm on a slave",
    "deleteTopic without master",
    "topicRoute of no topic",
}
"""What cannot succeed in this world: exit code 1. Stock mqadmin ends with 0."""

LOOKS = {
    "deleteTopic": 105,
    "deleteTopic without master": 105,
    "updateOrderConf delete": 101,
    "deleteKvConfig": 101,
    "updateNamesrvConfig": 319,
}
"""What every NameServer is asked first, beyond what mqadmin asks: whether there is something to change."""

NAME_OF = {address: name for name, address in {**NAME_SERVERS, **BROKERS}.items()}
CHANGES = {17, 18, 215, 100, 102, 205, 327, 216, 318}


def test_every_case_is_recorded() -> None:
    assert set(GOLDEN) == set(CASES)
    assert all(GOLDEN.values())


@pytest.mark.parametrize("case", CASES)
def test_same_requests_as_stock_mqadmin(world: Recorder, case: str, topics_file: str) -> None:
    ran = admin(*command(case, topics_file))
    taken = world.take()
    look = LOOKS.get(case)
    if look is not None:
        assert [one.code for one in taken][: len(NAME_SERVERS)] == [look] * len(NAME_SERVERS)
        taken = taken[len(NAME_SERVERS) :]
    assert comparable(case, taken) == comparable(case, GOLDEN[case])
    assert ran.code == (1 if case in FAILING else 0), ran


@pytest.mark.parametrize("case", CASES)
def test_a_dry_run_prints_the_requests_and_changes_nothing(world: Recorder, case: str, topics_file: str) -> None:
    ran = admin(*command(case, topics_file), "--dry-run", "--output", "json")
    arrived = world.take()
    listed = [
        Recorded(NAME_OF[one["address"]], one["code"], one["extFields"], one["body"]) for one in ran.json["requests"]
    ]
    assert comparable(case, listed) == comparable(case, GOLDEN[case])
    assert [one["sent"] for one in ran.json["requests"]] == [one.code not in CHANGES for one in listed]
    assert arrived == [one for one in listed if one.code not in CHANGES]
    assert ran.code == (1 if case in FAILING else 0), ran
