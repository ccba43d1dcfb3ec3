# SPDX-License-Identifier: Apache-2.0
"""Accounts for tests, and requests that they sign."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from dev.model.wire import Request
from security.accounts_file import AccountsFile
from security.policy import AuthMode, Policy
from security.signature import signed

SECRETS = {"reader": "of-reader", "broker": "of-broker", "bound": "of-bound", "admin": "of-admin"}
TOKENS = {user: f"token-{user}" for user in SECRETS}


def hashed(token: str) -> str:
    """A token as a file of accounts may have it: tokens of tests are shorter than one may be in the clear."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


ACCOUNTS = """
accounts:
  - {accessKey: reader, secretKey: of-reader, token: token-reader, certificate: 'subject:CN=reader'}
  - {accessKey: broker, secretKey: of-broker, token: token-broker, role: broker}
  - {accessKey: bound, secretKey: of-bound, token: token-bound, role: broker,
     clusters: [cluster-a], brokerNames: [broker-a, broker-c]}
  - {accessKey: admin, secretKey: of-admin, token: token-admin, admin: true}
  - {accessKey: late, token: token-late, tokenExpires: 2020-01-01T00:00:00Z}
"""
for _token in (*TOKENS.values(), "token-late"):
    ACCOUNTS = ACCOUNTS.replace(f"token: {_token}", f"token: '{hashed(_token)}'")


def accounts_file(folder: Path, text: str = ACCOUNTS) -> AccountsFile:
    """A file of accounts, `ACCOUNTS` unless told otherwise."""
    path = folder / "acl.yml"
    path.write_text(text)
    return AccountsFile(path)


def policy(mode: AuthMode = AuthMode.ENFORCE, *, admin_plaintext: bool = True, **more: Any) -> Policy:
    """A policy; admins may sign over plain TCP, since tests do."""
    return Policy(mode, admin_plaintext, **more)


def sign(request: Request, user: str, secret: str | None = None) -> Request:
    """A request as its user's RPC hook sends it."""
    fields = signed(request.ext, request.body, user, SECRETS.get(user, "") if secret is None else secret)
    return replace(request, ext=fields)
