# SPDX-License-Identifier: Apache-2.0
"""Names in certificates have kinds: a name of another kind that reads the same makes no client an admin."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier

from schemas.tls import certificate_name, certificate_names
from security.accounts import Accounts
from security.accounts_text import parse_accounts
from security.identity import Identity, Unproven

KEY = ec.generate_private_key(ec.SECP256R1())
SAN_OID = ObjectIdentifier("2.5.29.17")


def certificate(
    subject: x509.Name | str, *names: x509.GeneralName, extension: x509.ExtensionType | None = None
) -> bytes:
    name = x509.Name.from_rfc4514_string(subject) if isinstance(subject, str) else subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2030, 1, 1, tzinfo=UTC))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if extension is not None:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def accounts(*names: str) -> Accounts:
    text = "accounts:\n" + "".join(
        f"  - {{accessKey: ops-{at}, role: admin, certificate: '{name}'}}\n" for at, name in enumerate(names)
    )
    return parse_accounts(text, lambda _: "")


def test_the_names_and_their_kinds() -> None:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ' #"a+b'),
            x509.NameAttribute(NameOID.COMMON_NAME, "c=d "),
        ]
    )
    der = certificate(
        subject,
        x509.DNSName("H.example"),
        x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
        x509.UniformResourceIdentifier("spiffe://Acme/ops"),
        x509.RFC822Name("Ops@ACME.example"),
        x509.DNSName("h.example"),
    )
    assert certificate_names(der) == (
        'subject:CN=c=d\\ ,O=\\ #\\"a\\+b,C=DE',
        "dns:h.example",
        "uri:spiffe://Acme/ops",
        "email:Ops@acme.example",
    )
    assert certificate_names(b"") == certificate_names(b"\x30\x00") == ()


@pytest.mark.parametrize(
    "der",
    [
        certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "CN=ops")])),
        certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "subject:CN=ops")])),
        certificate("CN=ops,CN=x"),
        certificate("CN=x,CN=ops"),
        certificate("CN=ops+CN=x"),
        certificate("CN=ops,O=Acme"),
        certificate("OU=ops"),
        certificate("CN=OPS"),
        certificate("CN=ops\\ "),
        certificate("CN=x", x509.UniformResourceIdentifier("CN=ops")),
        certificate("CN=x", x509.UniformResourceIdentifier("subject:CN=ops")),
        certificate("CN=x", x509.RFC822Name("CN=ops")),
        certificate("CN=x", x509.DNSName("CN=ops")),
        certificate("CN=x", x509.DNSName("ops")),
        certificate(x509.Name([]), x509.DirectoryName(x509.Name.from_rfc4514_string("CN=ops"))),
        certificate("CN=x", x509.UniformResourceIdentifier("dns:ops.example")),
        certificate("CN=ops.example"),
        certificate("CN=ops@acme.example"),
        certificate("CN=x", x509.DNSName("ops.example\0.evil")),
        certificate("CN=x", x509.DNSName("*.example")),
        certificate("CN=x", x509.UniformResourceIdentifier("SPIFFE://acme/ops")),
        certificate("CN=x", x509.UniformResourceIdentifier("spiffe://acme/ops/")),
        certificate("CN=x", x509.DNSName("ops@acme.example")),
        certificate("CN=x", x509.RFC822Name("OPS@acme.example")),
        # A part that cannot be read invalidates the whole certificate.
        certificate("CN=ops", extension=x509.UnrecognizedExtension(SAN_OID, b"\x30\x03\x82\x01\xff")),
        certificate("CN=ops", extension=x509.UnrecognizedExtension(SAN_OID, b"junk")),
    ],
)
def test_a_certificate_name_of_another_kind_identifies_no_account(der: bytes) -> None:
    found = accounts("subject:CN=ops", "dns:ops.example", "uri:spiffe://acme/ops", "email:ops@acme.example")
    assert found.by_certificate(certificate_names(der)) is None


@pytest.mark.parametrize(
    ("written", "der"),
    [
        ("subject:CN=ops", certificate("CN=ops")),
        ("subject: CN=ops,O=Acme\\, Inc.,C=DE", certificate("CN=ops,O=Acme\\, Inc.,C=DE", x509.DNSName("x"))),
        ("subject:OU=b+CN=a", certificate("CN=a+OU=b")),
        (
            "subject:emailAddress=a@b.example,CN=ops",
            certificate(x509.Name.from_rfc4514_string("1.2.840.113549.1.9.1=a@b.example,CN=ops")),
        ),
        ("dns:OPS.example", certificate("CN=x", x509.DNSName("ops.EXAMPLE"))),
        ("uri:spiffe://acme/ops", certificate("CN=x", x509.UniformResourceIdentifier("spiffe://acme/ops"))),
        ("email:ops@ACME.example", certificate("CN=x", x509.RFC822Name("ops@acme.example"))),
    ],
)
def test_a_certificate_name_of_its_kind_identifies_the_account(written: str, der: bytes) -> None:
    found = accounts(written).by_certificate(certificate_names(der))
    assert isinstance(found, Identity)
    assert (found.user, found.by) == ("ops-0", "certificate")


def test_a_certificate_with_names_of_two_accounts_identifies_none() -> None:
    der = certificate("CN=ops", x509.DNSName("other.example"), x509.DNSName("mine.example"))
    found = accounts("subject:CN=ops", "dns:other.example").by_certificate(certificate_names(der))
    assert isinstance(found, Unproven)
    assert (found.reason, "ops-0 and ops-1" in found.remark) == ("two-accounts", True)


@pytest.mark.parametrize(
    "written",
    [
        "CN=ops",
        "ops",
        "",
        "subject:",
        "subject:ops",
        "subject:CN=",
        "dns:",
        "DNS:ops",
        "cn:ops",
        "subject:C = DE",
        "ip:::1",
    ],
)
def test_a_name_without_a_kind_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="expected subject:CN=ops"):
        certificate_name(written)
