# SPDX-License-Identifier: Apache-2.0
"""Kafka client properties: identity, login and TLS files of this client. This module does not connect.

``sasl.jaas.config`` is one login module and its options, in the form of Java's JAAS:

    org.apache.kafka.common.security.scram.ScramLoginModule required username="gateway" password="file:/run/secret";

Source (Kafka 4.3): org.apache.kafka.common.security.JaasConfig, which reads words as java.io.StreamTokenizer does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, NoReturn
from urllib.parse import urlsplit

from eventlog.kafka.access.keys import objection
from runtime.secrets import is_secret, resolve
from schemas.errors import SetupError
from schemas.properties import PropertiesError, parse_file


class AccessError(SetupError):
    """Kafka refuses access, or the file of client properties cannot be used.

    At a start the error is final. Later it can be temporary, for example while a password changes at both ends. A
    process that had access before tries again, with the properties that the file has then.
    """


_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_OPTION: Final = re.compile(rf"\s+([A-Za-z][\w.-]*)\s*=\s*({_QUOTED}|[^\s;\"]+)")
_BEGIN: Final = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)(?=[\s;])", re.IGNORECASE)
_END: Final = re.compile(r"\s*;\s*")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}

FORM: Final = 'MODULE required name="value" ...;'


class Login(NamedTuple):
    """A login module and its options. ``module`` is the name of the class without its package."""

    module: str
    options: Mapping[str, str]


def parse(text: str, where: str) -> Login:
    """Parse the value of ``sasl.jaas.config``.

    Args:
        text: The value.
        where: File and key, for messages. Messages never show the value, because it holds a password.

    Raises:
        AccessError: The value has another form, or more than one module.
    """
    begin = _BEGIN.match(text)
    if begin is None:
        raise AccessError(f"{where} does not have the form {FORM}")
    options, at = {}, begin.end()
    while (option := _OPTION.match(text, at)) is not None:
        options[option[1]] = _bare(option[2])
        at = option.end()
    end = _END.match(text, at)
    if end is None:
        after = f"after {list(options)[-1]}" if options else "after its module"
        raise AccessError(f"{where} cannot be read {after}: it does not have the form {FORM}")
    if end.end() != len(text):
        raise AccessError(f"{where} names more than one login module. Keep only one.")
    return Login(begin[1].rpartition(".")[2], options)


def _bare(word: str) -> str:
    if not word.startswith('"'):
        return word
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), word[1:-1])


_LOGINS: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
_MECHANISMS: Final = tuple(mechanism for mechanisms in _LOGINS.values() for mechanism in mechanisms)
_CREDENTIALS: Final = "sasl.oauthbearer.client.credentials.client."
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_HERE: Final = ("127.0.0.1", "localhost", "::1")


class Protocol(StrEnum):
    """Values of ``security.protocol``."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def encrypts(self) -> bool:
        """Return True if the protocol uses TLS."""
        return self in (Protocol.SSL, Protocol.SASL_SSL)

    @property
    def authenticates(self) -> bool:
        """Return True if the protocol uses SASL."""
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)


class Secret(str):
    """A text with the representation ``***``, because kafka-python logs its configuration."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


_NONE: Final = Secret()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """TLS files of a client. Each attribute that ends in ``_pem`` is a text in place of the file of the same name.

    Attributes:
        ca: Trusted authorities. Without file and text, the authorities of the system are trusted.
        cert: Certificate of this client, and its chain. The file may also hold the key.
        key: Key of the certificate. None: the key is in the file of the certificate.
        versions: Accepted TLS versions, in Java's notation. Empty: 1.2 and newer.
    """

    ca: Path | None = None
    ca_pem: str = ""
    cert: Path | None = None
    cert_pem: str = ""
    key: Path | None = None
    key_pem: Secret = _NONE
    key_password: Secret = _NONE
    checks_host: bool = True
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OAuth:
    """Source of tokens: an ``https://`` endpoint that accepts the client's credentials, or a file."""

    endpoint: str
    client_id: str = ""
    client_secret: Secret = _NONE
    scope: str = ""


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """Client settings for access to Kafka. ``source`` is the path of the file, or empty without a file."""

    source: str = ""
    protocol: Protocol = Protocol.PLAINTEXT
    mechanism: str = ""
    username: str = ""
    password: Secret = _NONE
    oauth: OAuth | None = None
    tls: TlsFiles = field(default_factory=TlsFiles)
    client_id: str = ""


def read_access(config: str) -> KafkaAccess:
    """Read the file of client properties. It is read at each connect, so a password can change at runtime.

    Args:
        config: Path of the file. Empty: no properties, so neither TLS nor authentication.

    Raises:
        AccessError: The file cannot be read, or has unsupported properties. The message names file and property.
    """
    if not config:
        return KafkaAccess()
    try:
        entries = parse_file(Path(config).read_bytes())
    except OSError as error:
        raise AccessError(
            f"--event-log-config {config}: {error.strerror or error}. Name a file of Kafka client properties."
        ) from None
    except PropertiesError as error:
        raise AccessError(f"{config}: {error}.") from None
    return access_of({entry.key: entry.value.strip() for entry in entries}, config)


def access_of(properties: Mapping[str, str], source: str) -> KafkaAccess:
    """Convert client properties to client settings.

    Args:
        properties: Values by name.
        source: Path of their file, for messages.

    Raises:
        AccessError: As `read_access`.
    """
    for key in properties:
        if text := objection(key):
            raise AccessError(f"{source}: {key} {text}{'' if text.endswith('?') else '.'}")
    return _Reading(properties, source).access()


class _Reading:
    """Reader of the properties of one file. Every error names the file."""

    def __init__(self, properties: Mapping[str, str], source: str) -> None:
        self._given = {key: value for key, value in properties.items() if value}
        self._blank = frozenset(key for key, value in properties.items() if not value)
        self._source = source

    def access(self) -> KafkaAccess:
        text = self._given.get("security.protocol", "PLAINTEXT").upper()
        if text not in tuple(Protocol):
            self._refuse("security.protocol", f"{text!r} is not one of {', '.join(Protocol)}")
        protocol = Protocol(text)
        for family, belongs in (("ssl.", protocol.encrypts), ("sasl.", protocol.authenticates)):
            extra = next((key for key in self._given if key.startswith(family)), None)
            if extra is not None and not belongs:
                self._refuse(extra, f"has no effect with security.protocol={protocol}. Remove it, or use SASL_SSL")
        username, password, oauth, mechanism = "", _NONE, None, ""
        if protocol.authenticates:
            login = self._login()
            mechanism = self._mechanism(login)
            if mechanism == "OAUTHBEARER":
                oauth = self._oauth(login)
            else:
                username, password = self._credentials(login)
        return KafkaAccess(
            source=self._source,
            protocol=protocol,
            mechanism=mechanism,
            username=username,
            password=password,
            oauth=oauth,
            tls=self._tls() if protocol.encrypts else TlsFiles(),
            client_id=self._given.get("client.id", ""),
        )

    def _login(self) -> Login | None:
        text = self._given.get("sasl.jaas.config")
        if text is None:
            return None
        login = parse(text, f"{self._source}: sasl.jaas.config")
        if login.module not in _LOGINS:
            self._refuse("sasl.jaas.config", f"{login.module} is not supported. Use one of {', '.join(_LOGINS)}")
        handler = self._given.get("sasl.login.callback.handler.class", _HANDLER)
        if handler.rpartition(".")[2] != _HANDLER:
            self._refuse(
                "sasl.login.callback.handler.class", f"names a Java class; {_HANDLER} is the only one supported"
            )
        known = ("username", "password", "clientId", "clientSecret", "scope")
        for option in login.options:
            if option not in known:
                self._refuse("sasl.jaas.config", f"its option {option} has no effect. Remove it")
        return login

    def _mechanism(self, login: Login | None) -> str:
        key = "sasl.mechanism" if "sasl.mechanism" in self._given else "sasl.mechanisms"
        mechanism = self._given.get(key, "")
        of_login = _LOGINS[login.module] if login else ()
        if not mechanism:
            self._refuse("sasl.mechanism", f"is missing. Set it to one of {', '.join(of_login or _MECHANISMS)}")
        if mechanism not in _MECHANISMS:
            self._refuse(key, f"{mechanism!r} is not supported. Use one of {', '.join(_MECHANISMS)}")
        if login and mechanism not in of_login:
            self._refuse("sasl.jaas.config", f"{login.module} does not fit {key}={mechanism}")
        return mechanism

    def _credentials(self, login: Login | None) -> tuple[str, Secret]:
        if login:
            where = "sasl.jaas.config"
            username, password = login.options.get("username", ""), login.options.get("password", "")
        else:
            where = "sasl.username, sasl.password"
            username, password = self._given.get("sasl.username", ""), self._given.get("sasl.password", "")
        if not username or not password:
            self._refuse(
                "sasl.jaas.config", "must contain username and password (or set sasl.username and sasl.password)"
            )
        return str(self._secret(username, where)), self._secret(password, where)

    def _oauth(self, login: Login | None) -> OAuth:
        endpoint = self._given.get(_ENDPOINT, "")
        url = urlsplit(endpoint)
        if not endpoint:
            self._refuse(
                _ENDPOINT,
                "is missing. Set it to the token endpoint, https://..., or to a file with a token, file:///...",
            )
        if url.scheme == "file":
            return OAuth(endpoint)
        if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _HERE):
            self._refuse(_ENDPOINT, "must begin with https:// or file:///, because the client's secret is sent there")
        options = login.options if login else {}
        client_id = self._given.get(f"{_CREDENTIALS}id") or options.get("clientId", "")
        secret = self._given.get(f"{_CREDENTIALS}secret") or options.get("clientSecret", "")
        if not client_id or not secret:
            self._refuse(f"{_CREDENTIALS}id", f"and {_CREDENTIALS}secret are required to request a token")
        scope = self._given.get("sasl.oauthbearer.scope") or options.get("scope", "")
        return OAuth(endpoint, client_id, self._secret(secret, f"{_CREDENTIALS}secret"), scope)

    def _tls(self) -> TlsFiles:
        for store in ("ssl.truststore", "ssl.keystore"):
            kind = self._given.get(f"{store}.type", "PEM").upper()
            if kind != "PEM":
                self._refuse(f"{store}.type", f"{kind} is not supported: {self._to_pem(store)}")
        algorithm = self._given.get("ssl.endpoint.identification.algorithm", "https").lower()
        if algorithm != "https":
            self._refuse("ssl.endpoint.identification.algorithm", "must be https, or empty to accept any host")
        cert = self._given.get("ssl.keystore.location") or self._given.get("ssl.certificate.location")
        cert_pem = self._given.get("ssl.keystore.certificate.chain", "")
        key = self._given.get("ssl.key.location")
        key_pem = self._given.get("ssl.keystore.key", "")
        if bool(key or key_pem) > bool(cert or cert_pem):
            self._refuse("ssl.keystore.certificate.chain", "is missing. A key needs its certificate")
        ca = self._given.get("ssl.truststore.location") or self._given.get("ssl.ca.location")
        versions = tuple(
            part.strip() for part in self._given.get("ssl.enabled.protocols", "").split(",") if part.strip()
        )
        return TlsFiles(
            ca=None if ca is None else Path(ca),
            ca_pem=self._given.get("ssl.truststore.certificates", ""),
            cert=None if cert is None else Path(cert),
            cert_pem=cert_pem,
            key=None if key is None else Path(key),
            key_pem=self._secret(key_pem, "ssl.keystore.key"),
            key_password=self._secret(self._given.get("ssl.key.password", ""), "ssl.key.password"),
            checks_host="ssl.endpoint.identification.algorithm" not in self._blank,
            versions=versions,
        )

    def _to_pem(self, store: str) -> str:
        place = self._given.get(f"{store}.location", "STORE")
        if store == "ssl.truststore":
            return f"convert it to PEM, `keytool -list -rfc -keystore {place} > ca.pem`, and set {store}.type=PEM"
        return (
            f"convert it to PEM, `keytool -importkeystore -srckeystore {place} -destkeystore key.p12 "
            f"-deststoretype PKCS12` and `openssl pkcs12 -in key.p12 -out key.pem`, and say {store}.type=PEM"
        )

    def _secret(self, text: str, key: str) -> Secret:
        """Resolve a value that may refer to a file or variable. Child processes get no variable that `is_secret`."""
        kind, _, name = text.partition(":")
        if kind == "env" and is_secret(name):
            self._refuse(
                key,
                f"{name} is hidden from the event log's processes. Use a variable that does not begin with ROUTELAKE_, "
                "and that neither accounts nor the TLS key use",
            )
        try:
            return Secret(resolve(text, f"{self._source}: {key}", may_be_empty=True))
        except SetupError as error:
            raise AccessError(str(error)) from None

    def _refuse(self, key: str, text: str) -> NoReturn:
        raise AccessError(f"{self._source}: {key}: {text}.")
