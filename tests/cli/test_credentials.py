# SPDX-License-Identifier: Apache-2.0
"""Our own clients sign: options, variables, files, mqadmin's tools.yml, broker.conf."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cli.broker import inner_credentials
from cli.client_options import credentials
from clients.broker.agent import BrokerAgent
from clients.broker.config import BrokerConfig
from clients.broker.fleet import Fleet, FleetSettings
from clients.credentials import Credentials
from dev.support.accounts import accounts_file, policy, sign
from dev.support.command import told
from dev.support.local import LocalGateway, LocalLake
from schemas.errors import SetupError
from security.policy import AuthMode
from tests.examples.parts import T1, register


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[LocalGateway]:
    with (
        LocalLake(tmp_path, folds=False) as lake,
        lake.gateway(policy=policy(AuthMode.ENFORCE), accounts=accounts_file(tmp_path)) as gateway,
    ):
        yield gateway


def told_of(gateway: LocalGateway, *words: str, **variables: str) -> tuple[int, str]:
    return told(*words, "-n", gateway.address, **variables)


def test_keys_come_from_options_variables_or_tools_yml(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("of-a-file\n")
    assert credentials("", "", {}) is None
    assert credentials("a", "plain", {"ROUTELAKE_SECRET_KEY": "plain"}) == Credentials("a", "plain")
    assert credentials("a", f"file:{file}", {}) == Credentials("a", "of-a-file")
    assert credentials("a", "env:B", {"B": "of-b"}) == Credentials("a", "of-b")
    home = tmp_path / "rocketmq"
    assert credentials("", "", {"ROCKETMQ_HOME": str(home)}) is None
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text("accessKey: RocketMQ\nsecretKey: 12345678\n")
    found = credentials("", "", {"ROCKETMQ_HOME": str(home)})
    assert found == Credentials("RocketMQ", "12345678")
    assert "1234" not in repr(found)
    (home / "conf" / "tools.yml").write_text("accessKey:\nsecretKey:\n")
    assert credentials("", "", {"ROCKETMQ_HOME": str(home)}) is None
    (home / "conf" / "tools.yml").write_text("accessKey: [")
    for words, environ, says in (
        (("a", ""), {}, "--access-key and --secret-key must be set together"),
        (("", "b"), {}, "--access-key and --secret-key must be set together"),
        (("a", "plain"), {}, "`ps` shows"),
        (("a", "env:NO"), {}, "the environment variable NO is not set"),
        (("a", f"file:{tmp_path}/no"), {}, "cannot be read"),
        (("", ""), {"ROCKETMQ_HOME": str(home)}, "tools.yml cannot be read: line 1"),
    ):
        with pytest.raises(SetupError, match=says):
            credentials(*words, environ)
    file.write_text(" ")
    with pytest.raises(SetupError, match="is empty"):
        credentials("a", f"file:{file}", {})
    assert inner_credentials('{"accessKey":"a","secretKey":"b"}') == Credentials("a", "b")
    for text in ("", "{}", '{"accessKey":1}', "[]"):
        with pytest.raises(SetupError, match="innerClientAuthenticationCredentials"):
            inner_credentials(text)


def test_admin_route_and_import(
    gateway: LocalGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    run = partial(told_of, gateway)
    registered = gateway.connect()
    assert registered.call(sign(register("broker-a", "10.0.0.1:10911").request(), "broker")).code == 0
    request.addfinalizer(registered.close)  # it is what keeps the broker there
    kv = tmp_path / "kvConfig.json"
    kv.write_text(json.dumps({"configTable": {"ns": {"k": "v"}}}))
    for words, needed in (
        (("admin", "topicRoute", "-t", T1), "reader"),
        (("route", T1), "reader"),
        (("import-kv", str(kv)), "admin"),
        (("admin", "updateKvConfig", "-s", "ns", "-k", "k2", "-v", "v2"), "admin"),
    ):
        code, said = run(*words)
        assert code == 1, said
        assert "not authenticated" in said
        code, said = run(*words, "--access-key", needed, "--secret-key", "env:KEY", KEY="wrong!")
        assert code == 1
        assert "does not match" in said
        assert "Traceback" not in said
        assert sum("does not match" in line for line in said.splitlines() if "[warning" not in line) == 1, said
        code, said = run(*words, "--access-key", needed, "--secret-key", "env:KEY", KEY=f"of-{needed}")
        assert code == 0, said
    assert run("admin", "topicRoute", "-t", T1, "--access-key", "reader")[0] == 2
    assert gateway.gateway.live_view.view.kv_get("ns", "k") == "v"


def test_broker_and_fleet(gateway: LocalGateway) -> None:
    keys = Credentials("broker", "of-broker")

    async def go(credentials: Credentials | None) -> list[str | None]:
        config = BrokerConfig(broker_name="ours", broker_ip1="127.0.0.1", listen_port=0)
        agent = BrokerAgent(config, [gateway.address], credentials=credentials)
        await agent.start()
        results = [None if result.error is None else str(result.error) for result in agent.registrar.last_results]
        await agent.stop()
        return results

    import asyncio

    (refused,) = asyncio.run(go(None))
    assert "not authenticated" in (refused or "")
    assert asyncio.run(go(keys)) == [None]

    async def fleet(credentials: Credentials | None) -> int:
        settings = FleetSettings(namesrvs=[gateway.address], brokers=2, topics=1, credentials=credentials)
        made = Fleet(settings)
        await made.register()
        await made.close()
        return made.registered

    assert asyncio.run(fleet(None)) == 0
    assert asyncio.run(fleet(keys)) == 2
