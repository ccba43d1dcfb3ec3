# SPDX-License-Identifier: Apache-2.0
"""The text of a file of accounts: RocketMQ's plain_acl.yml, with additions for a NameServer.

::

    globalWhiteRemoteAddresses:           # no account needed there: role broker, unless globalWhiteRole says otherwise
      - 10.0.9.*
    accounts:
      - accessKey: orders-broker          # the name, too
        secretKey: file:orders-broker.key # or env:NAME, or the key itself
        role: broker                      # reader (the default), broker, admin; `admin: true` is the last
        clusters: [DefaultCluster]        # a broker speaks for these alone
        brokerNames: [broker-a, broker-b]
        certificate: subject:CN=orders-broker # of its client certificate; or dns:, uri:, email:; or a list of such
        whiteRemoteAddress: 10.0.3.*      # where it needs no signature; without a secretKey: the address is the proof
        token: sha256:2bb80d53...         # for HTTP; or the token itself (16 characters at least), file:, env:
        tokenExpires: 2027-06-30T00:00:00Z

A broker's file may have permissions for topics and groups. They mean nothing to a NameServer, and are ignored.

Source (4.9.8): org.apache.rocketmq.acl.plain.PlainPermissionManager, org.apache.rocketmq.acl.common.AclConstants.

The YAML of the file is read as tables of text, each value with its line. So `no` and `007` are the text as written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, NamedTuple

import yaml

from schemas.tls import certificate_name
from security.accounts import HASHED, Account, Accounts, Matches, rule, written_digest
from security.roles import Role, role_of

_MAX_CHARACTERS: Final = 4 * 1024 * 1024


class FileError(ValueError):
    """Error in a file, with its place. It contains no value of the file."""


class Value(NamedTuple):
    """A value and the line on which it begins, from 1. Null is ""."""

    line: int
    text: str | None = None
    items: tuple[Value, ...] | None = None
    table: Mapping[str, Value] | None = None


def read_yaml(text: str) -> Value:
    """Return the only document of a file. An empty file is an empty table.

    Raises:
        FileError: The text is not YAML, has a key twice, or has an alias.
    """
    if len(text) > _MAX_CHARACTERS:
        raise FileError(f"larger than {_MAX_CHARACTERS} characters")
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AliasToken | yaml.AnchorToken):
                raise FileError(f"line {token.start_mark.line + 1}: anchors and aliases are not supported")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return Value(1, table={}) if node is None else _value(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FileError(
            f"line {mark.line + 1 if mark else 1}: not valid YAML: {error.problem or error.context}"
        ) from None
    except yaml.YAMLError:
        raise FileError("not valid YAML: it contains a character that YAML forbids") from None
    except RecursionError:
        raise FileError("not valid: nested too deeply") from None


def _value(node: yaml.Node) -> Value:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        is_null = node.tag == "tag:yaml.org,2002:null"
        return Value(line, "" if is_null else node.value)
    if isinstance(node, yaml.SequenceNode):
        return Value(line, items=tuple(_value(item) for item in node.value))
    table: dict[str, Value] = {}
    for key, value in node.value:
        at = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise FileError(f"line {at}: a key is not text")
        if key.value in table:
            raise FileError(f"line {at}: the key {key.value!r} occurs twice")
        table[key.value] = _value(value)._replace(line=at)
    return Value(line, table=table)


Resolve = Callable[[str], str]
"""Reader of a reference ``file:NAME`` or ``env:NAME``. Raises ValueError with a sentence that shows no secret."""

LEAST_SECRET: Final = 6
"""Minimum length of a secretKey, as in RocketMQ (AclConstants.SECRET_KEY_MIN_LENGTH)."""

LEAST_TOKEN: Final = 16
"""Minimum length of a token that is not given by its digest. If an attacker guesses it, the attacker is an admin."""

_TOP: Final = frozenset({"globalWhiteRemoteAddresses", "globalWhiteRole", "accounts", "dataVersion"})
_OF_BROKERS: Final = frozenset({"defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms", "namespacePerms"})
_OF_ACCOUNT: Final = _OF_BROKERS | {
    "accessKey", "secretKey", "whiteRemoteAddress", "admin", "role", "clusters", "brokerNames", "certificate",
    "token", "tokenExpires",
}  # fmt: skip


def parse_accounts(text: str, resolve: Resolve) -> Accounts:
    """Read the accounts from a file's text.

    Args:
        text: Text of the file.
        resolve: Reader of the file's references.

    Raises:
        FileError: The file has an invalid entry. The message names line or account, and shows no secret.
    """
    top = _table(read_yaml(text), _TOP, "the file")
    accounts: dict[str, Account] = {}
    tokens: dict[bytes, str] = {}
    certificates: dict[str, str] = {}
    for entry in _items(top.get("accounts"), "accounts"):
        account = _account(entry, resolve)
        if account.user in accounts:
            raise FileError(f"line {entry.line}: there are two accounts {account.user!r}")
        accounts[account.user] = account
        for name in account.certificates:
            other = certificates.setdefault(name, account.user)
            if other != account.user:
                raise FileError(f"account {account.user!r}: certificate {name!r} belongs to account {other!r}, too")
        if account.token_digest is not None:
            other = tokens.setdefault(account.token_digest, account.user)
            if other != account.user:
                raise FileError(f"account {account.user!r}: its token belongs to account {other!r}, too")
    white = [
        _rule(_text(item, "globalWhiteRemoteAddresses"), f"line {item.line}")
        for item in _items(top.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses")
    ]
    white_role = top.get("globalWhiteRole")
    role = Role.BROKER if white_role is None else _role(_text(white_role, "globalWhiteRole"), f"line {white_role.line}")
    return Accounts(accounts.values(), white, role)


def _account(entry: Value, resolve: Resolve) -> Account:
    fields = _table(entry, _OF_ACCOUNT, f"line {entry.line}: an account")
    key = fields.get("accessKey")
    user = "" if key is None else _text(key, "accessKey").strip()
    if not user:
        raise FileError(f"line {entry.line}: an account without accessKey, which is its name")
    where = f"account {user!r} (line {entry.line})"

    def text(name: str) -> str:
        value = fields.get(name)
        return "" if value is None else _text(value, name).strip()

    def secret(name: str) -> str:
        try:
            given = text(name)
            return resolve(given).strip() if given.startswith(("file:", "env:")) else given
        except ValueError as error:
            raise FileError(f"{where}: {name}: {error}") from None

    def names(name: str) -> tuple[str, ...]:
        value = fields.get(name)
        listed = () if value is None else value.items if value.items is not None else (value,)
        return tuple(found for item in listed if (found := _text(item, name).strip()))

    def certificate(name: str) -> str:
        try:
            return certificate_name(name)
        except ValueError as error:
            raise FileError(f"{where}: certificate: {error}") from None

    role = _account_role(text("role"), text("admin"), where)
    secret_key = secret("secretKey")
    if secret_key and len(secret_key) < LEAST_SECRET:
        raise FileError(f"{where}: its secretKey has fewer than {LEAST_SECRET} characters")
    white = text("whiteRemoteAddress")
    account = Account(
        user=user,
        role=role,
        clusters=frozenset(names("clusters")),
        broker_names=frozenset(names("brokerNames")),
        secret_key=secret_key or None,
        token_digest=_token_digest(secret("token"), where),
        token_expires_s=_time_s(text("tokenExpires"), where),
        certificates=tuple(certificate(name) for name in names("certificate")),
        white=_rule(white, where) if white else None,
    )
    if role is not Role.BROKER and (account.clusters or account.broker_names):
        raise FileError(f"{where}: clusters and brokerNames bind a broker; its role is {role.word}")
    if account.token_expires_s is not None and account.token_digest is None:
        raise FileError(f"{where}: tokenExpires is set, but token is not")
    if not (secret_key or white or account.token_digest or account.certificates):
        raise FileError(f"{where}: it has no credentials: set secretKey, certificate, token or whiteRemoteAddress")
    return account


def _account_role(role: str, admin: str, where: str) -> Role:
    if admin.lower() not in ("", "true", "false"):
        raise FileError(f"{where}: admin must be true or false")
    is_admin = admin.lower() == "true"
    if not role:
        return Role.ADMIN if is_admin else Role.READER
    found = _role(role, where)
    if is_admin and found is not Role.ADMIN:
        raise FileError(f"{where}: admin is true, but role is {found.word}: remove one of the two")
    return found


def _role(word: str, where: str) -> Role:
    found = role_of(word.strip())
    if found is None:
        raise FileError(f"{where}: there is no role {word[:40]!r}: set reader, broker or admin")
    return found


def _rule(text: str, where: str) -> Matches:
    try:
        return rule(text)
    except ValueError as error:
        raise FileError(f"{where}: {error}") from None


def _token_digest(token: str, where: str) -> bytes | None:
    if not token:
        return None
    if not token.startswith(HASHED) and len(token) < LEAST_TOKEN:
        raise FileError(
            f"{where}: its token has fewer than {LEAST_TOKEN} characters: make one with `openssl rand -hex 32`"
        )
    try:
        return written_digest(token)
    except ValueError as error:
        raise FileError(f"{where}: its token {error}") from None


def _time_s(text: str, where: str) -> float | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise FileError(f"{where}: tokenExpires is not a time such as 2027-06-30T00:00:00Z") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _table(value: Value, known: Iterable[str], what: str) -> dict[str, Value]:
    if value.table is None:
        raise FileError(f"line {value.line}: {what} must have keys, each with a colon, such as `accounts:`")
    for name, found in value.table.items():
        if name not in known:
            nearest = get_close_matches(name[:64], list(known), 1)
            hint = f". Did you mean {nearest[0]}?" if nearest else ""
            raise FileError(f"line {found.line}: there is no key {name[:64]!r}{hint}")
    return dict(value.table)


def _items(value: Value | None, name: str) -> tuple[Value, ...]:
    if value is None or value.text == "":
        return ()
    if value.items is None:
        raise FileError(f"line {value.line}: {name} must be a list")
    return value.items


def _text(value: Value, name: str) -> str:
    if value.text is None:
        raise FileError(f"line {value.line}: {name} must be text")
    return value.text
