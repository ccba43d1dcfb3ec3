# SPDX-License-Identifier: Apache-2.0
"""TLS of a client: trusted CAs, and the client's own certificate.

As with RocketMQ's ``tls.enable``, one switch is for all connections of the client, to NameServers and brokers. Unlike
RocketMQ's clients, this one checks that a certificate is for the requested host.

A broker presents the same certificate to its clients, and accepts plain connections, too (TlsMode.PERMISSIVE,
RocketMQ's default).
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from remoting.server.tls_channel import ListenerTls
from schemas.errors import SetupError


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS settings of all connections of a client.

    Attributes:
        ca: PEM file of the trusted authorities. Empty: the authorities of the system.
        cert: PEM file of the client's own certificate and its chain. Empty: no certificate.
        key: PEM file of the certificate's key. Empty: the key is in ``cert``.
        key_password: Password of the key.
        insecure: Whether any server certificate is accepted.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """Create the TLS context for any number of connections.

        Raises:
            SetupError: A file cannot be used, or a key has no certificate.
        """
        if self.key and not self.cert:
            raise SetupError("--tls-key is the key of a certificate. Set --tls-cert, too.")
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ValueError) as error:
            raise SetupError(f"--tls-ca {self.ca} holds no certificates in PEM: {_why(error)}.") from None
        if self.ca:
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # every listed certificate is trusted
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert:
            self._show(context)
        return context

    def listener(self) -> ListenerTls | None:
        """Return the TLS settings for a broker's own port, or None without a certificate. Raises SetupError."""
        if not self.cert:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._show(context)
        return ListenerTls(context)

    def _show(self, context: ssl.SSLContext) -> None:
        try:
            # Without a password OpenSSL would ask at the terminal, and a service has no terminal.
            context.load_cert_chain(self.cert, self.key or None, lambda: self.key_password)
        except (OSError, ValueError) as error:
            files = " and ".join(filter(None, (self.cert, self.key)))
            raise SetupError(
                f"--tls-cert, --tls-key: {files} cannot be used: {_why(error)}. Name a certificate and the key "
                "that belongs to it, and if that is encrypted, --tls-key-password."
            ) from None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
