# SPDX-License-Identifier: Apache-2.0
"""The file of accounts: RocketMQ's plain_acl.yml, and more."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import SetupError
from security.accounts import Accounts, identify
from security.accounts_file import CUT_OFF_LOOKS, AccountsFile
from security.accounts_text import FileError, parse_accounts
from security.identity import Identity, Unproven
from security.roles import Role
from security.signature import signed

# As RocketMQ 4.9.8 ships it.
STOCK = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""

OURS = """
accounts:
  - accessKey: b
    secretKey: 007123
    role: broker
    clusters: [c1, c2]
    brokerNames: broker-a
    certificate: ["subject:CN=b,O=x", "dns:B.example"]
  - accessKey: r
    token: of-reader-and-longer
    tokenExpires: 2027-01-01T00:00:00Z
  - accessKey: old
    role: broker
    whiteRemoteAddress: 10.0.3.*
"""


def no_references(text: str) -> str:
    raise AssertionError(text)


def parse(text: str) -> Accounts:
    return parse_accounts(text, no_references)


def test_the_file_of_a_stock_broker() -> None:
    accounts = parse(STOCK)
    assert [(a.user, a.role, a.secret_key) for a in accounts.accounts.values()] == [
        ("RocketMQ", Role.READER, "12345678"),
        ("rocketmq2", Role.ADMIN, "12345678"),
    ]
    white = accounts.by_address("192.168.0.9")
    assert white is not None
    assert (white.role, white.by) == (Role.BROKER, "address")
    assert accounts.by_address("192.168.1.9") is None, "it has a secretKey: it names itself"
    named = accounts.by_signature({"AccessKey": "rocketmq2"}, b"", "192.168.1.9")
    assert isinstance(named, Identity)
    assert (named.user, named.by) == ("rocketmq2", "address")
    assert accounts.by_address("") is None
    assert accounts.by_address("::ffff:10.10.103.7") == white


def test_what_a_nameserver_needs() -> None:
    accounts = parse(OURS)
    broker = accounts.by_certificate(("subject:CN=x", "dns:b.example"))
    assert broker == Identity("b", Role.BROKER, "certificate", frozenset({"c1", "c2"}), frozenset({"broker-a"}))
    assert accounts.accounts["b"].secret_key == "007123"
    assert accounts.by_certificate(("subject:CN=r",)) is None
    old = accounts.by_address("10.0.3.200")
    assert old is not None
    assert old.user == "old"
    before, after = 1_798_761_599.0, 1_798_761_600.0
    assert accounts.by_token(b"of-reader-and-longer", before) == Identity("r", Role.READER, by="token")
    found = accounts.by_token(b"of-reader-and-longer", after)
    assert isinstance(found, Unproven)
    assert found.reason == "expired-token"
    assert isinstance(accounts.by_token(b"", before), Unproven)


def test_a_request_is_identified_by_signature_or_address() -> None:
    accounts = parse(OURS)
    other = accounts.by_address("10.0.3.1")

    def asked(fields: dict[str, str] | None, otherwise: Identity | None = None) -> tuple[str | None, str]:
        found = identify(accounts, fields, b"body", "10.9.9.9", otherwise)
        return found.user, found.by if isinstance(found, Identity) else found.reason

    assert asked(signed({"topic": "t"}, b"body", "b", "007123")) == ("b", "signature")
    assert asked(signed({"topic": "t"}, b"body", "b", "7123")) == ("b", "bad-signature")
    assert asked({"AccessKey": "b"}, other) == ("b", "bad-signature")
    assert asked({"AccessKey": "who"}) == (None, "unknown-key")
    assert asked({"AccessKey": "r"}) == (None, "unknown-key"), "it has no secretKey"
    assert asked({"AccessKey": "who"}, other) == ("old", "address"), "a key of another system"
    assert asked({"topic": "t"}) == asked(None) == (None, "anonymous")
    assert asked(None, other) == ("old", "address")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accounts: [", "line 1: not valid YAML"),
        ("a: 1\na: 2", "line 2: the key 'a' occurs twice"),
        ("x: &a 1\ny: *a", "line 1: anchors"),
        ("accounts: 7", "line 1: accounts must be a list"),
        ("- 7", "line 1: the file must have keys"),
        ("account: []", "line 1: there is no key 'account'"),
        ("accounts:\n  - accesKey: a", "line 2: there is no key 'accesKey'"),
        ("accounts:\n  - secretKey: secret1", "line 2: an account without accessKey"),
        ("accounts:\n  - {accessKey: a, secretKey: short}", "account 'a' (line 2): its secretKey has fewer"),
        ("accounts:\n  - {accessKey: a, secretKey: secret1, role: king}", "no role 'king'"),
        ("accounts:\n  - {accessKey: a, secretKey: secret1, admin: true, role: reader}", "admin is true"),
        ("accounts:\n  - {accessKey: a, secretKey: secret1, admin: perhaps}", "admin must be true or false"),
        ("accounts:\n  - {accessKey: a, secretKey: secret1, clusters: [c]}", "bind a broker"),
        ("accounts:\n  - {accessKey: a}", "it has no credentials"),
        ("accounts:\n  - {accessKey: a, whiteRemoteAddress: 10.0}", "is not an address rule"),
        ("accounts:\n  - {accessKey: a, token: 'sha256:zz'}", "not a SHA-256 digest"),
        ("accounts:\n  - {accessKey: a, token: b}", "account 'a' (line 2): its token has fewer than 16 characters"),
        ("accounts:\n  - {accessKey: a, token: 0123456789abcde}", "its token has fewer than 16 characters"),
        ("accounts:\n  - {accessKey: a, token: 0123456789abcdef, tokenExpires: soon}", "not a time"),
        (
            "accounts:\n  - {accessKey: a, secretKey: secret1, tokenExpires: 2027-01-01}",
            "tokenExpires is set, but token is not",
        ),
        (
            "accounts:\n  - {accessKey: a, token: 0123456789abcdef}\n  - {accessKey: b, token: 0123456789abcdef}",
            "belongs to account 'a', too",
        ),
        (
            "accounts:\n  - {accessKey: a, certificate: 'dns:n'}\n  - {accessKey: b, certificate: 'dns:N'}",
            "belongs to account 'a', too",
        ),
        (
            "accounts:\n  - {accessKey: a, token: 0123456789abcdef}\n  - {accessKey: a, token: 0123456789abcdeg}",
            "line 3: there are two",
        ),
        ("globalWhiteRemoteAddresses: [nowhere]", "line 1: 'nowhere' is not an address rule"),
        ("globalWhiteRole: king", "no role 'king'"),
        ("accounts:\n  - {accessKey: [a]}", "accessKey must be text"),
        ("accounts: \x00", "not valid"),
        ("accounts: " + "[" * 1000, "not valid"),
    ],
)
def test_a_contradictory_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(FileError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "secret1" not in str(caught.value)


def test_an_empty_file_has_nobody() -> None:
    assert not parse("").accounts
    assert not parse("accounts:\nglobalWhiteRemoteAddresses:\n").accounts


@given(st.text(max_size=60))
def test_any_text_is_accounts_or_refused(text: str) -> None:
    try:
        parse_accounts(text, lambda _: "secret")
    except FileError as error:
        assert str(error)


def test_secrets_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.key").write_text("of-a-1234\n")
    file = tmp_path / "acl.yml"
    file.write_text(
        "accounts:\n  - {accessKey: a, secretKey: 'file:a.key'}\n  - {accessKey: b, secretKey: 'env:B'}\n"
        f"  - {{accessKey: c, token: 'sha256:{hashlib.sha256(b'of-c').hexdigest()}'}}\n"
    )
    found = AccountsFile(file, {"B": "of-b-1234"})
    secrets = [account.secret_key for account in found.current.accounts.values()]
    assert secrets == ["of-a-1234", "of-b-1234", None]
    assert isinstance(found.current.by_token(b"of-c", 0.0), Identity)
    assert "1234" not in repr(found.current.accounts)
    assert not found.check()
    (tmp_path / "a.key").write_text("of-a-56789\n")
    assert taken(found)
    assert found.current.accounts["a"].secret_key == "of-a-56789"
    (tmp_path / "a.key").unlink()
    assert taken(found)
    assert found.problem is not None
    assert "a.key cannot be read" in found.problem
    assert found.current.accounts["a"].secret_key == "of-a-56789", "the old ones hold"


def taken(file: AccountsFile, looks: int = 2) -> bool:
    """Whether a change is taken at the last of so many looks, and not before."""
    before = [file.check() for _ in range(looks - 1)]
    assert not any(before)
    return file.check()


WHOLE = """accounts:
  - accessKey: first
    secretKey: of-first
    role: broker
    brokerNames: [broker-a]
  - accessKey: second
    secretKey: of-second
    role: broker
    brokerNames: [broker-b]
"""


@pytest.mark.parametrize("end", range(len(WHOLE)))
def test_the_first_part_of_a_file_is_not_taken(tmp_path: Path, end: int) -> None:
    """Wherever it ends, and though half a file is YAML: no user loses an account, and no account loses its bounds."""
    file = tmp_path / "acl.yml"
    file.write_text(WHOLE)
    found = AccountsFile(file)
    first = found.current
    file.write_text(WHOLE[:end])
    for _ in range(CUT_OFF_LOOKS - 1):
        found.check()
        assert found.current is first
    file.write_text(WHOLE.replace("of-second", "of-second-2"))
    assert [found.check(), found.check()] == [False, True]
    assert found.problem is None
    assert found.current.accounts["second"].secret_key == "of-second-2"
    assert found.current.accounts["first"] == first.accounts["first"]


def test_an_account_that_is_removed_is_gone_at_last(tmp_path: Path) -> None:
    file = tmp_path / "acl.yml"
    file.write_text(WHOLE)
    found = AccountsFile(file)
    file.write_text(WHOLE[: WHOLE.index("  - accessKey: second")])
    assert taken(found, CUT_OFF_LOOKS)
    assert found.current.accounts.keys() == {"first"}
    assert not any(found.check() for _ in range(2 * CUT_OFF_LOOKS)), "it is as it was read"


def test_a_file_that_grows_while_it_is_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "acl.yml"
    file.write_text(WHOLE)
    found = AccountsFile(file)
    more = WHOLE + "".join(f"  - {{accessKey: more-{n}, secretKey: of-more-{n}}}\n" for n in range(9))
    for end in range(0, len(more), 7):
        file.write_text(more[:end])
        assert not found.check()
        assert found.current.accounts.keys() == {"first", "second"}
    file.write_text(more)
    assert taken(found)
    assert len(found.current.accounts) == 11


def test_a_file_that_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "acl.yml"
    with pytest.raises(SetupError, match="cannot be read"):
        AccountsFile(file)
    file.write_text("accounts: 7")
    with pytest.raises(SetupError, match=r"acl.yml: line 1"):
        AccountsFile(file)
    file.write_text("accounts:\n  - {accessKey: a, secretKey: secret1}\n")
    found = AccountsFile(file)
    first = found.current
    file.write_text("accounts:\n  - {accessKey: a, secretKey: secret2, admin: maybe}\n")
    assert taken(found)
    assert found.problem is not None
    assert found.current is first
    file.write_bytes(b"\xff\xfe")
    assert taken(found)
    assert found.problem == "is not UTF-8 text"
    Path(file).unlink()
    assert taken(found)
    assert found.current is first
    file.write_text("accounts:\n  - {accessKey: a, secretKey: secret2}\n")
    assert taken(found)
    assert found.problem is None
    assert found.current.accounts["a"].secret_key == "secret2"
    assert found.loads == 2
