# SPDX-License-Identifier: Apache-2.0
"""Options that say who may what: which go together, and what another process is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.auth_options import AuthOptions
from dev.support.accounts import ACCOUNTS
from schemas.errors import SetupError
from security.oidc_settings import OidcSettings
from security.policy import AuthMode, Policy


def options(file: Path | None = None, **more: Any) -> AuthOptions:
    return AuthOptions(
        **{"file": file, "mode": None, "admin_plaintext": False, "require_tls": None, "insecure": False, **more}
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "acl.yml"
    path.write_text(ACCOUNTS)
    return path


def test_the_mode_that_is_meant(file: Path) -> None:
    assert options().policy() == Policy(AuthMode.OFF)
    assert options(file).policy() == Policy(AuthMode.ENFORCE)
    assert options(file, mode=AuthMode.AUDIT).policy() == Policy(AuthMode.AUDIT)


@pytest.mark.parametrize(
    ("more", "has_tls", "requires"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"require_tls": True}, False, True),
        ({"require_tls": False}, True, False),
        ({"admin_plaintext": True}, True, False),
        ({"admin_signature": True}, True, True),
        ({"mode": AuthMode.ENFORCE_WRITES}, True, False),
        ({"mode": AuthMode.AUDIT}, True, False),
    ],
)
def test_keys_need_tls_where_there_is_a_certificate(
    file: Path, more: dict[str, Any], has_tls: bool, requires: bool
) -> None:
    found = options(file, **more)
    assert found.policy(has_tls=has_tls).require_tls is requires
    said = found.require_tls
    assert [word for word in found.arguments() if "require-tls" in word] == (
        [] if said is None else ["--auth-require-tls" if said else "--no-auth-require-tls"]
    )
    assert [options(file, mode=mode).enforces for mode in AuthMode] == [False, False, True, True]


def test_what_does_not_go_together(file: Path) -> None:
    issuer: dict[str, Any] = {"oidc_issuer": "https://login.example.org", "oidc_audience": "routelake"}
    for found, why in (
        (options(mode=AuthMode.ENFORCE), "needs accounts: --auth FILE"),
        (options(file, require_tls=True, admin_plaintext=True), "contradict each other"),
        (options(file, oidc_issuer="https://login.example.org"), "belong together"),
        (options(file, oidc_audience="routelake"), "belong together"),
        (options(**issuer), "needs accounts for those who come over port 9876"),
        (options(file, **{**issuer, "oidc_issuer": "http://login.example.org"}), "expected an https address"),
        (options(file.with_name("none.yml")), "cannot be read"),
    ):
        with pytest.raises(SetupError, match=why):
            found.accounts()
    assert options().accounts() is None
    assert options(file, **issuer).accounts() is not None


def test_another_process_is_told_the_same(file: Path) -> None:
    issuer = {"oidc_issuer": "https://login.example.org", "oidc_audience": "routelake", "oidc_role_claim": "roles"}
    found = options(file, mode=AuthMode.AUDIT, admin_plaintext=True, insecure=True, **issuer)
    assert found.policy().oidc == OidcSettings(*issuer.values())
    assert found.arguments() == [
        *("--auth", str(file), "--auth-mode", "audit", "--auth-admin-plaintext", "--insecure"),
        *("--oidc-issuer", "https://login.example.org", "--oidc-audience", "routelake", "--oidc-role-claim", "roles"),
    ]
    assert options().arguments() == []
