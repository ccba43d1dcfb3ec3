# SPDX-License-Identifier: Apache-2.0
"""`routelake import-kv`: the file of a stock NameServer comes over whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli import main as cli
from cli.kv_import import read_kv_config
from schemas.errors import SetupError
from schemas.limits import MAX_KV_BYTES, MAX_KV_VALUE_BYTES
from tests.model import codes
from tests.model.client import RemotingClient
from tests.model.wire import Request
from tests.support.local import LocalLake
from tests.support.rocketmq import StockNameServer

ORDER = "ORDER_TOPIC_CONFIG"


def run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr(sys, "argv", ["routelake", "import-kv", *args])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def test_the_file_of_rocketmqs_own_test(tmp_path: Path) -> None:
    """KVConfigSerializeWrapperTest.testEncodeAndDecode."""
    table = {"broker-name": "default-broker", "topic-name": "default-topic", "cid": "default-consumer-name"}
    file = tmp_path / "kvConfig.json"
    file.write_text(json.dumps({"configTable": {ORDER: table}}))
    assert read_kv_config(file) == {ORDER: table}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"configTable":[]}', '{"configTable":{"a":1}}', "\xff"])
def test_what_is_no_such_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(SetupError, match=r"is no kvConfig\.json"):
        read_kv_config(file)


def test_a_missing_file_is_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, str(tmp_path / "none")) == 2
    assert run(monkeypatch, str(tmp_path / "none"), "-n", "nowhere") == 2


def test_nobody_there_is_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_text('{"configTable":{"n":{"k":"v"}}}')
    assert run(monkeypatch, str(file), "-n", "127.0.0.1:1") == 1


@pytest.mark.jvm
def test_what_a_stock_nameserver_wrote_is_answered_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {(ORDER, "orders"): "broker-a:8;broker-b:8", (ORDER, "ä 主"): "1", ("other", "k"): ""}
    with StockNameServer() as server:
        with RemotingClient(server.host, server.port) as client:
            for (namespace, key), value in entries.items():
                put = {"namespace": namespace, "key": key, "value": value}
                assert client.call(Request(codes.PUT_KV_CONFIG, put)).code == codes.SUCCESS
        (file,) = server.home.rglob("kvConfig.json")
        kept = tmp_path / "kvConfig.json"
        kept.write_bytes(file.read_bytes())
    with LocalLake(tmp_path) as lake, lake.gateway() as gateway:
        assert run(monkeypatch, str(kept), "-n", gateway.address) == 0
        with gateway.connect() as client:
            for (namespace, key), value in entries.items():
                answer = client.call(Request(codes.GET_KV_CONFIG, {"namespace": namespace, "key": key}))
                assert answer.ext == {"value": value}


@pytest.mark.parametrize(
    ("tables", "limit"),
    [
        ({"n": {"k": "\N{SNOWMAN}" * 100_000}}, MAX_KV_VALUE_BYTES),
        ({"n": {f"k{number}": "v" * 250_000 for number in range(68)}}, MAX_KV_BYTES),
    ],
)
def test_what_would_not_go_in_whole_is_refused_before_anything_is_put(
    tmp_path: Path, tables: dict[str, dict[str, str]], limit: int
) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_text(json.dumps({"configTable": tables}))
    with pytest.raises(SetupError, match=f"{limit}. Nothing was put"):
        read_kv_config(file)
