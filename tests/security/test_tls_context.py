# SPDX-License-Identifier: Apache-2.0
"""Files that cannot be used are refused at the start, with what to do; what can be used agrees with clients."""

from __future__ import annotations

import re
import ssl
import time
from pathlib import Path

import pytest

from dev.support.certificates import Authority, Pair
from schemas.errors import SetupError
from schemas.tls import ClientAuth, TlsMode
from security.tls_config import TlsSettings
from security.tls_context import build, not_after_s


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue()


def settings(pair: Pair, **more: object) -> TlsSettings:
    return TlsSettings(TlsMode.PERMISSIVE, pair.cert, pair.key, **more)  # type: ignore[arg-type]


def agree(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Shake hands in memory. Returns the suite; raises ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(down, up, server_hostname="localhost"),
        server.wrap_bio(up, down, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    cipher = ends[1].cipher()
    assert cipher is not None
    return cipher[0]


@pytest.mark.parametrize("is_rsa", [False, True])
def test_a_key_pair_serves_tls_1_3(authority: Authority, is_rsa: bool) -> None:
    found = build(settings(authority.issue("kind", is_rsa=is_rsa, days=10)))
    assert agree(found.remoting, authority.client()).startswith("TLS_AES_256")
    assert found.not_after_s == pytest.approx(time.time() + 10 * 86_400, abs=60)


def test_versions_and_suites(authority: Authority, pair: Pair) -> None:
    v12 = ssl.TLSVersion.TLSv1_2
    found = build(settings(pair, highest=v12, ciphers=("ECDHE-ECDSA-AES128-GCM-SHA256",)))
    assert agree(found.remoting, authority.client()) == "ECDHE-ECDSA-AES128-GCM-SHA256"
    modern = authority.client()
    modern.minimum_version = ssl.TLSVersion.TLSv1_3
    with pytest.raises(ssl.SSLError):
        agree(found.remoting, modern)
    assert build(settings(pair)).remoting.minimum_version is v12


def test_a_suite_for_another_kind_of_key(pair: Pair) -> None:
    with pytest.raises(SetupError, match="no client could connect with .*a suite has to fit the kind of key"):
        build(settings(pair, highest=ssl.TLSVersion.TLSv1_2, ciphers=("ECDHE-RSA-AES128-GCM-SHA256",)))


@pytest.mark.parametrize("auth", [ClientAuth.OPTIONAL, ClientAuth.REQUIRE])
def test_clients_that_have_a_certificate_or_none(
    authority: Authority, pair: Pair, tmp_path: Path, auth: ClientAuth
) -> None:
    """Over HTTP a certificate is optional: a probe has none. A certificate of another authority identifies no client."""
    found = build(settings(pair, client_ca=authority.path, client_auth=auth))
    known = authority.client(authority.issue("client"))
    foreign = authority.client(Authority(tmp_path, "foreign").issue("client"))
    for context in (found.remoting, found.http):
        assert agree(context, known)
        with pytest.raises(ssl.SSLCertVerificationError):
            agree(context, foreign)
    assert agree(found.http, authority.client())
    if auth is ClientAuth.OPTIONAL:
        assert agree(found.remoting, authority.client())
    else:
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            agree(found.remoting, authority.client())


def test_a_key_that_is_encrypted(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = authority.issue("encrypted", password="word")
    (tmp_path / "password").write_text("word\n")
    monkeypatch.setenv("KEY_WORD", "word")
    for password in ("word", f"file:{tmp_path / 'password'}", "env:KEY_WORD"):
        assert agree(build(settings(pair, key_password=password)).remoting, authority.client())
    for password, words in (
        ("", "is encrypted. Set --tls-key-password"),
        ("env:KEY_PATH", "the environment variable KEY_PATH is not set"),
        (f"file:{tmp_path / 'none'}", "none cannot be read"),
        ("hunter2", "the password does not open the key"),
    ):
        with pytest.raises(SetupError, match=re.escape(words)) as refused:
            build(settings(pair, key_password=password))
        assert "hunter2" not in str(refused.value)


def test_files_that_cannot_be_used(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    other, none, junk, torn = authority.issue("other"), tmp_path / "none", tmp_path / "junk", tmp_path / "torn"
    junk.write_text("junk")
    torn.write_bytes(pair.cert.read_bytes()[:200] + b"\n-----END CERTIFICATE-----\n")
    for settled, words in (
        (settings(Pair(none, pair.key)), f"the certificate {none} cannot be read: No such file"),
        (settings(Pair(pair.cert, none)), f"the key {none} cannot be read: No such file"),
        (settings(Pair(tmp_path, pair.key)), "cannot be read: Is a directory"),
        (settings(Pair(junk, pair.key)), "has no certificate in PEM"),
        (settings(Pair(pair.cert, junk)), "has no private key in PEM. Name the file of the key"),
        (settings(Pair(pair.key, pair.cert)), "has no certificate in PEM"),
        (settings(Pair(torn, pair.key)), f"the certificate {torn} is damaged"),
        (settings(Pair(pair.cert, other.key)), f"the key {other.key} does not fit the certificate {pair.cert}"),
        (settings(pair, client_ca=none, client_auth=ClientAuth.REQUIRE), f"the clients' CA {none} cannot be read"),
        (
            settings(pair, client_ca=junk, client_auth=ClientAuth.REQUIRE),
            f"the clients' CA {junk} has no certificate in PEM",
        ),
    ):
        with pytest.raises(SetupError, match=re.escape(words)):
            build(settled)


@pytest.mark.parametrize("days", [-3.0, 1.5, 400.0, 365.0 * 60])
def test_when_a_certificate_expires(authority: Authority, days: float) -> None:
    """UTCTime until 2049, GeneralizedTime after it."""
    found = not_after_s(authority.issue("dated", days=days).cert)
    assert found == pytest.approx(time.time() + days * 86_400, abs=60)


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", b"\xff" * 99])
def test_what_is_no_certificate(tmp_path: Path, pem: bytes) -> None:
    path = tmp_path / "damaged.pem"
    path.write_bytes(pem)
    with pytest.raises(SetupError, match=re.escape(f"the certificate {path} is damaged")):
        not_after_s(path)
