# SPDX-License-Identifier: Apache-2.0
"""``routelake broker`` on the command line: bad input is one clear line and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clients.broker.config import BrokerConfig, broker_config, parse_properties
from peers.routelake import ROOT
from schemas.errors import SetupError


def routelake(*args: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("NAMESRV_ADDR", "ROUTELAKE_NAMESRV")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "cli.main", *args]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_bad_input(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerId=first\n")
    truncated = tmp_path / "store" / "config" / "topics.json"
    truncated.parent.mkdir(parents=True)
    truncated.write_text('{"dataVersion":{"counter":')
    for args, message in (
        ((), "names no NameServer: give --namesrv"),
        (("-n", "a:9876", "--config", str(conf)), "Expected `int`"),
        (("-n", "a:9876", "--config", str(tmp_path / "none.conf")), "cannot be read"),
        (("-n", "a:9876", "--listen", "10911"), "--listen '10911': expected HOST:PORT"),
        (
            ("-n", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--store", str(tmp_path / "store")),
            "topics.json cannot be read",
        ),
        (("-n", "9876", "--store", str(tmp_path)), "'9876' is no address: expected HOST:PORT"),
    ):
        done = routelake("broker", *args)
        assert done.returncode == 2, done
        assert message in done.stderr
        assert done.stderr.startswith("routelake: ")
        assert done.stderr.count("\n") == 1


def test_a_stock_broker_conf() -> None:
    settings = parse_properties(
        "# a comment\n\nbrokerClusterName = DefaultCluster\nbrokerName=broker-a\nbrokerId=1\ndeleteWhen=04\n"
        "autoCreateTopicEnable=FALSE\nbrokerIP1=10.0.0.1\nnamesrvAddr=a:1;b:2\nbrokerRole=SLAVE\n"
    )
    config, ignored = broker_config(settings)
    assert config == BrokerConfig(
        broker_id=1, auto_create_topic_enable=False, broker_ip1="10.0.0.1", namesrv_addr="a:1;b:2"
    )
    assert ignored == ["brokerRole", "deleteWhen"]
    assert parse_properties(config.properties())["autoCreateTopicEnable"] == "false"
    assert broker_config(parse_properties(config.properties()))[0] == config


@pytest.mark.parametrize(
    ("text", "message"),
    [("brokerId", "line 1: 'brokerId' is no key=value"), ("brokerId=-1", "brokerId -1: 0 is a master")],
)
def test_a_broken_broker_conf(text: str, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        broker_config(parse_properties(text))
