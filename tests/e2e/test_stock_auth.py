# SPDX-License-Identifier: Apache-2.0
"""Stock programs against accounts: mqadmin with its tools.yml, brokers, a producer and a consumer with AclClientRPCHook."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import py4j.protocol
import pytest

from dev.peers.java import wait_until
from dev.peers.java_client import JavaClient, bodies
from dev.peers.java_tls import java_tls
from dev.peers.routelake import Routelake
from dev.support.certificates import Authority
from dev.support.rocketmq import StockBroker, mqadmin

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

ACCOUNTS = """
accounts:
  - {accessKey: new-broker, secretKey: of-new-broker, role: broker, brokerNames: [broker-new]}
  - {accessKey: client, secretKey: of-client, token: the-token-of-client}
  - {accessKey: ops, secretKey: of-ops, role: admin, token: the-token-of-ops, certificate: 'subject:CN=ops'}
"""
OLD_BROKER = "  - {accessKey: old-broker, role: broker, brokerNames: [broker-old], whiteRemoteAddress: 127.0.0.*}\n"

ITS = {"accessKey": "new-broker", "secretKey": "of-new-broker"}

WHO_ARE_YOU = "not authenticated: send AccessKey and Signature"
WRONG_KEY = "does not match: another secretKey"
NO_ADMIN = "client is a reader: this needs the role admin"
NO_TLS = "ops is an admin, and its signature was sent without TLS"
ALONE = "ops is an admin: its signature alone is not accepted"
UNKNOWN = "AccessKey 'nobody' is not known here"
ITS_LIMITS = ("RemotingTimeoutException", "RemotingConnectException", "RemotingSendRequestException")
REFUSALS = (WHO_ARE_YOU, WRONG_KEY, NO_ADMIN, NO_TLS, ALONE, UNKNOWN)

ROUTE = ["topicRoute", "-t", "broker-new"]
PUT = ["updateKvConfig", "-s", "ns", "-k", "k", "-v", "v"]
DONE = "create or update kv config to namespace success"
TLS = ("-Dtls.enable=true",)


def keys(user: str, secret: str | None = None) -> str:
    """A tools.yml."""
    return f"accessKey: {user}\nsecretKey: {secret or f'of-{user}'}\n"


@contextmanager
def a_gateway(folder: Path, mode: str) -> Iterator[Routelake]:
    """A gateway with accounts, which takes TLS, too, and keys of clients and brokers without. No fold runs."""
    accounts = folder / "acl.yml"
    accounts.write_text(ACCOUNTS)
    authority = Authority(folder / "certificates")
    pair = authority.issue()
    authority.issue("ops")
    options = (
        *("--auth", accounts, "--auth-mode", mode, "--no-auth-require-tls", "--tls-cert", pair.cert),
        *("--tls-key", pair.key, "--tls-client-ca", authority.path, "--tls-client-auth", "optional"),
    )
    running = Routelake(folder / "data", "gateway", tuple(map(str, options)))
    running.start(wait_ready_s=None)
    try:
        running.wait_listening()
        yield running
    finally:
        running.kill()


def shows_certificate(folder: Path) -> tuple[str, ...]:
    """Options with which mqadmin shows the certificate of `ops`."""
    certificates = folder / "certificates"
    return java_tls(folder / "tls.properties", client=(certificates / "ops.pem", certificates / "ops.key"))


def broker(address: str, name: str, release: str = "5.5.0", credentials: dict[str, str] | None = None) -> StockBroker:
    signs = {}
    if credentials is not None:
        signs = {
            "innerClientAuthenticationCredentials": json.dumps(credentials),
            # It puts that user into its own store at the start, whether it asks its clients who they are or not.
            "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider."
            "LocalAuthenticationMetadataProvider",
        }
    return StockBroker(address, name=name, release=release, properties=signs)


def get(gateway: Routelake, path: str) -> Any:
    url = f"http://127.0.0.1:{gateway.http_port}{path}"
    request = urllib.request.Request(url, headers={"Authorization": "Bearer the-token-of-ops"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def registered(gateway: Routelake) -> set[str]:
    return {one["brokerName"] for one in get(gateway, "/v1/brokers")["brokers"]}


def says(address: str, args: list[str], expected: str, *, release: str = "5.5.0", **how: Any) -> None:
    """Run mqadmin, and compare what it prints.

    It is run again where its own 5 s were not enough on a busy machine, and where two threads of a 4.x client connected
    at once: one closes the connection that the other has just made (NettyRemotingClient.createChannel).
    """
    for _ in range(3):
        done = mqadmin(args, address, release, **how)
        output = done.stdout + done.stderr
        if not any(limit in output for limit in ITS_LIMITS):
            break
    assert expected in output, f"{args}, {how}\n{output}"
    assert (expected in REFUSALS) == ("CODE: 16" in output), output
    for secret in ("of-new-broker", "of-client", "of-ops"):
        assert secret not in output


def all_say(*runs: Callable[[], None]) -> None:
    """Two JVMs at a time."""
    with ThreadPoolExecutor(2) as pool:
        for run in [pool.submit(run) for run in runs]:
            run.result()


def sends(producer: Any, topic: str, body: str, message: Callable[[str, str], Any]) -> bool:
    """Whether a message is taken; not, where the client has found no route."""
    try:
        return bool(producer.send(message(topic, body)).getSendStatus().name() == "SEND_OK")
    except py4j.protocol.Py4JJavaError as error:
        assert "No route info of this topic" in str(error), error
        return False


def test_a_stock_cluster_works_with_accounts(tmp_path: Path) -> None:
    """Mode enforce, from brokers to consumers. `test_mqadmin_in_every_mode` has every refusal."""
    with ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        gateway = stack.enter_context(a_gateway(tmp_path, "enforce"))
        address = gateway.namesrv_addr
        peers = (
            broker(address, "broker-new", credentials=ITS),
            broker(address, "broker-old", "4.9.7"),
            JavaClient("5.5.0"),
        )
        for peer in peers:
            stack.callback(peer.close)
        for started in [pool.submit(peer.start) for peer in peers]:
            started.result()
        wait_until(lambda: "broker-new" in registered(gateway), 60, "the broker that signs")

        run = partial(says, address)
        all_say(
            partial(run, ROUTE, WHO_ARE_YOU),
            partial(run, PUT, NO_ADMIN, tools=keys("client")),
            partial(run, PUT, DONE, tools=keys("ops"), java_options=shows_certificate(tmp_path)),
            partial(run, ROUTE, '"brokerName":"broker-new"', tools=keys("client"), release="4.9.7"),
        )
        assert get(gateway, "/v1/kv/ns/k")["value"] == "v"

        java = peers[2]
        assert isinstance(java, JavaClient)
        stranger = java.producer(address, "strangers", 1_000)
        assert not sends(stranger, "orders", "of nobody", java.message)
        hook = java.signing("client", "of-client")
        consumer = java.consumer(address, "readers", "orders", 1_000, hook)
        producer = java.producer(address, "writers", 1_000, hook)
        wait_until(lambda: sends(producer, "orders", "signed", java.message), 60, "a route for a producer that signs")
        wait_until(lambda: "signed" in bodies(consumer.poll(500)), 60, "a message for a consumer that signs")

        assert registered(gateway) == {"broker-new"}
        (tmp_path / "acl.yml").write_text(ACCOUNTS + OLD_BROKER)
        wait_until(lambda: "broker-old" in registered(gateway), 60, "the broker that cannot sign, by its address")
        run(ROUTE, '"brokerName":"broker-new"', release="4.9.7")
        assert registered(gateway) == {"broker-new", "broker-old"}
        for secret in ("of-new-broker", "of-client", "of-ops"):
            assert secret not in gateway.log_path.read_text()


@pytest.mark.deep
@pytest.mark.parametrize("release", ["5.5.0", "4.9.7"])
@pytest.mark.parametrize("mode", ["audit", "enforce-writes", "enforce"])
def test_mqadmin_in_every_mode(tmp_path: Path, mode: str, release: str) -> None:
    with (
        a_gateway(tmp_path, mode) as gateway,
        broker(gateway.namesrv_addr, "broker-new", credentials=ITS),
        broker(gateway.namesrv_addr, "broker-thief", credentials=ITS),
    ):
        said = gateway.log_path.read_text
        wait_until(lambda: "broker-new" in registered(gateway), 60, "the broker that signs")
        wait_until(lambda: "not to brokerName 'broker-thief'" in said(), 60, "a name that is another's")
        if mode == "audit":  # the line is written before the registration is shown
            wait_until(lambda: "broker-thief" in registered(gateway), 60, "a registration that audit mode accepts")
        else:
            assert "broker-thief" not in registered(gateway)
        run = partial(says, gateway.namesrv_addr, release=release)
        route = '"brokerName":"broker-new"'
        reads, writes = mode != "enforce", mode == "audit"
        for how, may_read, may_write, objection_to_read, objection_to_write in (
            ({}, reads, writes, WHO_ARE_YOU, WHO_ARE_YOU),
            ({"tools": keys("client", "wrong!")}, reads, writes, WRONG_KEY, WRONG_KEY),
            ({"tools": keys("nobody")}, reads, writes, UNKNOWN, UNKNOWN),
            ({"tools": keys("client")}, True, writes, "", NO_ADMIN),
            ({"tools": keys("ops")}, reads, writes, NO_TLS, NO_TLS),
            ({"tools": keys("ops"), "java_options": TLS}, reads, writes, ALONE, ALONE),
            ({"tools": keys("ops"), "java_options": shows_certificate(tmp_path)}, True, True, "", ""),
            ({"java_options": shows_certificate(tmp_path)}, True, True, "", ""),
            ({"tools": keys("ops", "wrong!"), "java_options": TLS}, reads, writes, WRONG_KEY, WRONG_KEY),
        ):
            all_say(
                partial(run, ROUTE, route if may_read else objection_to_read, **how),
                partial(run, PUT, DONE if may_write else objection_to_write, **how),
            )
