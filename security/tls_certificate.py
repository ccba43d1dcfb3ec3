# SPDX-License-Identifier: Apache-2.0
"""When a certificate expires: the one field of X.509 that `ssl` tells of others' certificates alone. Pure.

::

    Certificate ::= SEQUENCE { tbsCertificate SEQUENCE { [0] version OPTIONAL, INTEGER serialNumber,
                               SEQUENCE signature, SEQUENCE issuer, SEQUENCE validity { notBefore, notAfter }, ...

Source: RFC 5280, section 4.1; X.690, section 8.1.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Final

from schemas.errors import SetupError

_END: Final = "-----END CERTIFICATE-----"
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_FORMATS: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""UTCTime and GeneralizedTime."""


def not_after_s(pem: bytes) -> float:
    """When the first certificate of a PEM file expires, seconds since the epoch.

    Raises:
        SetupError: There is none, or it cannot be read.
    """
    text = pem.decode("latin-1")
    begin = text.find("-----BEGIN CERTIFICATE-----")
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        raise SetupError("TLS: no certificate in PEM.")
    try:
        der = ssl.PEM_cert_to_DER_cert(text[begin : end + len(_END)])
        return _not_after_s(der)
    except (ValueError, IndexError, KeyError) as error:
        raise SetupError(f"TLS: a certificate cannot be read: {error}.") from None


def _not_after_s(der: bytes) -> float:
    _, at, _ = _element(der, 0)
    _, at, _ = _element(der, at)
    tag, _, after = _element(der, at)
    if tag == _VERSION:
        at = after
    for _ in range(3):
        _, _, at = _element(der, at)
    tag, at, _ = _element(der, at)
    if tag != _SEQUENCE:
        raise ValueError("no validity where it should be")
    _, _, at = _element(der, at)
    tag, at, end = _element(der, at)
    return datetime.strptime(der[at:end].decode("ascii"), _FORMATS[tag]).replace(tzinfo=UTC).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """An element's tag, where its content begins, and where it ends."""
    tag, length = der[at], der[at + 1]
    at += 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(der[at : at + size], "big"), at + size
    if at + length > len(der):
        raise ValueError("cut short")
    return tag, at, at + length
