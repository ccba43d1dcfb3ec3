# SPDX-License-Identifier: Apache-2.0
"""One brokerName has a bounded number of addresses, however they come: each change of a group writes all of them."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from dev.model import codes
from dev.support.local import LocalLake
from schemas.limits import MAX_GROUP_ADDRESSES
from tests.examples.parts import A, config, register

TOPICS = [config("T1"), config("T2")]


def test_one_address_more_is_refused_and_those_that_are_there_go_on(tmp_path: Path) -> None:
    with (
        LocalLake(tmp_path, folds=False) as lake,
        lake.gateway(http_port=0) as gateway,
        gateway.connect() as client,
        gateway.connect() as other,
    ):

        def say(number: int, name: str = A) -> tuple[int, str]:
            sent = register(name, f"10.0.{number // 200}.{number % 200}:10911", number, topics=TOPICS)
            answer = (client if number % 2 else other).call(sent.request())
            return answer.code, answer.remark or ""

        assert {say(number)[0] for number in range(MAX_GROUP_ADDRESSES)} == {codes.SUCCESS}
        for number in range(MAX_GROUP_ADDRESSES, MAX_GROUP_ADDRESSES + 20):
            code, remark = say(number)
            assert code == codes.SYSTEM_ERROR
            assert f"at most {MAX_GROUP_ADDRESSES} are accepted" in remark
        assert say(0)[0] == codes.SUCCESS
        assert say(0, "another")[0] == codes.SUCCESS
        with urllib.request.urlopen(f"http://127.0.0.1:{gateway.http_port}/v1/brokers") as found:
            brokers = json.load(found)["brokers"]
        ids = {row["brokerAddr"]: row["brokerId"] for row in brokers if row["brokerName"] == A}
        assert ids == {f"10.0.{n // 200}.{n % 200}:10911": n for n in range(MAX_GROUP_ADDRESSES)}
        assert gateway.gateway.quotas._joining == {}
