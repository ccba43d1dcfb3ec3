# SPDX-License-Identifier: Apache-2.0
"""Options that say who may what: which go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.gateway_options import AuthOptions
from dev.support.accounts import ACCOUNTS
from schemas.errors import SetupError
from security.policy import AuthMode, Policy


def options(file: Path | None = None, **more: Any) -> AuthOptions:
    return AuthOptions(auth=file, **more)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "acl.yml"
    path.write_text(ACCOUNTS)
    return path


def test_the_authentication_mode_follows_from_the_options(file: Path) -> None:
    assert options().policy() == Policy(AuthMode.OFF)
    assert options(file).policy() == Policy(AuthMode.ENFORCE)
    assert options(file, auth_mode=AuthMode.AUDIT).policy() == Policy(AuthMode.AUDIT)


@pytest.mark.parametrize(
    ("more", "has_tls", "requires"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"auth_require_tls": True}, False, True),
        ({"auth_require_tls": False}, True, False),
        ({"auth_admin_plaintext": True}, True, False),
        ({"auth_admin_signature": True}, True, True),
        ({"auth_mode": AuthMode.ENFORCE_WRITES}, True, False),
        ({"auth_mode": AuthMode.AUDIT}, True, False),
    ],
)
def test_keys_need_tls_where_there_is_a_certificate(
    file: Path, more: dict[str, Any], has_tls: bool, requires: bool
) -> None:
    found = options(file, **more)
    assert found.policy(has_tls=has_tls).require_tls is requires
    assert [options(file, auth_mode=mode).enforces for mode in AuthMode] == [False, False, True, True]


def test_contradictory_options_are_refused(file: Path) -> None:
    issuer: dict[str, Any] = {"oidc_issuer": "https://login.example.org", "oidc_audience": "routelake"}
    for found, why in (
        (options(auth_mode=AuthMode.ENFORCE), "needs accounts. Set --auth FILE"),
        (options(file, auth_require_tls=True, auth_admin_plaintext=True), "cannot be used together"),
        (
            options(file, oidc_issuer="https://login.example.org"),
            "--oidc-issuer and --oidc-audience must be set together",
        ),
        (options(file, oidc_audience="routelake"), "--oidc-issuer and --oidc-audience must be set together"),
        (options(**issuer), "needs accounts for the clients of port 9876"),
        (options(file, **{**issuer, "oidc_issuer": "http://login.example.org"}), "expected the https address"),
        (options(file.with_name("none.yml")), "cannot be read"),
    ):
        with pytest.raises(SetupError, match=why):
            found.accounts()
    assert options().accounts() is None
    assert options(file, **issuer).accounts() is not None
