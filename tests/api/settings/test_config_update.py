# SPDX-License-Identifier: Apache-2.0
"""GET_NAMESRV_CONFIG and UPDATE_NAMESRV_CONFIG over the wire: off unless allowed, an allow-list, audited, shared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request, Response
from dev.peers.java import wait_until
from dev.support.local import LocalLake, config_of, local_client
from dev.support.rocketmq import StockNameServer, mqadmin

NAMESPACE = "routelake.namesrvConfig"

# Bodies of 318, and what both a stock NameServer and routelake answer: the code.
BODIES = {
    b"": codes.SUCCESS,
    b"   \n": codes.SUCCESS,
    b"# only a comment": codes.SUCCESS,
    b"enableTopicList=true": codes.SUCCESS,
    b"enableTopicList=FALSE\nenableAllTopicList:true": codes.SUCCESS,
    b"enableTopicList=TRUE ": codes.SUCCESS,
    b"unknownKey=1": codes.SUCCESS,
    b"EnableTopicList=1": codes.SUCCESS,
    b"\xff\xfe=1": codes.SUCCESS,
    b"enableTopicList=\\u12": codes.SYSTEM_ERROR,
    b"configBlackList=": codes.NO_PERMISSION,
    b"configStorePath=/tmp/x": codes.NO_PERMISSION,
    b"kvConfigPath=/tmp/x": codes.NO_PERMISSION,
    b"rocketmqHome=/tmp/x": codes.NO_PERMISSION,
    b"enableTopicList=false\nkvConfigPath=/tmp/x": codes.NO_PERMISSION,
    b"orderMessageEnable=false": codes.NO_PERMISSION,  # BLACK_LIST names it
}
BLACK_LIST = "x;orderMessageEnable"


def update(client: RemotingClient, body: bytes) -> Response:
    return client.call(Request(codes.UPDATE_NAMESRV_CONFIG, {}, body))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RemotingClient]:
    with local_client(tmp_path, allow_config_update=True, config_black_list="") as found:
        yield found


def test_it_is_off_unless_allowed(tmp_path: Path) -> None:
    with local_client(tmp_path) as client:
        before = config_of(client)
        for body in (b"", b"enableTopicList=false"):
            answer = update(client, body)
            assert answer.code == codes.NO_PERMISSION
            assert "--allow-config-update" in (answer.remark or "")
        assert config_of(client) == before


def test_what_is_shown(client: RemotingClient) -> None:
    """What means something here, sorted, without paths, black lists and what belongs to a JVM."""
    answer = client.call(Request(codes.GET_NAMESRV_CONFIG))
    assert (answer.code, answer.ext, answer.remark) == (codes.SUCCESS, None, None)
    lines = answer.body.decode().split("\n")
    assert lines[-1] == ""
    assert lines[:-1] == sorted(lines[:-1])
    assert config_of(client) == {
        "deleteTopicWithBrokerRegistration": "false",
        "enableAllTopicList": "true",
        "enableTopicList": "true",
        "needWaitForService": "false",
        "notifyMinBrokerIdChanged": "false",
        "orderMessageEnable": "false",
        "returnOrderTopicConfigToBroker": "true",
        "supportActingMaster": "false",
        "waitSecondsForService": "45",
    }


def test_a_change_takes_effect_at_once(client: RemotingClient) -> None:
    assert client.call(Request(codes.GET_TOPICS_BY_CLUSTER, {"cluster": "c"})).code == codes.SUCCESS
    answer = update(client, b"enableTopicList=false\nenableAllTopicList=no")
    assert (answer.code, answer.remark, answer.ext, answer.body) == (codes.SUCCESS, None, None, b"")
    assert client.call(Request(codes.GET_TOPICS_BY_CLUSTER, {"cluster": "c"})).remark == "disable"
    assert client.call(Request(codes.GET_UNIT_TOPIC_LIST)).code == codes.SYSTEM_ERROR
    assert client.call(Request(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).remark == "disable"
    assert update(client, b"enableTopicList=true").code == codes.SUCCESS
    assert client.call(Request(codes.GET_TOPICS_BY_CLUSTER, {"cluster": "c"})).code == codes.SUCCESS
    assert config_of(client)["enableAllTopicList"] == "false"


@pytest.mark.parametrize("name", ["listenPort", "needWaitForService", "clusterTest", "serverWorkerThreads"])
def test_what_is_not_on_the_allow_list_is_refused_and_nothing_is_applied(client: RemotingClient, name: str) -> None:
    """RocketMQ answers OK here. It sets a field that no code reads, or one that does harm."""
    before = config_of(client)
    answer = update(client, f"enableTopicList=false\n{name}=1".encode())
    assert answer.code == codes.NO_PERMISSION
    assert name in (answer.remark or "")
    assert config_of(client) == before


def test_answers_are_those_of_the_table(tmp_path: Path) -> None:
    with local_client(tmp_path, allow_config_update=True, config_black_list=BLACK_LIST) as client:
        for body, code in BODIES.items():
            answer = update(client, body)
            assert answer.code == code, body
            if code == codes.NO_PERMISSION:
                assert answer.remark == "Can not update config in black list."
            if code == codes.SYSTEM_ERROR:
                assert answer.remark == "string2Properties error"


@pytest.mark.jvm
def test_a_stock_nameserver_answers_so_too() -> None:
    with (
        StockNameServer({"configBlackList": BLACK_LIST}) as server,
        RemotingClient(server.host, server.port) as client,
    ):
        for body, code in BODIES.items():
            answer = update(client, body)
            assert answer.code == code, body


def test_every_gateway_of_a_log_follows_and_so_does_the_next_one(tmp_path: Path) -> None:
    """The setting is in the lake: a gateway that is started later, with other options, has it too."""
    with LocalLake(tmp_path) as lake:
        with (
            lake.gateway(gateway_id="one", allow_config_update=True) as one,
            lake.gateway(gateway_id="two") as two,
            one.connect() as first,
            two.connect() as second,
        ):
            assert update(second, b"orderMessageEnable=true").code == codes.NO_PERMISSION
            assert update(first, b"orderMessageEnable=true").code == codes.SUCCESS
            assert config_of(first)["orderMessageEnable"] == "true"
            wait_until(lambda: config_of(second)["orderMessageEnable"] == "true", 20, "the other gateway", 0.005)
        with lake.gateway(gateway_id="three", order_message_enable=False) as three, three.connect() as third:
            assert config_of(third)["orderMessageEnable"] == "true"


def test_who_changed_what_is_on_record(tmp_path: Path) -> None:
    with (
        LocalLake(tmp_path) as lake,
        lake.gateway(gateway_id="gw", allow_config_update=True) as gateway,
        gateway.connect() as client,
    ):
        assert update(client, b"enableTopicList=false").code == codes.SUCCESS
        lake.fold.wait_for(lake.log.end().next_offset - 1)
        rows = DeltaTable(str(lake.lake_dir / "routeChangeTable")).to_pyarrow_table().to_pylist()
    command, changed = (row for row in sorted(rows, key=lambda row: row["seq"]) if row["command"] == "PUT_KV_CONFIG")
    actor = json.loads(command["actor"])
    assert actor["gateway"] == "gw"
    assert actor["peer"].startswith("127.0.0.1:")
    assert command["tableName"] is None
    assert changed["tableName"] == "kvConfigTable"
    assert json.loads(changed["key"]) == {"namespace": NAMESPACE, "key": "enableTopicList"}
    assert json.loads(changed["after"]) == {"value": "false"}


def test_kv_requests_neither_see_nor_touch_the_settings(client: RemotingClient) -> None:
    where = {"namespace": NAMESPACE, "key": "enableTopicList"}
    assert client.call(Request(codes.PUT_KV_CONFIG, {**where, "value": "false"})).code == codes.NO_PERMISSION
    assert update(client, b"enableTopicList=false").code == codes.SUCCESS
    assert client.call(Request(codes.GET_KV_CONFIG, where)).code == codes.QUERY_NOT_FOUND
    assert client.call(Request(codes.GET_KVLIST_BY_NAMESPACE, where)).code == codes.QUERY_NOT_FOUND
    assert client.call(Request(codes.DELETE_KV_CONFIG, where)).code == codes.NO_PERMISSION
    assert config_of(client)["enableTopicList"] == "false"


@pytest.mark.jvm
@pytest.mark.deep
def test_stock_mqadmin_reads_and_writes(tmp_path: Path) -> None:
    with (
        LocalLake(tmp_path) as lake,
        lake.gateway(allow_config_update=True) as gateway,
        gateway.connect() as client,
    ):
        written = mqadmin(["updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"], gateway.address)
        assert "update name server config success!" in written.stdout, written
        assert config_of(client)["orderMessageEnable"] == "true"
        refused = mqadmin(["updateNamesrvConfig", "-k", "kvConfigPath", "-v", "/tmp/x"], gateway.address)
        assert "CODE: 16" in refused.stdout + refused.stderr, refused
        shown = mqadmin(["getNamesrvConfig"], gateway.address)
        assert f"============{gateway.address}============" in shown.stdout, shown
        found = {
            line.split("=")[0].strip(): line.split("=")[1].strip()
            for line in shown.stdout.splitlines()[1:]
            if "=" in line
        }
        assert found["orderMessageEnable"] == "true"
        assert found["enableTopicList"] == "true"
