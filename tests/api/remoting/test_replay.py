# SPDX-License-Identifier: Apache-2.0
"""What an admin signs for a broker does nothing at a NameServer: the broker hears all of it, and RocketMQ's signature
covers neither the request code nor the names of the fields nor where a value ends.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.support.accounts import sign
from dev.support.certificates import Authority, Pair
from dev.support.command import told
from dev.support.local import LocalGateway
from dev.support.recorder import Recorder
from remoting.codec.frame import RemotingCommand
from schemas.codes import RequestCode
from schemas.events import AccessRefused, decode
from schemas.tls import ClientAuth, TlsMode
from security.roles import NEEDED, Role
from security.signature import ACCESS_KEY, SIGNATURE, is_signed_by, signed
from security.tls_config import TlsSettings
from security.tls_rotation import Tls
from tests.api.remoting.gateways import a_gateway
from tests.examples.parts import T1, A, register

ACCOUNTS = """
accounts:
  - {accessKey: brk, secretKey: of-broker, role: broker, brokerNames: [broker-a], certificate: 'dns:brk.example'}
  - {accessKey: ops, secretKey: of-ops-key, token: the-token-of-ops, role: admin, certificate: 'subject:CN=ops'}
  - {accessKey: near, secretKey: of-near-key, role: admin, whiteRemoteAddress: 127.0.0.7}
  - {accessKey: reader, secretKey: of-reader}
"""
OPS = "of-ops-key"

HEARD = {
    17: (
        {
            **{"topic": T1, "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6"},
            **{
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": "",
                "force": "false",
            },
        },
        b"",
    ),
    18: ({}, b'{"topicConfigList":[{"topicName":"orders","readQueueNums":4,"perm":6}]}'),
    25: ({}, b"brokerPermission=2\ndeleteTopicWithBrokerRegistration=true\n"),
    26: ({}, b""),
    28: ({}, b""),
    202: ({"topic": T1}, b""),
    215: ({"topic": T1}, b""),
    200: ({"topic": T1, "consumerGroup": "g", "queueId": "1"}, b'{"subscriptionGroup":"broker-a"}'),
    300: ({"topic": T1}, b""),
    309: ({"brokerName": "broker-a", "clientId": "c"}, b""),
    351: ({"topic": T1, "lo": "true"}, b""),
    105: ({"topic": T1}, b""),
    101: ({"namespace": "ORDER_TOPIC_CONFIG", "key": T1}, b""),
}
"""Code -> extFields and body of what an admin tells or asks a broker, and of reads."""

OF_ADMINS = sorted(code for code, role in NEEDED.items() if role is Role.ADMIN)

FIELDS: Mapping[int, tuple[str, ...]] = {
    RequestCode.PUT_KV_CONFIG: ("key", "namespace", "value"),
    RequestCode.DELETE_KV_CONFIG: ("key", "namespace"),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: ("brokerName",),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: ("brokerName",),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: ("topic",),
    RequestCode.UPDATE_NAMESRV_CONFIG: (),
    RequestCode.GET_NAMESRV_CONFIG: (),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@contextmanager
def encrypted(folder: Path, authority: Authority, **more: Any) -> Iterator[tuple[LocalGateway, RemotingClient, Pair]]:
    """A gateway with accounts and a route, a client that is connected through TLS, and the admin's certificate."""
    pair = authority.issue()
    tls = Tls(
        TlsSettings(TlsMode.PERMISSIVE, pair.cert, pair.key, client_ca=authority.path, client_auth=ClientAuth.OPTIONAL)
    )
    with (
        a_gateway(folder, text=ACCOUNTS, tls=tls, admin_plaintext=False, **more) as (gateway, _),
        RemotingClient("127.0.0.1", gateway.port, tls=authority.client()) as peer,
    ):
        assert peer.call(sign(register(A, "10.0.0.1:10911").request(), "brk", "of-broker")).code == codes.SUCCESS
        yield gateway, peer, authority.issue("ops")


def cuts(text: str, names: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Fields of these names. Their values, in the order of the names, are this text."""
    for places in itertools.combinations_with_replacement(range(len(text) + 1), max(0, len(names) - 1)):
        edges = (0, *places, len(text))
        yield {name: text[start:end] for name, start, end in zip(names, edges, edges[1:], strict=False)}


def replays(code: int, fields: dict[str, str], body: bytes) -> Iterator[Request]:
    """A heard request as every admin's request that it can be cut into."""
    heard = signed(fields, body, "ops", OPS)
    own = {ACCESS_KEY: heard[ACCESS_KEY], SIGNATURE: heard[SIGNATURE]}
    values = "".join(heard[name] for name in sorted(fields))
    for wanted in OF_ADMINS:
        yield Request(wanted, heard, body)
        yield Request(wanted, own, values.encode() + body)
        text = values + body.decode()
        if text and not FIELDS[wanted]:
            continue
        for found in itertools.islice(cuts(text, FIELDS[wanted]), 40):
            yield Request(wanted, {**own, **found})
        at = values.find(T1)
        if at >= 0 and len(FIELDS[wanted]) == 1:  # the name itself, what is around it in fields of other names
            name = FIELDS[wanted][0]
            around = {"a": values[:at], name: T1, "zz": values[at + len(T1) :]}
            yield Request(wanted, {**own, **{key: value for key, value in around.items() if value}}, body)


@pytest.mark.parametrize("code", HEARD)
def test_nothing_that_a_broker_hears_counts_at_a_nameserver(tmp_path: Path, authority: Authority, code: int) -> None:
    """Each is a valid signature, sent through TLS of the listener's own, with and without a certificate of its own."""
    its_own = authority.issue("brk-own", names=(x509.DNSName("brk.example"),))
    with encrypted(tmp_path, authority) as (gateway, peer, _):
        end, valid = gateway.log.end(), 0
        with RemotingClient("127.0.0.1", gateway.port, tls=authority.client(its_own)) as broker:
            for request in replays(code, *HEARD[code]):
                valid += 1
                assert is_signed_by(OPS, request.ext or {}, request.body)
                for who in (peer, broker):
                    answer = who.call(request)
                    assert answer.code == codes.NO_PERMISSION, (request, answer)
                    assert "its signature alone is not accepted" in (answer.remark or "")
        assert valid > 10
        assert peer.call(sign(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1}), "reader")).code == codes.SUCCESS
        written = [decode(record.payload) for record in gateway.log.read(end.next_offset)]
        assert {type(event) for event in written} <= {AccessRefused}


@pytest.mark.parametrize("code", [25, 202, 215])
def test_a_gateway_that_takes_the_signature_alone_is_found(tmp_path: Path, authority: Authority, code: int) -> None:
    """The planted defect: the gateway looks at the signature only, as it did. The replay then works."""
    with encrypted(tmp_path, authority, admin_signature=True) as (_, peer, _):
        taken = {one.code for one in replays(code, *HEARD[code]) if peer.call(one).code == codes.SUCCESS}
        assert taken & {RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.PUT_KV_CONFIG}


@pytest.mark.parametrize("code", HEARD)
def test_fewer_cuts_where_the_signature_alone_is_taken(tmp_path: Path, authority: Authority, code: int) -> None:
    """With --auth-admin-signature: a request that has fields of no name of its own is refused all the same."""
    with encrypted(tmp_path, authority, admin_signature=True) as (_, peer, _):
        for request in replays(code, *HEARD[code]):
            known = set(FIELDS[request.code])
            fields = set(request.ext or ()) - {ACCESS_KEY, SIGNATURE}
            is_whole = fields - {"clusterName"} == known
            body_fits = not request.body or request.code == RequestCode.UPDATE_NAMESRV_CONFIG
            answer = peer.call(request)
            if not (is_whole and body_fits):
                assert answer.code == codes.NO_PERMISSION, (request, answer)
                if is_signed_by(OPS, request.ext or {}, request.body):
                    assert "no peer of RocketMQ signs such a request" in (answer.remark or ""), answer


def test_the_admin_is_let_in_by_what_the_connection_shows(tmp_path: Path, authority: Authority) -> None:
    delete = Request(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": T1, "clusterName": "cluster-a"})
    put = Request(codes.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
    with encrypted(tmp_path, authority) as (gateway, peer, certificate):
        for request in (put, delete, Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1})):
            answer = peer.call(sign(request, "ops", OPS))
            assert (answer.code, "certificate" in (answer.remark or "")) == (codes.NO_PERMISSION, True)
        address = ("127.0.0.1", gateway.port)
        with RemotingClient(*address, tls=authority.client(certificate)) as ops:
            assert ops.call(sign(put, "ops", OPS)).code == codes.SUCCESS
            assert ops.call(put).code == codes.SUCCESS, "the certificate says it alone, too"
            refused = ops.call(sign(put, "ops", "another-key"))
            assert "does not match" in (refused.remark or "")
            assert ops.call(sign(put, "near", "of-near-key")).code == codes.NO_PERMISSION, "another account's"
        with RemotingClient(*address, tls=authority.client(), source="127.0.0.7") as near:
            assert near.call(sign(put, "near", "of-near-key")).code == codes.SUCCESS
            assert near.call(sign(put, "ops", OPS)).code == codes.NO_PERMISSION, "another account's"


def test_the_remark_and_the_metric_name_the_way_out(tmp_path: Path, authority: Authority) -> None:
    with encrypted(tmp_path, authority) as (gateway, peer, _):
        answer = peer.call(sign(Request(codes.GET_NAMESRV_CONFIG), "ops", OPS))
        assert "certificate or from its whiteRemoteAddress (--auth-admin-signature" in (answer.remark or "")
        labels = {"mode": "enforce", "reason": "signature-alone", "role": "admin"}
        assert gateway.parts.metrics.registry.get_sample_value("routelake_auth_refused_total", labels) == 1


BROKER_HEARD = Request(
    codes.BROKER_HEARTBEAT,
    {"clusterName": "cluster-a", "brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "brokerId": "0"},
)


@pytest.mark.parametrize(
    "more",
    [
        {"brokerAddr": "10.0.0.1:1091", "x": "1", "brokerId": "0"},
        {"brokerAddr": "10.0.0.1:10911", "brokerId": "0", "zz": ""},
    ],
)
def test_a_brokers_signature_takes_no_fields_of_other_names(tmp_path: Path, more: dict[str, str]) -> None:
    with a_gateway(tmp_path, text=ACCOUNTS) as (_, client):
        assert client.call(sign(register(A, "10.0.0.1:10911").request(), "brk", "of-broker")).code == codes.SUCCESS
        heard = sign(BROKER_HEARD, "brk", "of-broker")
        assert client.call(heard).code == codes.SUCCESS
        for code in (codes.BROKER_HEARTBEAT, codes.UNREGISTER_BROKER, codes.QUERY_DATA_VERSION, codes.REGISTER_BROKER):
            answer = client.call(sign(Request(code, {**(BROKER_HEARD.ext or {}), **more}), "brk", "of-broker"))
            assert answer.code == codes.NO_PERMISSION
            assert "signs such a request: it has a field" in (answer.remark or "")


def test_a_brokers_signature_counts_through_tls_alone_where_there_is_a_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    """Split in another place, a recorded heartbeat of 10.0.0.1:10911, brokerId 0, is one of 10.0.0.1:1091, brokerId 10."""
    with encrypted(tmp_path, authority, require_tls=True) as (gateway, peer, _), gateway.connect() as listener:
        heard = sign(BROKER_HEARD, "brk", "of-broker")
        assert peer.call(heard).code == codes.SUCCESS
        recut = Request(heard.code, {**(heard.ext or {}), "brokerAddr": "10.0.0.1:1091", "brokerId": "10"})
        for request in (heard, recut):
            answer = listener.call(request)
            assert (answer.code, "over TLS only" in (answer.remark or "")) == (codes.NO_PERMISSION, True)


@pytest.mark.parametrize(
    "command", [("topicStatus", "-t", T1), ("clusterList",), ("updateTopicPerm", "-t", T1, "-p", "4")]
)
@pytest.mark.parametrize("broker_key", [None, "of-the-brokers"])
def test_what_brokers_hear_of_admin(tmp_path: Path, command: tuple[str, ...], broker_key: str | None) -> None:
    """Not even one that calls itself NameServer hears the NameServers' key."""
    key = tmp_path / "ops.key"
    key.write_text(OPS)
    text = ACCOUNTS.replace("brokerNames: [broker-a], ", "").replace(
        "certificate: 'subject:CN=ops'", "whiteRemoteAddress: '*'"
    )
    keys = {} if broker_key is None else {"BROKER_ACCESS_KEY": "mq", "BROKER_SECRET_KEY": broker_key}
    variables = {f"ROUTELAKE_{name}": value for name, value in keys.items()}
    bodies = {202: b'{"offsetTable":{},"topicPutTps":0.0}', 28: b'{"table":{}}'}
    with Recorder() as recorder, a_gateway(tmp_path, text=text) as (gateway, client):
        rogue = recorder.scripted("rogue", lambda request: RemotingCommand(0, body=bodies.get(request.code, b"")))
        assert client.call(sign(register("NameServer", rogue).request(), "brk", "of-broker")).code == codes.SUCCESS
        extra = ("-c", "cluster-a") if command[0] == "updateTopicPerm" else ()
        ops = ("-n", gateway.address, "--access-key", "ops", "--secret-key", f"file:{key}")
        told("admin", *command, *extra, *ops, **variables)
        heard = recorder.take()
        assert heard
        for request in heard:
            fields = request.ext_fields
            if broker_key is None:
                assert not {ACCESS_KEY, SIGNATURE} & set(fields), request
            else:
                assert fields[ACCESS_KEY] == "mq"
                assert is_signed_by(broker_key, fields, request.body.encode())
            assert not is_signed_by(OPS, fields, request.body.encode())
            assert "ops" not in json.dumps(fields)
