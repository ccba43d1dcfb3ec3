# SPDX-License-Identifier: Apache-2.0
"""TLS context of a Kafka client: trusted authorities, and the client's certificate."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from eventlog.kafka.access.settings import AccessError, TlsFiles

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def client_context(files: TlsFiles, source: str) -> ssl.SSLContext:
    """Create a context that verifies the certificates of brokers.

    Args:
        files: TLS files of the client.
        source: Path of the properties file, for messages.

    Raises:
        AccessError: A file is missing or has other content, or the password does not decrypt the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = files.checks_host
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _bound(context, files.versions, source)
    if files.ca is not None:
        pem = _read(files.ca, f"{source}: ssl.truststore.location")
        _believe(context, pem, f"{source}: ssl.truststore.location: {files.ca}")
    if files.ca_pem:
        _believe(context, files.ca_pem, f"{source}: ssl.truststore.certificates")
    if files.ca is None and not files.ca_pem:
        context.load_default_certs()
    if files.cert is not None or files.cert_pem:
        _show(context, files, source)
    return context


def _bound(context: ssl.SSLContext, versions: tuple[str, ...], source: str) -> None:
    if not versions:
        return
    unknown = [version for version in versions if version not in _VERSIONS]
    if unknown:
        raise AccessError(f"{source}: ssl.enabled.protocols: {unknown[0]} is not one of {', '.join(_VERSIONS)}.")
    chosen = sorted(_VERSIONS[version] for version in versions)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]


def _believe(context: ssl.SSLContext, pem: str, where: str) -> None:
    """Trust every listed certificate, self-signed or not, as Java does."""
    if "-----BEGIN CERTIFICATE-----" not in pem:
        raise AccessError(
            f"{where} contains no PEM certificate. Convert a Java store with `keytool -list -rfc -keystore STORE`."
        )
    try:
        context.load_verify_locations(cadata=_certificates(pem))
    except ssl.SSLError as error:
        raise AccessError(f"{where} contains no PEM certificates ({error.reason}).") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _certificates(pem: str) -> str:
    """Return only the certificates. keytool writes comments between them, in any language."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return "".join(f"{begin}{part.partition(end)[0]}{end}\n" for part in pem.split(begin)[1:])


def _show(context: ssl.SSLContext, files: TlsFiles, source: str) -> None:
    where = f"{source}: ssl.keystore"
    for path in filter(None, (files.cert, files.key)):
        _read(path, where)
    asked: list[None] = []

    def answer() -> str:  # without this callback OpenSSL asks at the terminal
        asked.append(None)
        return files.key_password

    with ExitStack() as stack:
        cert = files.cert or stack.enter_context(_private_file(files.cert_pem))
        key = files.key or (stack.enter_context(_private_file(files.key_pem)) if files.key_pem else None)
        try:
            context.load_cert_chain(cert, key, answer)
        except (ssl.SSLError, ValueError) as error:
            why = getattr(error, "reason", None) or "it is not PEM"
            if asked and not files.key_password:
                raise AccessError(f"{where}: the key is encrypted. Give ssl.key.password.") from None
            if asked:
                raise AccessError(f"{where}: ssl.key.password does not open the key.") from None
            if "MISMATCH" in why:
                raise AccessError(
                    f"{where}: the key does not belong to the certificate. Set two that belong together."
                ) from None
            raise AccessError(f"{where} has no certificate with its key in PEM ({why}).") from None


@contextmanager
def _private_file(text: str) -> Iterator[Path]:
    """Write a text to a temporary file that only the owner can read. OpenSSL loads keys only from files."""
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        yield Path(name)
    finally:
        Path(name).unlink()


def _read(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="latin-1")
    except OSError as error:
        raise AccessError(f"{where}: {path} cannot be read: {error.strerror}.") from None
