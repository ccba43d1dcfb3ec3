# SPDX-License-Identifier: Apache-2.0
"""Java's names of cipher suites and OpenSSL's, and which versions of TLS they leave. Pure but for OpenSSL's own list.

Java names a suite as the RFCs do, OpenSSL by names of its own up to TLS 1.2::

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256    ECDHE-RSA-AES128-GCM-SHA256
    TLS_RSA_WITH_AES_256_CBC_SHA             AES256-SHA
    TLS_AES_128_GCM_SHA256                   the same: TLS 1.3

Sources (5.5.0): TlsSystemConfig.tlsCiphers and tlsProtocols, TlsHelper.buildSslContext;
sun.security.ssl.CipherSuite (JDK 17).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Final

from schemas.errors import SetupError

_JAVA: Final = re.compile(r"(?:TLS|SSL)_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+)")
_BLOCK: Final = re.compile(r"(AES|CAMELLIA|ARIA)_(\d{3})")
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def openssl_name(name: str) -> str:
    """OpenSSL's name of a suite; a name that is not Java's comes back as it is."""
    match = _JAVA.fullmatch(name)
    if match is None:
        return name
    exchange = match["exchange"].replace("_", "-")
    cipher = _BLOCK.sub(r"\1\2", match["cipher"])
    cipher = cipher.replace("_CBC", "").replace("3DES_EDE", "DES_CBC3").replace("POLY1305_SHA256", "POLY1305")
    return "-".join(([] if exchange == "RSA" else [exchange]) + [cipher.replace("_", "-")])


def split_suites(names: Sequence[str], source: str) -> tuple[tuple[str, ...], bool]:
    """Divide a list of suites for OpenSSL.

    Args:
        names: Names of suites, Java's or OpenSSL's.
        source: Origin of the list, for the message.

    Returns:
        The suites up to TLS 1.2, by OpenSSL's names, and whether the list has one of TLS 1.3.

    Raises:
        SetupError: A suite is unknown to this machine's OpenSSL.
    """
    everything = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    everything.set_ciphers("ALL:@SECLEVEL=0")
    known = {suite["name"]: suite["protocol"] for suite in everything.get_ciphers()}
    unknown = [name for name in names if openssl_name(name) not in known]
    if unknown:
        raise SetupError(
            f"{source}: no such cipher suite: {', '.join(unknown)}. Names are Java's or OpenSSL's; "
            "`openssl ciphers -stdname` lists both."
        )
    found = [openssl_name(name) for name in names]
    return tuple(name for name in found if known[name] != "TLSv1.3"), any(known[name] == "TLSv1.3" for name in found)


def version_range(names: Sequence[str], source: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """The lowest and the highest version of a list such as TLSv1.2, TLSv1.3; both without one.

    Raises:
        SetupError: One is not offered.
    """
    unknown = [name for name in names if name not in VERSIONS]
    if unknown:
        raise SetupError(f"{source}: {', '.join(unknown)} is not offered; {' and '.join(VERSIONS)} are. Leave it out.")
    found = sorted(VERSIONS[name] for name in names or VERSIONS)
    return found[0], found[-1]
