# SPDX-License-Identifier: Apache-2.0
"""Kafka's client properties as people have them, and what is said of those that mean nothing here."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from dev.support.certificates import Authority
from eventlog.kafka.access.keys import KNOWN, objection
from eventlog.kafka.access.options import client_options
from eventlog.kafka.access.settings import KafkaAccess, Login, Protocol, access_of, parse, read_access
from eventlog.kafka.access.tls import client_context
from eventlog.urls import KafkaPlace, parse_url, with_config
from schemas.errors import SetupError

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


def of(text: str, folder: Path) -> KafkaAccess:
    file = folder / "client.properties"
    file.write_text(text, encoding="latin-1")
    return read_access(str(file))


def refused(**properties: str) -> str:
    with pytest.raises(SetupError) as error:
        access_of({name.replace("__", "."): value for name, value in properties.items()}, "f")
    assert str(error.value).startswith("f: ")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_no_file_is_an_open_kafka() -> None:
    assert read_access("") == KafkaAccess()
    assert client_options(KafkaAccess()) == {}


def test_sasl_ssl_with_scram(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cr=t \n")
    found = of(
        f"""# as an operator has it
security.protocol=SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config={SCRAM} required \\
    username="gate" \\
    password="file:{tmp_path}/password";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
client.id=east
""",
        tmp_path,
    )
    assert (found.protocol, found.mechanism, found.username) == (Protocol.SASL_SSL, "SCRAM-SHA-512", "gate")
    assert (str(found.password), found.tls.ca, found.client_id) == ("s3cr=t ", Path("/etc/kafka/ca.pem"), "east")
    assert "s3cr" not in repr(found)
    assert "s3cr" not in str({"sasl_plain_password": found.password})


def test_a_password_is_read_again_each_time(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    text = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanisms=PLAIN\nsasl.username=a\nsasl.password=file:{secret}\n"
    for password in ("one", "two"):
        secret.write_text(password)
        assert client_options(of(text, tmp_path))["sasl_plain_password"] == password


def test_references_to_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "of-the-variable")
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a"}
    assert str(access_of({**given, "sasl.password": "env:KAFKA_PASSWORD"}, "f").password) == "of-the-variable"
    with pytest.raises(SetupError, match="the environment variable NONE is not set"):
        access_of({**given, "sasl.password": "env:NONE"}, "f")
    with pytest.raises(SetupError, match="does not begin with ROUTELAKE_"):  # the fold would not have it
        access_of({**given, "sasl.password": "env:ROUTELAKE_KAFKA_PASSWORD"}, "f")


def test_jaas() -> None:
    text = f'{SCRAM}  required\n username="a b"  password="x\\"y;\\\\z=1" ;  '
    assert parse(text, "f") == Login("ScramLoginModule", {"username": "a b", "password": 'x"y;\\z=1'})
    assert parse("PlainLoginModule REQUIRED username=a;", "f") == Login("PlainLoginModule", {"username": "a"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not have the form"),
        ("PlainLoginModule", "does not have the form"),
        ('PlainLoginModule required username="a" password="hidden"', "cannot be read after password"),
        ('PlainLoginModule required username="a" password="hidden;', "cannot be read after username"),
        ("A required; B required;", "more than one login module"),
    ],
)
def test_jaas_of_another_form(text: str, said: str) -> None:
    with pytest.raises(SetupError, match=said) as error:
        parse(text, "f: sasl.jaas.config")
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("bootstrap.servers", "stands in --event-log"),
        ("acks", "set by routelake itself"),
        ("ssl.truststore.password", "JKS"),
        ("sasl.kerberos.service.name", "Kerberos"),
        ("config.providers.file.class", "file:PATH or env:NAME"),
        ("ssl.engine.factory.class", "Java's TLS"),
        ("enable.ssl.certificate.verification", "cannot be turned off"),
        ("security.protocl", "Did you mean security.protocol?"),
        ("interceptor.classes", "has no effect here"),
    ],
)
def test_keys_that_mean_nothing_here(key: str, said: str) -> None:
    assert said in refused(**{key: "x"})


def test_accepted_keys_are_not_refused() -> None:
    assert not [key for key in KNOWN if objection(key)]


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security__protocol": "TLS"}, "'TLS' is not one of PLAINTEXT"),
        ({"sasl__mechanism": "PLAIN"}, "has no effect with security.protocol=PLAINTEXT"),
        ({"security__protocol": "SASL_PLAINTEXT", "ssl__ca__location": "/ca"}, "has no effect with"),
        ({"security__protocol": "SASL_PLAINTEXT"}, "sasl.mechanism: is missing"),
        ({"security__protocol": "SASL_SSL", "sasl__mechanism": "GSSAPI"}, "is not supported"),
        ({"security__protocol": "SASL_SSL", "sasl__mechanism": "PLAIN"}, "must contain username and password"),
        (
            {
                "security__protocol": "SASL_SSL",
                "sasl__mechanism": "PLAIN",
                "sasl__jaas__config": f"{SCRAM} required username=a password=b;",
            },
            "ScramLoginModule does not fit sasl.mechanism=PLAIN",
        ),
        (
            {
                "security__protocol": "SASL_SSL",
                "sasl__mechanism": "SCRAM-SHA-512",
                "sasl__jaas__config": f"{SCRAM} required username=a password=b tokenauth=true;",
            },
            "its option tokenauth has no effect",
        ),
        ({"security__protocol": "SASL_SSL", "sasl__mechanism": "OAUTHBEARER"}, "token.endpoint.url: is missing"),
        (
            {
                "security__protocol": "SASL_SSL",
                "sasl__mechanism": "OAUTHBEARER",
                ENDPOINT: "http://idp.example.com/token",
            },
            "must begin with https://",
        ),
        ({"security__protocol": "SSL", "ssl__truststore__type": "JKS"}, "keytool -list -rfc"),
        ({"security__protocol": "SSL", "ssl__keystore__type": "PKCS12"}, "openssl pkcs12"),
        ({"security__protocol": "SSL", "ssl__key__location": "/key"}, "A key needs its certificate"),
        ({"security__protocol": "SSL", "ssl__endpoint__identification__algorithm": "ldaps"}, "must be https, or empty"),
    ],
)
def test_contradictory_settings_are_refused(properties: dict[str, str], said: str) -> None:
    assert said in refused(**properties)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"--event-log-config .*none: No such file or directory. Name a file"):
        read_access(str(tmp_path / "none"))


def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("client", password="opens")
    one_file = tmp_path / "both.pem"
    one_file.write_bytes(pair.key.read_bytes() + pair.cert.read_bytes())
    jks = tmp_path / "store.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed")

    def context(**properties: object) -> None:
        given = {name.replace("__", "."): str(value) for name, value in properties.items()}
        client_context(access_of({"security.protocol": "SSL", **given}, "f").tls, "f")

    context(ssl__truststore__location=authority.path, ssl__keystore__location=one_file, ssl__key__password="opens")
    inline = {
        "ssl__truststore__certificates": f"Alias: é\n{authority.path.read_text()}",
        "ssl__keystore__certificate__chain": pair.cert.read_text(),
        "ssl__keystore__key": f"file:{pair.key}",
    }
    context(**inline, ssl__key__password="opens", ssl__enabled__protocols="TLSv1.2, TLSv1.3")
    assert not list(scratch.iterdir())
    for properties, said in (
        ({"ssl__truststore__location": jks}, "keytool -list -rfc"),
        ({"ssl__truststore__location": tmp_path / "none"}, "cannot be read: No such file"),
        ({"ssl__keystore__location": one_file}, "the key is encrypted. Give ssl.key.password"),
        ({"ssl__keystore__location": one_file, "ssl__key__password": "no"}, "does not open the key"),
        ({"ssl__keystore__location": authority.path}, "no certificate with its key"),
        ({"ssl__certificate__location": authority.path, "ssl__key__location": pair.key}, "the key is encrypted"),
        ({"ssl__enabled__protocols": "SSLv3"}, "SSLv3 is not one of"),
    ):
        with pytest.raises(SetupError, match=said):
            context(**properties)


def test_the_url_contains_the_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "a file?.properties"
    url = with_config("kafka://a:1,b:2/t", file)
    assert parse_url(url) == KafkaPlace(["a:1", "b:2"], "t", str(file))
    assert with_config(url, file) == url  # said again to a child, which has the variable, too
    assert with_config(url, None) == url
    with pytest.raises(SetupError, match="Remove one of them"):
        with_config(url, tmp_path / "other")
    with pytest.raises(SetupError, match="for an event log in Kafka"):
        with_config("", file)
