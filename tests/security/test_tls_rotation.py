# SPDX-License-Identifier: Apache-2.0
"""Files that change: a look sees it, the next one reads it; what cannot be used leaves what was there."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dev.support.certificates import Authority, Pair
from dev.support.loops import until
from schemas.errors import SetupError
from schemas.tls import ClientAuth, TlsMode
from security.tls_config import TlsSettings
from security.tls_rotation import Tls


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> Pair:
    found = Pair(tmp_path / "tls.pem", tmp_path / "tls.key")
    put(found, authority.issue("first"))
    return found


def put(where: Pair, pair: Pair) -> None:
    shutil.copy(pair.cert, where.cert)
    shutil.copy(pair.key, where.key)


def tls_of(files: Pair, **more: object) -> Tls:
    return Tls(TlsSettings(TlsMode.PERMISSIVE, files.cert, files.key, **more))  # type: ignore[arg-type]


def shown(context: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """CN of the certificate that a client sees."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours, theirs = context.wrap_bio(up, down, server_side=True), client.wrap_bio(down, up, server_hostname="localhost")
    for _ in range(4):
        for end in (theirs, ours):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = theirs.getpeercert()
    assert found is not None
    return str(found["subject"][-1][-1][1])


def twice(tls: Tls) -> None:
    tls.look()
    tls.look()


def test_a_new_pair(authority: Authority, files: Pair) -> None:
    tls = tls_of(files)
    before = tls.remoting.context
    put(files, authority.issue("second", days=5))
    tls.look()
    assert tls.remoting.context is before, "somebody may be writing still"
    tls.look()
    for listener in (tls.remoting, tls.http):
        assert shown(listener.context, authority.client()) == "second"
    assert shown(before, authority.client()) == "first"
    assert (tls.reloads, tls.reload_failures, tls.problem) == (1, 0, None)
    twice(tls)
    assert tls.reloads == 1


@pytest.mark.parametrize("certificate_first", [False, True])
def test_one_file_and_then_the_other(authority: Authority, files: Pair, certificate_first: bool) -> None:
    """However long a renewal takes between the two."""
    tls, new = tls_of(files), authority.issue("second")
    copies = [(new.cert, files.cert), (new.key, files.key)]
    for count, (one, other) in enumerate(copies if certificate_first else copies[::-1]):
        with capture_logs() as logs:
            shutil.copy(one, other)
            for _ in range(4):
                tls.look()
        assert len(logs) == 1, "said once"
        if count == 0:
            assert (tls.reloads, tls.reload_failures) == (0, 1)
            assert "does not fit the certificate" in (tls.problem or "")
            assert logs[0]["log_level"] == "error"
            assert shown(tls.remoting.context, authority.client()) == "first"
    assert (tls.reloads, tls.reload_failures, tls.problem) == (1, 1, None)
    assert shown(tls.remoting.context, authority.client()) == "second"


def remove(path: Path) -> None:
    path.unlink()


def spoil(path: Path) -> None:
    path.write_text("junk")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("what", ["cert", "key"])
@pytest.mark.parametrize("damage", [remove, spoil, cut])
def test_damage_that_is_made_good(
    authority: Authority, files: Pair, tmp_path: Path, damage: Callable[[Path], None], what: str
) -> None:
    tls = tls_of(files)
    path = getattr(files, what)
    kept = shutil.copy(path, tmp_path / "kept")
    damage(path)
    twice(tls)
    assert (tls.reload_failures, bool(tls.problem)) == (1, True)
    assert shown(tls.remoting.context, authority.client()) == "first"
    shutil.copy(kept, path)
    twice(tls)
    assert (tls.reloads, tls.reload_failures, tls.problem) == (0, 1, None)


def test_links_that_are_turned(authority: Authority, tmp_path: Path) -> None:
    """As Kubernetes changes a mounted secret: one link is turned, no file is written."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        put(Pair(tmp_path / name / "tls.pem", tmp_path / name / "tls.key"), authority.issue(name))
    data = tmp_path / "data"
    data.symlink_to("first")
    tls = tls_of(Pair(data / "tls.pem", data / "tls.key"))
    (tmp_path / "next").symlink_to("second")
    (tmp_path / "next").replace(data)
    twice(tls)
    assert shown(tls.remoting.context, authority.client()) == "second"


def test_the_clients_authority_changes(authority: Authority, files: Pair, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    ca = shutil.copy(authority.path, tmp_path / "clients.pem")
    tls = tls_of(files, client_ca=ca, client_auth=ClientAuth.REQUIRE)
    assert tls.remoting.needs_certificate
    client = authority.client(other.issue("client"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(tls.remoting.context, client)
    shutil.copy(other.path, ca)
    twice(tls)
    assert shown(tls.remoting.context, client) == "first"


def test_the_password_changes_with_the_key(authority: Authority, files: Pair, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("one")
    put(files, authority.issue("first", password="one"))
    tls = tls_of(files, key_password=f"file:{password}")
    put(files, authority.issue("second", password="two"))
    twice(tls)
    assert "the password does not open the key" in (tls.problem or "")
    password.write_text("two")
    twice(tls)
    assert (tls.problem, shown(tls.remoting.context, authority.client())) == (None, "second")


@pytest.mark.parametrize(("days", "words"), [(-1.0, "has expired"), (3.0, "expires soon days=3.0"), (30.0, "")])
def test_expiry_is_said(authority: Authority, files: Pair, days: float, words: str) -> None:
    """At the start and at a renewal. It is used all the same: a machine without a set clock needs it."""
    put(files, authority.issue("dated", days=days))
    tls = tls_of(files)
    with capture_logs() as logs:
        tls.start()
        tls.stop()
    assert ("expired on" in (tls.problem or "")) is (days < 0)
    said = " ".join(f"{line['event']} days={line.get('days')}" for line in logs if line["log_level"] == "warning")
    assert words in said
    assert bool(said) == bool(words)


def test_the_thread_loads_changed_files(authority: Authority, files: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("security.tls_rotation.LOOK_S", 0.01)
    tls = tls_of(files)
    tls.start()
    try:
        put(files, authority.issue("second"))
        until(lambda: tls.reloads == 1)
    finally:
        tls.stop()


def test_nothing_starts_with_files_that_cannot_be_used(files: Pair) -> None:
    files.key.unlink()
    with pytest.raises(SetupError):
        tls_of(files)
