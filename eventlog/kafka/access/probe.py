# SPDX-License-Identifier: Apache-2.0
"""Probe that finds out why Kafka refuses access, step by step.

For a wrong password, an untrusted certificate and plain text on a TLS port, kafka-python reports the same error:
"Unable to bootstrap". The probe takes single steps: connect, TLS handshake, ask for versions, ask for the SASL
mechanism, authenticate, ask for brokers. The listener closes the connection at the step that it rejects, so the step
shows the cause. If two causes remain, the probe tries the other protocol on a new connection.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple, NoReturn

from eventlog.kafka.access import wire
from eventlog.kafka.access.options import client_options
from eventlog.kafka.access.settings import AccessError, KafkaAccess, Protocol
from schemas.errors import UnavailableError, one_line

_ANSWER_S: Final = 5.0

_HOST_MISMATCH: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_EXPIRED: Final = 10


class Refusal(NamedTuple):
    """Reason for a refusal.

    Attributes:
        what: A sentence without its full stop that begins with the address.
        advice: A sentence with the remedy.
        is_final: Whether the refusal lasts until an operator acts. False for a broker that is down.
    """

    what: str
    advice: str
    is_final: bool

    def __str__(self) -> str:
        return f"{self.what}. {self.advice}"


class _RefusedError(Exception):
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.what)


def refusal(bootstrap: Sequence[str], access: KafkaAccess) -> Refusal | None:
    """Return the reason why no address gives access, or None if one does.

    Args:
        bootstrap: One or more addresses, as ``host:port``.
        access: Client settings.

    Raises:
        AccessError: A file that the settings name cannot be used.
    """
    found: list[Refusal] = []
    for address in bootstrap:
        try:
            _Visit(address, access).pay()
        except _RefusedError as error:
            found.append(error.refusal)
        else:
            return None
    return next((one for one in found if one.is_final), found[0])


def check_access(bootstrap: Sequence[str], access: KafkaAccess, *, waits: bool) -> None:
    """Make sure that Kafka gives access.

    Args:
        bootstrap: Addresses, as for `refusal`.
        access: Client settings.
        waits: Whether the caller waits for Kafka itself. Then an unreachable Kafka is no error here.

    Raises:
        AccessError: Kafka refuses access until an operator acts.
        UnavailableError: Kafka cannot be reached.
    """
    why = refusal(bootstrap, access)
    if why is not None and why.is_final:
        raise AccessError(str(why))
    if why is not None and not waits:
        raise UnavailableError(str(why))


class _Visit:
    """One attempt at one address."""

    def __init__(self, address: str, access: KafkaAccess) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.removeprefix("[").removesuffix("]"), int(port)
        self._address = address
        self._access = access
        self._where = f"{access.source or '--event-log-config'}: "

    def pay(self) -> None:
        """Take all steps.

        Raises:
            _RefusedError: The listener refuses a step.
            AccessError: A file that the settings name cannot be used.
        """
        protocol = self._access.protocol
        with closing(self._connect()) as plain:
            if not protocol.encrypts:
                self._talk(plain)
                return
            from eventlog.kafka.access.tls import client_context

            context = client_context(self._access.tls, self._access.source)
            try:
                sock = context.wrap_socket(plain, server_hostname=self._host)
            except ssl.SSLCertVerificationError as error:
                self._untrusted(error)
            except (OSError, ValueError) as error:
                self._no_tls(error)
            with closing(sock):
                self._talk(sock)

    def _talk(self, sock: socket.socket) -> None:
        """Ask for versions, then authenticate. Without SASL, ask for brokers to see whether SASL is required."""
        try:
            wire.ask(sock, wire.API_VERSIONS, 0)
        except ssl.SSLError as error:  # in TLS 1.3 a client learns at its first read that its certificate is missing
            self._no_tls(error)
        except (wire.HungUpError, wire.NoKafkaError, ConnectionError):
            if not self._access.protocol.encrypts and self._speaks_tls():
                self._refuse("requires TLS, but the connection is plain text", self._say("SASL_SSL, or SSL"))
            if self._access.protocol.encrypts:
                self._refuse(
                    "closed the connection after the TLS handshake",
                    "If it requires a client certificate, set ssl.keystore.location.",
                )
            self._refuse("is not a Kafka listener: its answer is not Kafka's", "Correct the address in --event-log.")
        except OSError as error:
            self._unreachable(error)
        try:
            if self._access.protocol.authenticates:
                self._authenticate(sock)
            else:
                wire.ask(sock, wire.METADATA, 1, wire.NO_TOPICS)
        except (wire.HungUpError, ConnectionError):
            if self._access.protocol.authenticates:
                self._refuse("closed the connection during authentication", "See its log for the reason.")
            wanted = "SASL_SSL" if self._access.protocol is Protocol.SSL else "SASL_PLAINTEXT"
            self._refuse("requires SASL authentication", self._say(wanted))
        except wire.NoKafkaError:
            self._refuse("is not a Kafka listener: its answer is not Kafka's", "Correct the address in --event-log.")
        except OSError as error:
            self._unreachable(error)

    def _authenticate(self, sock: socket.socket) -> None:
        access = self._access
        shaken = wire.handshake(wire.ask(sock, wire.SASL_HANDSHAKE, 1, wire.text(access.mechanism)))
        if shaken.error == wire.ILLEGAL_SASL_STATE:
            plain = "SSL" if access.protocol is Protocol.SASL_SSL else "PLAINTEXT"
            self._refuse("does not use SASL", self._say(plain))
        if shaken.error:
            offered = ", ".join(shaken.mechanisms) or "none"
            self._refuse(
                f"does not support {access.mechanism}", f"Set {self._where}sasl.mechanism to one of: {offered}."
            )
        from kafka.net.sasl import get_sasl_mechanism

        kind: Any = get_sasl_mechanism(access.mechanism)  # type: ignore[no-untyped-call]
        mechanism = kind(host=self._host, **client_options(access))
        while not mechanism.is_done():
            body = wire.ask(sock, wire.SASL_AUTHENTICATE, 0, wire.sized(mechanism.auth_bytes()))
            answer = wire.authenticated(body)
            if answer.error:
                self._wrong(answer.message)
            try:
                mechanism.receive(answer.auth_bytes)
            except (ValueError, KeyError) as error:
                self._refuse(
                    f"accepted the password, but could not prove that it knows it ({one_line(error)})",
                    "Check that the address is the right Kafka.",
                )
        if not mechanism.is_authenticated():
            self._wrong("")

    def _wrong(self, message: str) -> NoReturn:
        access = self._access
        said = f" ({one_line(Exception(message))})" if message else ""
        if access.oauth is not None:
            self._refuse(f"rejects the token{said}", f"Correct the OAUTHBEARER properties in {access.source}.")
        self._refuse(
            f"rejects user {access.username} with this password, by {access.mechanism}{said}",
            f"Correct user or password in {access.source} (sasl.jaas.config), or create the user in Kafka.",
        )

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> NoReturn:
        store = f"{self._where}ssl.truststore.location"
        if error.verify_code in _HOST_MISMATCH:
            self._refuse(
                f"has a certificate that is not for {self._host}",
                "Use the certificate's host name in --event-log, or renew the certificate for this host.",
            )
        if error.verify_code == _EXPIRED:
            self._refuse("has an expired certificate", "Renew the certificate, or correct this machine's clock.")
        believed = "a CA of ssl.truststore" if self._access.tls.ca or self._access.tls.ca_pem else "a CA of this system"
        self._refuse(
            f"has a certificate that is not signed by {believed} ({error.verify_message})",
            f"Set {store} to a PEM file of the CA that signed it.",
        )

    def _no_tls(self, error: Exception) -> NoReturn:
        reason = (error.reason if isinstance(error, ssl.SSLError) else None) or ""
        if "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA")):
            has_one = self._access.tls.cert is not None or self._access.tls.cert_pem
            self._refuse(
                "rejects the client certificate"
                if has_one
                else "requires a client certificate, and none is configured",
                f"Set {self._where}ssl.keystore.location to a certificate that its CA has signed.",
            )
        if isinstance(error, TimeoutError):
            self._unreachable(error)
        if self._answers_plain():
            wanted = "SASL_PLAINTEXT" if self._access.protocol.authenticates else "PLAINTEXT"
            self._refuse(
                "uses plain text, but the connection uses TLS",
                f"Use its TLS port in --event-log. Otherwise: {self._say(wanted)}",
            )
        if not isinstance(error, (ssl.SSLError, ConnectionError)):
            self._unreachable(error)
        self._refuse(f"failed in the TLS handshake ({one_line(error)})", "Compare ssl.enabled.protocols of both sides.")

    def _answers_plain(self) -> bool:
        try:
            with closing(self._connect()) as sock:
                wire.ask(sock, wire.API_VERSIONS, 0)
        except (_RefusedError, wire.HungUpError, wire.NoKafkaError, OSError):
            return False
        return True

    def _speaks_tls(self) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no data is sent on this connection
        try:
            with closing(self._connect()) as sock:
                context.wrap_socket(sock, server_hostname=self._host).close()
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")
        except (_RefusedError, OSError):
            return False
        return True

    def _connect(self) -> socket.socket:
        try:
            return socket.create_connection((self._host, self._port), _ANSWER_S)
        except OSError as error:
            self._unreachable(error)

    def _unreachable(self, error: Exception) -> NoReturn:
        if isinstance(error, socket.gaierror):
            what, advice = f"cannot be resolved ({error.strerror})", "Correct the host name in --event-log, or fix DNS."
        elif isinstance(error, ConnectionRefusedError):
            what, advice = "refused the connection", "Start Kafka, or correct the address in --event-log."
        elif isinstance(error, TimeoutError):
            what, advice = (
                f"does not answer within {_ANSWER_S:.0f} s",
                "Check that Kafka is running and that no firewall is in between.",
            )
        else:
            what, advice = f"failed ({one_line(error)})", "Check that Kafka is healthy."
        raise _RefusedError(Refusal(f"{self._address} {what}", advice, is_final=False))

    def _say(self, protocol: str) -> str:
        return f"Set security.protocol={protocol} in {self._access.source or '--event-log-config FILE'}."

    def _refuse(self, what: str, advice: str) -> NoReturn:
        raise _RefusedError(Refusal(f"{self._address} {what}", advice, is_final=True))
