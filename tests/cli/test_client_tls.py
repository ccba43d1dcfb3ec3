# SPDX-License-Identifier: Apache-2.0
"""Our own commands encrypt: who asks, whom they believe, what they show, over remoting and https."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.client_options import ClientOptions
from clients.broker.agent import BrokerAgent
from clients.broker.config import BrokerConfig
from clients.broker.fleet import Fleet, FleetSettings
from clients.tls import ClientTls
from dev.support.certificates import Authority, Pair
from dev.support.command import told
from dev.support.local import LocalGateway, LocalLake
from remoting.client import RemotingClient
from remoting.codec.frame import RemotingCommand
from schemas.codes import RequestCode
from schemas.errors import SetupError
from schemas.tls import ClientAuth, TlsMode
from security.tls_config import TlsSettings
from security.tls_rotation import Tls


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Pair:
    return authority.issue("client", password="word")


@pytest.fixture(scope="module")
def gateway(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    """A gateway that accepts neither plain connections nor clients without a certificate."""
    pair = authority.issue()
    settings = TlsSettings(
        TlsMode.ENFORCING, pair.cert, pair.key, client_ca=authority.path, client_auth=ClientAuth.REQUIRE
    )
    with (
        LocalLake(tmp_path_factory.mktemp("lake"), folds=False) as lake,
        lake.gateway(tls=Tls(settings), http_port=0) as gateway,
    ):
        yield gateway


@pytest.fixture
def options(authority: Authority, own: Pair, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("KEY_WORD", "word")
    return [
        *("--tls-ca", str(authority.path), "--tls-cert", str(own.cert), "--tls-key", str(own.key)),
        *("--tls-key-password", "env:KEY_WORD"),
    ]


def https(gateway: LocalGateway) -> str:
    return f"https://127.0.0.1:{gateway.http_port}"


def tls(authority: Authority, own: Pair) -> ClientTls:
    return ClientTls(str(authority.path), str(own.cert), str(own.key), "word")


def test_admin_import_and_route(gateway: LocalGateway, options: list[str], tmp_path: Path) -> None:
    kv = tmp_path / "kvConfig.json"
    kv.write_text(json.dumps({"configTable": {"ns": {"k": "v"}}}))
    assert told("import-kv", str(kv), "-n", gateway.address, *options)[0] == 0
    code, said = told("admin", "updateKvConfig", "-s", "ns", "-k", "l", "-v", "w", "-n", gateway.address, *options)
    assert code == 0, said
    assert [gateway.gateway.live_view.view.kv_get("ns", key) for key in "kl"] == ["v", "w"]
    for address in (gateway.address, https(gateway)):
        code, said = told("route", "nowhere", "-n", address, *options)
        assert (code, "nowhere" in said) == (1, True), said


def test_variables(gateway: LocalGateway, options: list[str]) -> None:
    """Names of their own: those of a server in the same shell are not meant."""
    pairs = zip(options[::2], options[1::2], strict=True)
    variables = {f"ROUTELAKE_CLIENT_{option[2:].upper().replace('-', '_')}": value for option, value in pairs}
    code, said = told("admin", "clusterList", "-n", gateway.address, ROUTELAKE_TLS_CERT="/nonexistent", **variables)
    assert code == 0, said


@pytest.mark.parametrize(
    ("leave", "add", "words"),
    [
        (("--tls-ca",), (), "TLS: the peer's certificate was not accepted"),
        (("--tls-ca",), ("--tls-insecure",), ""),
        (("--tls-cert", "--tls-key", "--tls-key-password"), (), "certificate required"),
        (("--tls-ca", "--tls-cert", "--tls-key", "--tls-key-password"), (), "closed by the peer"),
    ],
)
def test_a_client_without_the_demanded_certificate_is_refused(
    gateway: LocalGateway, options: list[str], leave: tuple[str, ...], add: tuple[str, ...], words: str
) -> None:
    pairs = zip(options[::2], options[1::2], strict=True)
    given = [part for option, value in pairs if option not in leave for part in (option, value)]
    code, said = told("admin", "clusterList", "-n", gateway.address, *given, *add)
    assert code == (1 if words else 0), said
    assert words in said
    assert "Traceback" not in said


def test_a_certificate_for_another_host(gateway: LocalGateway, options: list[str]) -> None:
    """RocketMQ's clients would take it."""
    address = f"127.0.0.2:{gateway.port}"
    if sys.platform != "linux":
        pytest.skip("127.0.0.2 is this machine on Linux")
    code, said = told("admin", "clusterList", "-n", address, *options)
    assert code == 1
    assert "127.0.0.2" in said


def test_a_broker_and_a_fleet(gateway: LocalGateway, authority: Authority, own: Pair) -> None:
    """Over either protocol: without a certificate no broker is registered."""

    async def broker(tls: ClientTls | None) -> list[str]:
        config = BrokerConfig(broker_name="ours", broker_ip1="127.0.0.1", listen_port=0)
        agent = BrokerAgent(config, [gateway.address, https(gateway)], tls=tls)
        await agent.start()
        results = [str(result.error or "") for result in agent.registrar.last_results]
        await agent.stop()
        return results

    async def asked(tls: ClientTls) -> bytes:
        """As `admin --tls` asks a broker."""
        agent = BrokerAgent(BrokerConfig(broker_name="asked", broker_ip1="127.0.0.1", listen_port=0), [], tls=tls)
        await agent.start()
        try:
            async with RemotingClient(tls=tls.context()) as client:
                request = RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)
                return (await client.call(agent.config.broker_addr, request)).body
        finally:
            await agent.stop()

    async def fleet(tls: ClientTls | None) -> int:
        found = Fleet(FleetSettings(namesrvs=[gateway.address], brokers=2, topics=2, tls=tls))
        await found.register()
        await found.close()
        return found.registered

    assert asyncio.run(broker(tls(authority, own))) == ["", ""]
    assert all("certificate" in said for said in asyncio.run(broker(ClientTls(str(authority.path)))))
    assert b"TBW102" in asyncio.run(asked(tls(authority, own)))
    assert asyncio.run(fleet(tls(authority, own))) == 2
    assert asyncio.run(fleet(ClientTls(str(authority.path)))) == 0


def test_options_become_client_tls_settings(tmp_path: Path, authority: Authority, own: Pair) -> None:
    def said(**values: Any) -> ClientTls | None:
        return ClientOptions(**values).encryption()

    assert said() is None
    assert said(tls=True) == ClientTls()
    assert said(tls_insecure=True) == ClientTls(insecure=True)
    assert said(tls_ca="ca.pem") == ClientTls("ca.pem")
    (tmp_path / "word").write_text("word\n")
    found = said(tls_cert=str(own.cert), tls_key=str(own.key), tls_key_password=f"file:{tmp_path / 'word'}")
    assert found == ClientTls("", str(own.cert), str(own.key), "word")
    assert "word" not in repr(found).replace(str(tmp_path), "")
    assert found is not None and found.context().get_ca_certs is not None
    other = authority.issue("other")
    for wrong, words in (
        ({"tls_key": str(own.key)}, "Set --tls-cert, too"),
        ({"tls_ca": "/nonexistent"}, "--tls-ca /nonexistent"),
        ({"tls_ca": str(own.key)}, "holds no certificates in PEM"),
        ({"tls_cert": str(own.cert), "tls_key": str(other.key)}, "key values mismatch"),
        ({"tls_cert": str(own.cert), "tls_key": str(own.key)}, "--tls-key-password"),
        ({"tls_cert": "/nonexistent"}, "No such file"),
        ({"tls_cert": str(own.cert), "tls_key_password": "word"}, "must be file:PATH or env:NAME"),
    ):
        with pytest.raises(SetupError, match=re.escape(words)):
            made = said(**wrong)
            assert made is not None
            made.context()
