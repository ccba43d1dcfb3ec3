# SPDX-License-Identifier: Apache-2.0
"""TLS contexts made from settings. The files are read, and the contexts are tested before the first connection."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509

from remoting.errors import why_not_tls
from runtime.secrets import resolve
from schemas.errors import SetupError
from schemas.tls import ClientAuth
from security.tls_config import TlsSettings

_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class Contexts:
    """TLS contexts for new connections.

    Attributes:
        remoting: Context for port 9876.
        http: Context for port 8080. It never requires a certificate, because probes have none and read health.
        not_after_s: Time at which the certificate expires, in seconds since the epoch.
    """

    remoting: ssl.SSLContext
    http: ssl.SSLContext
    not_after_s: float


def build(settings: TlsSettings) -> Contexts:
    """Read the files, and make tested contexts.

    Raises:
        SetupError: A file is missing, a key does not fit, or no handshake succeeds. The message names the action.
    """
    password = resolve(settings.key_password, "the password of the TLS key", may_be_empty=True)
    for_http = ClientAuth.OPTIONAL if settings.client_auth is ClientAuth.REQUIRE else settings.client_auth
    trial = _context(settings, password, ClientAuth.NONE)
    _try(trial, settings)
    return Contexts(
        remoting=_context(settings, password, settings.client_auth),
        http=_context(settings, password, for_http),
        not_after_s=not_after_s(settings.cert),
    )


def not_after_s(path: Path) -> float:
    """Return the time at which the first certificate of a PEM file expires, in seconds since the epoch.

    Raises:
        SetupError: The file has no certificate, or it cannot be read.
    """
    try:
        return x509.load_pem_x509_certificate(_read(path, "certificate")).not_valid_after_utc.timestamp()
    except ValueError as error:
        raise SetupError(
            f"TLS: the certificate {path} is damaged: {error}. Replace the file. "
            f"`openssl x509 -in {path} -noout` tests it."
        ) from None


def _context(settings: TlsSettings, password: str, client_auth: ClientAuth) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = settings.lowest, settings.highest
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # connections live for hours, so none needs to resume, nor may it after a new `client_ca`
    if settings.ciphers:
        context.set_ciphers(":".join(settings.ciphers))
    _load_pair(context, settings, password)
    context.verify_mode = _VERIFY[client_auth]
    if client_auth is not ClientAuth.NONE and settings.client_ca is not None:
        _read(settings.client_ca, "clients' CA")
        try:
            context.load_verify_locations(settings.client_ca)
        except ssl.SSLError as error:
            raise SetupError(
                f"TLS: the clients' CA {settings.client_ca} has no certificate in PEM ({why_not_tls(error)}). "
                "Name a file with the certificates of the authorities that sign clients' certificates."
            ) from None
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java: every listed certificate is trusted
    return context


def _load_pair(context: ssl.SSLContext, settings: TlsSettings, password: str) -> None:
    certificate, key = _read(settings.cert, "certificate"), _read(settings.key, "key")
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise SetupError(
            f"TLS: {settings.cert} has no certificate in PEM. Name the file of the certificate, not of the key."
        )
    if b"PRIVATE KEY-----" not in key:
        raise SetupError(
            f"TLS: {settings.key} has no private key in PEM. Name the file of the key, not of the certificate."
        )
    asked: list[None] = []

    def answer() -> str:  # without this function OpenSSL asks at the terminal
        asked.append(None)
        return password

    try:
        context.load_cert_chain(settings.cert, settings.key, answer)
    except (ssl.SSLError, ValueError) as error:
        reason = why_not_tls(error)
        if "mismatch" in reason:
            raise SetupError(
                f"TLS: the key {settings.key} does not fit the certificate {settings.cert}. "
                "Name the two that belong together."
            ) from None
        if asked and not password:
            raise SetupError(
                f"TLS: the key {settings.key} is encrypted. Set --tls-key-password to file:PATH or env:NAME, "
                "or set tls.server.keyPassword."
            ) from None
        if asked:
            raise SetupError(
                f"TLS: the password does not open the key {settings.key}. Correct --tls-key-password or "
                "tls.server.keyPassword."
            ) from None
        not_after_s(settings.cert)  # its error names the file, if the certificate is the damaged one
        raise SetupError(
            f"TLS: {settings.cert} and {settings.key} cannot be used: {reason}. Replace the file that is damaged. "
            "`openssl x509` and `openssl pkey` test them."
        ) from None


def _try(server: ssl.SSLContext, settings: TlsSettings) -> None:
    """Do a handshake with a client in this process, in memory.

    Raises:
        SetupError: The handshake failed.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    client.set_ciphers("ALL")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                raise SetupError(
                    f"TLS: no client could connect with {settings.cert}: {why_not_tls(error)}. "
                    "Look at tls.ciphers and tls.protocols: a suite has to fit the kind of key."
                ) from None


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SetupError(
            f"TLS: the {what} {path} cannot be read: {error.strerror}. Correct the path or the permissions."
        ) from error
