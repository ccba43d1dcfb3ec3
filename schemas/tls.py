# SPDX-License-Identifier: Apache-2.0
"""Modes of TLS for the listeners and their configuration, and the names in a client's certificate.

A name has a kind, because certificate authorities often let the holder choose some names but not others::

    subject:CN=ops,O=Acme     the whole subject, as RFC 4514 writes it
    dns:broker-a.example      a DNS name (letter case does not matter)
    uri:spiffe://acme/ops     a URI
    email:ops@acme.example    an e-mail address
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography import x509


class TlsMode(StrEnum):
    """Connections that a port accepts (TlsMode of RocketMQ's common module)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    """Encrypted and plain connections."""
    ENFORCING = "enforcing"
    """Only encrypted connections."""


class ClientAuth(StrEnum):
    """Requirement of client certificates (tls.server.need.client.auth)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


NAME_FORMS: Final = "subject:CN=ops,O=Acme or dns:ops.example or uri:spiffe://acme/ops or email:ops@acme.example"
_E_MAIL_OID: Final = "1.2.840.113549.1.9.1"


def certificate_names(der: bytes) -> tuple[str, ...]:
    """Return the names in a certificate, each with its kind. Empty if a part of them cannot be read.

    Args:
        der: Bytes of the verified certificate, as `ssl.SSLObject.getpeercert` returns them.
    """
    if not der:
        return ()
    from cryptography import x509

    try:
        certificate = x509.load_der_x509_certificate(der)
        subject = _subject(certificate.subject)
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        others = None
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return ()
    names = [f"subject:{subject}"] if subject else []
    if others is not None:
        names += [f"dns:{name.lower()}" for name in others.get_values_for_type(x509.DNSName)]
        names += [f"uri:{name}" for name in others.get_values_for_type(x509.UniformResourceIdentifier)]
        names += [f"email:{_mailbox(name)}" for name in others.get_values_for_type(x509.RFC822Name)]
    return tuple(dict.fromkeys(names))


def certificate_name(text: str) -> str:
    """Convert a name from a configuration to the form of `certificate_names`.

    Raises:
        ValueError: The text has no kind, or is not a name of its kind. The message names the valid forms.
    """
    kind, _, name = text.partition(":")
    name = name.strip()
    if name and kind == "subject":
        from cryptography import x509
        from cryptography.x509.oid import ObjectIdentifier

        e_mail = ObjectIdentifier(_E_MAIL_OID)
        try:
            return f"subject:{_subject(x509.Name.from_rfc4514_string(name, {'emailAddress': e_mail, 'E': e_mail}))}"
        except ValueError:
            raise ValueError(f"{text!r} is not a subject in the form of RFC 4514: expected {NAME_FORMS}") from None
    if name and kind in _BY_KIND:
        return f"{kind}:{_BY_KIND[kind](name)}"
    raise ValueError(f"{text!r} is not a name of a certificate: expected {NAME_FORMS}")


def _subject(name: x509.Name) -> str:
    """Return a subject in one form: RFC 4514 writes the last part first, and parts of one level have no order."""
    return ",".join("+".join(sorted(one.rfc4514_string() for one in rdn)) for rdn in reversed(name.rdns))


def _mailbox(name: str) -> str:
    local, at, host = name.rpartition("@")
    return f"{local}{at}{host.lower()}"


_BY_KIND: Final[dict[str, Callable[[str], str]]] = {"dns": str.lower, "uri": str, "email": _mailbox}
