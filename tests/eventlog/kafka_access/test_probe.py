# SPDX-License-Identifier: Apache-2.0
"""Each way of not being let in has a sentence of its own, which says what to do."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.peers.java import free_port
from dev.support.certificates import Authority, Pair
from dev.support.kafka_listener import KafkaListener
from eventlog import open_log
from eventlog.kafka import client as kafka_client
from eventlog.kafka.access.probe import Refusal, check_access, refusal
from eventlog.kafka.access.settings import KafkaAccess, access_of
from eventlog.open import open_tail
from schemas.errors import SetupError, UnavailableError

PLAIN = {"PLAIN": b"gate\0gate\0right"}


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "a stranger")


@pytest.fixture
def listeners() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serving(pair: Pair, *, clients: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    if clients is not None:
        context.load_verify_locations(clients.path)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def access(protocol: str, /, **properties: object) -> KafkaAccess:
    """`__` in a name stands for a dot."""
    given = {name.replace("__", "."): str(value) for name, value in properties.items()}
    return access_of({"security.protocol": protocol, **given}, "k.properties")


def login(protocol: str, password: str = "right", /, **properties: object) -> KafkaAccess:
    return access(protocol, sasl__mechanism="PLAIN", sasl__username="gate", sasl__password=password, **properties)


def why(listener: KafkaListener | str, how: KafkaAccess) -> Refusal:
    address = listener if isinstance(listener, str) else listener.address
    found = refusal([address], how)
    assert found is not None
    assert found.what.startswith(address)
    assert "\n" not in str(found)
    return found


def test_correct_credentials_are_accepted(listeners: ExitStack, authority: Authority) -> None:
    tls = serving(authority.issue())
    client = authority.issue("client", file="let-in")
    strict = serving(authority.issue(), clients=authority)
    ca = {"ssl__truststore__location": authority.path}
    mutual = {**ca, "ssl__certificate__location": client.cert, "ssl__key__location": client.key}
    for listener, how in (
        (KafkaListener(), access("PLAINTEXT")),
        (KafkaListener(), KafkaAccess()),
        (KafkaListener(takes=PLAIN), login("SASL_PLAINTEXT")),
        (KafkaListener(tls), access("SSL", **ca)),
        (KafkaListener(strict), access("SSL", **mutual)),
        (KafkaListener(tls, PLAIN), login("SASL_SSL", **ca)),
    ):
        assert refusal([listeners.enter_context(listener).address], how) is None, how


def test_a_wrong_password(listeners: ExitStack, authority: Authority) -> None:
    kafka = listeners.enter_context(KafkaListener(serving(authority.issue()), PLAIN))
    found = why(kafka, login("SASL_SSL", "wrong", ssl__truststore__location=authority.path))
    assert found.is_final
    assert "rejects user gate with this password, by PLAIN (Authentication failed)" in found.what
    assert "k.properties" in found.advice
    assert "wrong" not in str(found)


def test_a_wrong_authority(listeners: ExitStack, authority: Authority, stranger: Authority) -> None:
    kafka = listeners.enter_context(KafkaListener(serving(authority.issue()), PLAIN))
    found = why(kafka, login("SASL_SSL", ssl__truststore__location=stranger.path))
    assert found.is_final
    assert "a certificate that is not signed by a CA of ssl.truststore" in found.what
    assert "ssl.truststore.location" in found.advice
    assert "not signed by a CA of this system" in why(kafka, login("SASL_SSL")).what


def test_a_certificate_for_another_host(listeners: ExitStack, authority: Authority) -> None:
    kafka = listeners.enter_context(KafkaListener(serving(authority.issue()), host="127.0.0.2"))
    ca = {"ssl__truststore__location": authority.path}
    assert "a certificate that is not for 127.0.0.2" in why(kafka, access("SSL", **ca)).what
    any_host = access("SSL", **ca, ssl__endpoint__identification__algorithm="")
    assert refusal([kafka.address], any_host) is None


def test_a_certificate_that_has_expired(listeners: ExitStack, authority: Authority) -> None:
    kafka = listeners.enter_context(KafkaListener(serving(authority.issue("old", days=-1))))
    assert "has an expired certificate" in why(kafka, access("SSL", ssl__truststore__location=authority.path)).what


def test_a_certificate_of_ours_is_missing_or_a_strangers(
    listeners: ExitStack, authority: Authority, stranger: Authority
) -> None:
    kafka = listeners.enter_context(KafkaListener(serving(authority.issue(), clients=authority)))
    ca = {"ssl__truststore__location": authority.path}
    assert "requires a client certificate" in why(kafka, access("SSL", **ca)).what
    pair = stranger.issue("client")
    mine = {"ssl__certificate__location": pair.cert, "ssl__key__location": pair.key}
    assert "rejects the client certificate" in why(kafka, access("SSL", **ca, **mine)).what


def test_plain_text_where_tls_is_spoken(listeners: ExitStack, authority: Authority) -> None:
    kafka = listeners.enter_context(KafkaListener(serving(authority.issue()), PLAIN))
    for how in (login("SASL_PLAINTEXT"), access("PLAINTEXT"), KafkaAccess()):
        found = why(kafka, how)
        assert found.is_final
        assert "requires TLS, but the connection is plain text" in found.what
        assert "security.protocol=SASL_SSL" in found.advice


def test_tls_where_plain_text_is_spoken(listeners: ExitStack, authority: Authority) -> None:
    kafka = listeners.enter_context(KafkaListener(takes=PLAIN))
    found = why(kafka, login("SASL_SSL", ssl__truststore__location=authority.path))
    assert found.is_final
    assert "uses plain text, but the connection uses TLS" in found.what
    assert "security.protocol=SASL_PLAINTEXT" in found.advice


def test_missing_sasl_settings_are_named(listeners: ExitStack, authority: Authority) -> None:
    plain = listeners.enter_context(KafkaListener(takes=PLAIN))
    found = why(plain, KafkaAccess())
    assert "requires SASL authentication" in found.what
    assert "security.protocol=SASL_PLAINTEXT in --event-log-config FILE" in found.advice
    tls = listeners.enter_context(KafkaListener(serving(authority.issue()), PLAIN))
    assert "=SASL_SSL in k.properties" in why(tls, access("SSL", ssl__truststore__location=authority.path)).advice


def test_superfluous_sasl_settings_are_named(listeners: ExitStack) -> None:
    found = why(listeners.enter_context(KafkaListener()), login("SASL_PLAINTEXT"))
    assert "does not use SASL" in found.what
    assert "security.protocol=PLAINTEXT" in found.advice


def test_another_mechanism(listeners: ExitStack) -> None:
    kafka = listeners.enter_context(KafkaListener(takes={**PLAIN, "OAUTHBEARER": b""}))
    how = access("SASL_PLAINTEXT", sasl__mechanism="SCRAM-SHA-512", sasl__username="gate", sasl__password="right")
    found = why(kafka, how)
    assert "does not support SCRAM-SHA-512" in found.what
    assert "PLAIN, OAUTHBEARER" in found.advice


def test_a_token_of_a_file(listeners: ExitStack, tmp_path: Path) -> None:
    kafka = listeners.enter_context(KafkaListener(takes={"OAUTHBEARER": b"n,,\x01auth=Bearer good\x01\x01"}))
    token = tmp_path / "token"
    how = access(
        "SASL_PLAINTEXT", sasl__mechanism="OAUTHBEARER", sasl__oauthbearer__token__endpoint__url=f"file://{token}"
    )
    with pytest.raises(SetupError, match="token cannot be read: No such file"):
        refusal([kafka.address], how)
    token.write_text("bad\n")
    assert "rejects the token" in why(kafka, how).what
    token.write_text("good\n")
    assert refusal([kafka.address], how) is None


def test_nobody_listens() -> None:
    found = why(f"127.0.0.1:{free_port()}", KafkaAccess())
    assert not found.is_final
    assert "refused the connection" in found.what


def test_a_broker_that_is_down_does_not_hide_another_ones_refusal(listeners: ExitStack) -> None:
    kafka = listeners.enter_context(KafkaListener(takes=PLAIN))
    down = f"127.0.0.1:{free_port()}"
    found = refusal([down, kafka.address], login("SASL_PLAINTEXT", "wrong"))
    assert found is not None
    assert found.is_final
    assert refusal([down, kafka.address], login("SASL_PLAINTEXT")) is None


def test_what_is_final_is_refused_and_what_is_not_is_waited_for(listeners: ExitStack) -> None:
    kafka = listeners.enter_context(KafkaListener(takes=PLAIN))
    with pytest.raises(SetupError, match=r"^127.* rejects user gate"):
        check_access([kafka.address], login("SASL_PLAINTEXT", "wrong"), waits=True)
    down = [f"127.0.0.1:{free_port()}"]
    check_access(down, login("SASL_PLAINTEXT"), waits=True)
    with pytest.raises(UnavailableError, match="Start Kafka"):
        check_access(down, login("SASL_PLAINTEXT"), waits=False)


def test_a_log_that_does_not_open(
    listeners: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence is the opening's, and nothing that is logged has the password."""
    caplog.set_level(logging.DEBUG)
    kafka = listeners.enter_context(KafkaListener(takes=PLAIN))
    file = tmp_path / "client.properties"
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=gate\nsasl.password="
    file.write_text(f"{text}unlikely\n")
    place = f"kafka://{kafka.address}/topic?config={file}"
    with pytest.raises(SetupError, match="^cannot open the event log kafka://.*rejects user gate with this"):
        open_log(place)
    with pytest.raises(UnavailableError, match="rejects user gate with this"):
        open_tail(place)  # the fold's, which was let in when it started
    file.write_text(f"{text}right\n")  # is let in, and then this listener answers nothing more
    monkeypatch.setattr(kafka_client, "CONNECT_TIMEOUT_S", 0.3)
    with pytest.raises(UnavailableError, match="cannot open"):
        open_log(place)
    assert "unlikely" not in caplog.text
    assert "right" not in caplog.text
    with pytest.raises(SetupError, match="requires SASL authentication"):
        open_log(f"kafka://{kafka.address}/topic")
