# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's tls.properties and our options: what they mean together, and what is refused."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from schemas.errors import SetupError
from schemas.tls import ClientAuth, TlsMode
from security.tls_config import TlsOptions, TlsSettings, openssl_name, tls_settings

FILE = "tls.properties"
PAIR = {"tls.server.certPath": "a.pem", "tls.server.keyPath": "a.key"}
VERIFIES = {"tls.server.authClient": "true", "tls.server.trustCertPath": "ca.pem"}
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def settings(properties: dict[str, str], **options: str) -> TlsSettings:
    found = tls_settings(properties, FILE, TlsOptions(**options))
    assert found is not None
    return found


def test_nothing_is_encrypted_unless_asked_for() -> None:
    assert tls_settings({}, "", TlsOptions()) is None
    assert tls_settings({**PAIR, "tls.server.mode": "disabled"}, FILE, TlsOptions()) is None
    assert tls_settings(PAIR, FILE, TlsOptions(mode="disabled")) is None


def test_a_properties_file_becomes_tls_settings() -> None:
    found = settings(
        {
            **PAIR,
            **VERIFIES,
            "tls.server.mode": " ENFORCING ",
            "tls.server.keyPassword": "word",
            "tls.server.need.client.auth": "require",
            "tls.enable": "true",
            "tls.client.certPath": "theirs.pem",
        }
    )
    assert found == TlsSettings(
        TlsMode.ENFORCING, Path("a.pem"), Path("a.key"), "word", Path("ca.pem"), ClientAuth.REQUIRE
    )
    assert "word" not in repr(found)
    assert found.files == (Path("a.pem"), Path("a.key"), Path("ca.pem"))


def test_options_win_over_the_file() -> None:
    found = settings(
        {**PAIR, **VERIFIES, "tls.server.mode": "enforcing", "tls.server.need.client.auth": "require"},
        cert="b.pem",
        key="b.key",
        key_password="file:b.password",
        client_ca="b-ca.pem",
        client_auth="optional",
        mode="permissive",
    )
    assert (found.mode, found.cert, found.key) == (TlsMode.PERMISSIVE, Path("b.pem"), Path("b.key"))
    assert (found.client_ca, found.client_auth) == (Path("b-ca.pem"), ClientAuth.OPTIONAL)
    assert found.files == (Path("b.pem"), Path("b.key"), Path("b.password"), Path("b-ca.pem"))


def test_the_mode_is_permissive_as_rocketmqs() -> None:
    assert settings(PAIR).mode is TlsMode.PERMISSIVE
    assert settings({}, cert="a", key="b").mode is TlsMode.PERMISSIVE


@pytest.mark.parametrize(
    ("properties", "options", "auth", "warning"),
    [
        ({}, {}, ClientAuth.NONE, ""),
        ({}, {"client_ca": "ca.pem"}, ClientAuth.REQUIRE, ""),
        ({}, {"client_ca": "ca.pem", "client_auth": "optional"}, ClientAuth.OPTIONAL, ""),
        ({}, {"client_ca": "ca.pem", "client_auth": "none"}, ClientAuth.NONE, "clients are not asked"),
        (VERIFIES, {}, ClientAuth.NONE, "clients are not asked"),
        ({**VERIFIES, "tls.server.need.client.auth": "optional"}, {}, ClientAuth.OPTIONAL, ""),
        ({**VERIFIES, "tls.server.need.client.auth": "Require"}, {}, ClientAuth.REQUIRE, ""),
        (VERIFIES, {"client_auth": "require"}, ClientAuth.REQUIRE, ""),
        ({"tls.server.need.client.auth": "optional"}, {}, ClientAuth.NONE, "would not be verified"),
        ({"tls.server.trustCertPath": "ca.pem"}, {"client_auth": "require"}, ClientAuth.REQUIRE, ""),
        ({"tls.server.trustCertPath": "ca.pem"}, {}, ClientAuth.NONE, ""),
    ],
)
def test_whether_clients_show_a_certificate(
    properties: dict[str, str], options: dict[str, str], auth: ClientAuth, warning: str
) -> None:
    found = settings({**PAIR, **properties}, **options)
    assert found.client_auth is auth
    assert (found.client_ca is None) == (auth is ClientAuth.NONE)
    assert warning in " ".join(found.warnings)
    assert bool(found.warnings) == bool(warning)


@pytest.mark.parametrize(
    ("properties", "options", "words"),
    [
        ({}, {}, "certificate and its key"),
        ({"tls.server.certPath": "a.pem"}, {}, "--tls-cert and --tls-key"),
        ({}, {"mode": "enforcing"}, "--tls-mode disabled"),
        ({**PAIR, "tls.server.mode": "strict"}, {}, "tls.server.mode is 'strict': expected one of disabled"),
        (PAIR, {"mode": "strict"}, "--tls-mode is 'strict'"),
        (PAIR, {"client_auth": "maybe"}, "--tls-client-auth is 'maybe'"),
        ({**PAIR, "tls.server.authClient": "yes"}, {}, "tls.server.authClient is 'yes': expected true or false"),
        ({**PAIR, "tls.test.mode.enable": "true"}, {}, "no client can verify"),
        ({**PAIR, "tls.server.need.client.auth": "require"}, {}, "accept any"),
        (PAIR, {"client_auth": "require"}, "--tls-client-ca"),
        (
            {**PAIR, **VERIFIES, "tls.server.trustCertPath": "", "tls.server.need.client.auth": "require"},
            {},
            "no CA",
        ),
        (PAIR, {"key_password": "word"}, "file:PATH or env:NAME"),
        ({**PAIR, "tls.ciphers": "TLS_NO_SUCH, AES128-SHA, X"}, {}, "no such cipher suite: TLS_NO_SUCH, X"),
        ({**PAIR, "tls.protocols": "TLSv1.1,TLSv1.2"}, {}, "TLSv1.1 is not offered"),
        ({**PAIR, "tls.protocols": "TLSv1.3", "tls.ciphers": "AES128-SHA"}, {}, "no suite for any of tls.protocols"),
    ],
)
def test_contradictory_tls_settings_are_refused(
    properties: dict[str, str], options: dict[str, str], words: str
) -> None:
    with pytest.raises(SetupError, match=re.escape(words)) as refused:
        tls_settings(properties, FILE, TlsOptions(**options))
    assert "'word'" not in str(refused.value)


def test_keys_that_are_not_known_are_named() -> None:
    (warning,) = settings({**PAIR, "tls.server.cert": "x"}).warnings
    assert warning == "tls.properties: tls.server.cert is not known here, and does nothing"


@pytest.mark.parametrize(
    ("properties", "ciphers", "lowest", "highest"),
    [
        ({}, (), V12, V13),
        ({"tls.protocols": "TLSv1.2"}, (), V12, V12),
        ({"tls.protocols": "TLSv1.3, TLSv1.2"}, (), V12, V13),
        (
            {"tls.ciphers": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256"},
            ("ECDHE-RSA-AES128-GCM-SHA256",),
            V12,
            V13,
        ),
        ({"tls.ciphers": "ECDHE-RSA-AES128-GCM-SHA256"}, ("ECDHE-RSA-AES128-GCM-SHA256",), V12, V12),
        ({"tls.ciphers": "TLS_AES_256_GCM_SHA384"}, (), V13, V13),
    ],
)
def test_suites_and_versions(
    properties: dict[str, str], ciphers: tuple[str, ...], lowest: ssl.TLSVersion, highest: ssl.TLSVersion
) -> None:
    found = settings({**PAIR, **properties})
    assert (found.ciphers, found.lowest, found.highest) == (ciphers, lowest, highest)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [  # the pairs of `openssl ciphers -stdname ALL:COMPLEMENTOFALL` that JDK 17 offers, one of each kind
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
        ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("SSL_RSA_WITH_3DES_EDE_CBC_SHA", "DES-CBC3-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_javas_names_of_suites(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
