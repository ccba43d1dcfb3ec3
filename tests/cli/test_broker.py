# SPDX-License-Identifier: Apache-2.0
"""``routelake broker`` on the command line: bad input is one clear line and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.broker import file_settings
from clients.broker.config import BrokerConfig, broker_config
from dev.support.command import command, process
from schemas.errors import SetupError
from schemas.properties import parse


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
        done = command("broker", *args)
        assert done.returncode == 2, done
        assert message in done.stderr
        assert done.stderr.startswith("routelake: ")
        assert done.stderr.count("\n") == 1
    assert process("broker", *args).stderr == done.stderr


def parse_properties(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse(text)}


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
    [
        ("brokerId", "brokerId='': Expected `int`"),
        ("brokerId=-1", "brokerId -1: 0 is a master"),
        ("brokerId=1 ", "without blanks after it"),
        ("listenPort=99999999999", "Expected `int`"),
        ("autoCreateTopicEnable=yes", "Expected `bool`: true or false"),
    ],
)
def test_a_broken_broker_conf(text: str, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        broker_config(parse_properties(text))


@pytest.mark.parametrize("begin", ["", "\ufeff", "# \u6ce8\u91ca\n", "! x\r\n", "\ufeff# x\n"])
def test_a_broker_conf_as_java_reads_it(begin: str, tmp_path: Path) -> None:
    """Saved by an editor that puts a byte order mark before it, or with comments of any encoding."""
    conf = tmp_path / "broker.conf"
    text = (
        "brokerClusterName:c1\rbrokerName \\u7ecf\nbrokerIP1 = 10.0.0.\\\n   1\nbrokerId=7\nbrokerId=1\n"
        "namesrvAddr\\u003da:1\nlistenPort\t: 1\\u0030911\nbrokerRole=SLAVE"
    )
    for encoding in ("utf-8", "gbk"):
        if encoding == "gbk" and "\ufeff" in begin:
            continue
        conf.write_bytes((begin + text).encode(encoding))
        config, ignored = broker_config(file_settings(conf))
        assert config == BrokerConfig(
            broker_cluster_name="c1", broker_name="\u7ecf", broker_ip1="10.0.0.1", broker_id=1, listen_port=10911
        )
        assert ignored == ["brokerRole", "namesrvAddr=a"]


def test_all_faults_of_a_broker_conf_are_in_one_message(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=\\u12\nbrokerId=x\nlistenPort=\nbrokerIP1=0.0.0.0\nclusterTopicEnable=1\nx=\\uzzzz\n")
    with pytest.raises(SetupError) as caught:
        broker_config(file_settings(conf))
    said = str(caught.value)
    assert "\n" not in said
    for word in ("line 1: malformed", "line 6: malformed", "brokerId", "listenPort", "0.0.0.0", "clusterTopicEnable"):
        assert word in said


def test_a_broker_conf_in_utf_16_is_named(tmp_path: Path) -> None:
    """It would be a broker of DefaultCluster otherwise, with not one of its settings."""
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerClusterName=c1\n", encoding="utf-16")
    with pytest.raises(SetupError, match="line 1: the file is in UTF-16. Save it in UTF-8"):
        file_settings(conf)
