# SPDX-License-Identifier: Apache-2.0
"""Settings of TLS: RocketMQ's tls.properties, and options, which take precedence. Reads no file.

=================================  ==========================================  ==================================
tls.properties                     option                                      meaning
=================================  ==========================================  ==================================
tls.server.mode                    --tls-mode                                  disabled, permissive, enforcing
tls.server.certPath                --tls-cert                                  PEM: the certificate, then its chain
tls.server.keyPath                 --tls-key                                   PEM
tls.server.keyPassword             --tls-key-password                          file:PATH or env:NAME, or as is
tls.server.trustCertPath           --tls-client-ca                             PEM: authorities of client certificates
tls.server.authClient              (--tls-client-ca implies it)                whether they are verified
tls.server.need.client.auth        --tls-client-auth                           none, optional, require
tls.ciphers, tls.protocols                                                     `security.tls_config`
tls.client.*, tls.enable                                                       for clients only, ignored
tls.test.mode.enable                                                           refused if true: no self-made certificate
=================================  ==========================================  ==================================

Sources (5.5.0): org.apache.rocketmq.remoting.netty.TlsSystemConfig, TlsHelper.buildSslContext.

The module converts Java's names of cipher suites to OpenSSL's, and finds the versions of TLS that they allow. It is
pure, except that it asks OpenSSL for its suites.

Java uses the names of the RFCs. OpenSSL has names of its own up to TLS 1.2::

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256    ECDHE-RSA-AES128-GCM-SHA256
    TLS_RSA_WITH_AES_256_CBC_SHA             AES256-SHA
    TLS_AES_128_GCM_SHA256                   the same: TLS 1.3

Sources (5.5.0): TlsSystemConfig.tlsCiphers and tlsProtocols, TlsHelper.buildSslContext;
sun.security.ssl.CipherSuite (JDK 17).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from schemas.errors import SetupError
from schemas.tls import ClientAuth, TlsMode

_JAVA: Final = re.compile(r"(?:TLS|SSL)_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+)")
_BLOCK: Final = re.compile(r"(AES|CAMELLIA|ARIA)_(\d{3})")
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite. A name that is not Java's is returned unchanged."""
    match = _JAVA.fullmatch(name)
    if match is None:
        return name
    exchange = match["exchange"].replace("_", "-")
    cipher = _BLOCK.sub(r"\1\2", match["cipher"])
    cipher = cipher.replace("_CBC", "").replace("3DES_EDE", "DES_CBC3").replace("POLY1305_SHA256", "POLY1305")
    return "-".join(([] if exchange == "RSA" else [exchange]) + [cipher.replace("_", "-")])


def split_suites(names: Sequence[str], source: str) -> tuple[tuple[str, ...], bool]:
    """Divide a list of suites for OpenSSL.

    Args:
        names: Names of suites, Java's or OpenSSL's.
        source: Origin of the list, for the message.

    Returns:
        The suites up to TLS 1.2, by OpenSSL's names, and whether the list has one of TLS 1.3.

    Raises:
        SetupError: A suite is unknown to this machine's OpenSSL.
    """
    everything = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    everything.set_ciphers("ALL:@SECLEVEL=0")
    known = {suite["name"]: suite["protocol"] for suite in everything.get_ciphers()}
    unknown = [name for name in names if openssl_name(name) not in known]
    if unknown:
        raise SetupError(
            f"{source}: no such cipher suite: {', '.join(unknown)}. Names are Java's or OpenSSL's; "
            "`openssl ciphers -stdname` lists both."
        )
    found = [openssl_name(name) for name in names]
    return tuple(name for name in found if known[name] != "TLSv1.3"), any(known[name] == "TLSv1.3" for name in found)


def version_range(names: Sequence[str], source: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """Return the lowest and the highest version of a list such as TLSv1.2, TLSv1.3. For an empty list, of all versions.

    Raises:
        SetupError: A version is not offered.
    """
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        raise SetupError(f"{source}: {', '.join(unknown)} is not offered; {' and '.join(VERSIONS)} are. Leave it out.")
    found = sorted(VERSIONS[name] for name in names or VERSIONS)
    return found[0], found[-1]


_SERVER: Final = "tls.server."
_KNOWN: Final = frozenset(
    {
        *(f"{_SERVER}{name}" for name in ("mode", "certPath", "keyPath", "keyPassword", "authClient", "trustCertPath")),
        *(f"{_SERVER}need.client.auth", "tls.ciphers", "tls.protocols", "tls.test.mode.enable", "tls.enable"),
        "tls.config.file",
    }
)
_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Options of the command line. Empty if not given. ``key_password`` is a reference."""

    cert: str = ""
    key: str = ""
    key_password: str = ""
    client_ca: str = ""
    client_auth: str = ""
    mode: str = ""

    @property
    def says_something(self) -> bool:
        """Return whether an option asks for TLS."""
        return any((self.cert, self.key, self.key_password, self.client_ca, self.client_auth, self.mode))


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS of both listeners.

    Attributes:
        mode: Mode of TLS. It is never DISABLED.
        cert: PEM file of the certificate and its chain.
        key: PEM file of its private key.
        key_password: Password of the key, or a reference to it, ``file:PATH`` or ``env:NAME``.
        client_ca: PEM file of the authorities that sign clients' certificates.
        client_auth: Whether clients send a certificate.
        ciphers: Suites up to TLS 1.2, by OpenSSL's names. Empty: OpenSSL's choice.
        lowest: Lowest version of TLS.
        highest: Highest version of TLS.
        warnings: Warnings for the operator.
    """

    mode: TlsMode
    cert: Path
    key: Path
    key_password: str = field(default="", repr=False)
    client_ca: Path | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    ciphers: tuple[str, ...] = ()
    lowest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    warnings: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Files to watch for changes."""
        reference = self.key_password.removeprefix("file:")
        password = (Path(reference),) if reference != self.key_password else ()
        return (self.cert, self.key, *password, *(() if self.client_ca is None else (self.client_ca,)))


def tls_settings(properties: Mapping[str, str], source: str, options: TlsOptions) -> TlsSettings | None:
    """Combine properties and options into the settings of TLS.

    Args:
        properties: Properties of the file. Empty without a file.
        source: Name of the file, for messages. Empty without a file.
        options: Options, which take precedence over the file.

    Returns:
        Settings. None: nothing is encrypted.

    Raises:
        SetupError: The settings contradict each other, or cannot be fulfilled. The message names the action.
    """
    if not source and not options.says_something:
        return None
    given = {key: value.strip() for key, value in properties.items() if value.strip()}
    mode = _one_of(TlsMode, options.mode, given.get(f"{_SERVER}mode", ""), "--tls-mode", f"{source}: {_SERVER}mode")
    mode = mode or TlsMode.PERMISSIVE
    if mode is TlsMode.DISABLED:
        return None
    unknown = [key for key in given if key not in _KNOWN and not key.startswith("tls.client.")]
    warnings = [f"{source}: {key} is not known here, and does nothing" for key in unknown]
    if _switch(given, "tls.test.mode.enable", source):
        raise SetupError(
            f"{source}: tls.test.mode.enable=true creates a certificate at each start, "
            "which no client can verify. "
            f"Set it to false, and set {_SERVER}certPath and {_SERVER}keyPath."
        )
    cert = options.cert or given.get(f"{_SERVER}certPath", "")
    key = options.key or given.get(f"{_SERVER}keyPath", "")
    if not cert or not key:
        raise SetupError(
            "TLS needs a certificate and its key. Set --tls-cert and --tls-key, "
            f"or {_SERVER}certPath and {_SERVER}keyPath in --tls-config, or --tls-mode disabled."
        )
    client_auth, client_ca = _client_auth(given, source, options, warnings)
    ciphers, lowest, highest = _protocol(given, source)
    return TlsSettings(
        mode=mode,
        cert=Path(cert),
        key=Path(key),
        key_password=_password(given, options),
        client_ca=client_ca,
        client_auth=client_auth,
        ciphers=ciphers,
        lowest=lowest,
        highest=highest,
        warnings=tuple(warnings),
    )


def _client_auth(
    given: Mapping[str, str], source: str, options: TlsOptions, warnings: list[str]
) -> tuple[ClientAuth, Path | None]:
    """Decide whether clients send a certificate. Return the file of the authorities that sign it, too."""
    key = f"{_SERVER}need.client.auth"
    asked = _one_of(ClientAuth, options.client_auth, given.get(key, ""), "--tls-client-auth", f"{source}: {key}")
    verifies = bool(options.client_ca) or _switch(given, f"{_SERVER}authClient", source)
    ca = options.client_ca or given.get(f"{_SERVER}trustCertPath", "")
    if asked is None:
        asked = ClientAuth.REQUIRE if options.client_ca else ClientAuth.NONE
    if asked is ClientAuth.NONE:
        if verifies:
            warnings.append(
                f"{source or 'the options'}: clients are not asked for a certificate, so none is verified: "
                f"set {key} to optional or require"
            )
        return asked, None
    if options.client_auth and ca:
        verifies = True
    if not verifies:
        if asked is ClientAuth.REQUIRE:
            raise SetupError(
                f"{source or '--tls-client-auth require'}: RocketMQ would request a certificate and accept any. "
                f"Set {_SERVER}authClient=true and {_SERVER}trustCertPath, or give --tls-client-ca, "
                "or do not require certificates."
            )
        warnings.append(
            f"{source or '--tls-client-auth'}: certificates that clients show would not be verified "
            f"({_SERVER}authClient=false), so they are not asked for"
        )
        return ClientAuth.NONE, None
    if not ca:
        raise SetupError(
            f"{source or '--tls-client-auth'}: clients' certificates are to be verified, but no CA is configured. "
            f"Set {_SERVER}trustCertPath, or give --tls-client-ca."
        )
    return asked, Path(ca)


def _protocol(given: Mapping[str, str], source: str) -> tuple[tuple[str, ...], ssl.TLSVersion, ssl.TLSVersion]:
    """Return suites and versions. If the list has no suite of a version, that version is excluded, as in Java."""
    lowest, highest = version_range(_list(given, "tls.protocols"), f"{source}: tls.protocols")
    names = _list(given, "tls.ciphers")
    if not names:
        return (), lowest, highest
    suites, has_13 = split_suites(names, f"{source}: tls.ciphers")
    if not suites:
        lowest = ssl.TLSVersion.TLSv1_3
    if not has_13:
        highest = ssl.TLSVersion.TLSv1_2
    if lowest > highest:
        raise SetupError(
            f"{source}: tls.ciphers has no suite for any of tls.protocols. Add one, or leave out one of the two."
        )
    return suites, lowest, highest


def _password(given: Mapping[str, str], options: TlsOptions) -> str:
    if options.key_password and not options.key_password.startswith(("file:", "env:")):
        raise SetupError(
            "--tls-key-password takes a reference, file:PATH or env:NAME, not the password: "
            "every user of this machine can read a command line."
        )
    return options.key_password or given.get(f"{_SERVER}keyPassword", "")


def _one_of(kind: type[_E], option: str, value: str, option_name: str, value_name: str) -> _E | None:
    text, where = (option, option_name) if option else (value, value_name)
    if not text:
        return None
    try:
        return kind(text.lower())
    except ValueError:
        raise SetupError(f"{where} is {text!r}: expected one of {', '.join(kind)}.") from None


def _switch(given: Mapping[str, str], key: str, source: str) -> bool:
    text = given.get(key, "false").lower()
    if text not in {"true", "false"}:
        raise SetupError(f"{source}: {key} is {text!r}: expected true or false.")
    return text == "true"


def _list(given: Mapping[str, str], key: str) -> list[str]:
    return [name.strip() for name in given.get(key, "").split(",") if name.strip()]
