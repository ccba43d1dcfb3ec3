# SPDX-License-Identifier: Apache-2.0
"""Kafka client properties that an event log in Kafka accepts, and the problem with each other one. Pure.

Passwords, secrets and keys may be ``file:PATH`` or ``env:NAME``.

Sources (Kafka 4.3): org.apache.kafka.common.config.SslConfigs, SaslConfigs;
org.apache.kafka.clients.CommonClientConfigs.
"""

from __future__ import annotations

import difflib
from typing import Final

PROPERTIES: Final = {
    "security.protocol": "PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL.",
    "sasl.mechanism": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Kerberos is not supported.",
    "sasl.mechanisms": "The same, as librdkafka names it.",
    "sasl.jaas.config": (
        "PlainLoginModule or ScramLoginModule with `username` and `password`, or "
        "OAuthBearerLoginModule with `clientId`, `clientSecret` and `scope`."
    ),
    "sasl.username": "User of PLAIN and SCRAM, as librdkafka names it.",
    "sasl.password": "Password of this user.",
    "sasl.oauthbearer.token.endpoint.url": (
        "Source of tokens. `https://...` is a token endpoint (client credentials grant). Its "
        "certificate the authorities of the system must have signed. `file:///...` is a file with a "
        "token, which is read for each connection."
    ),
    "sasl.oauthbearer.client.credentials.client.id": "Client ID at the token endpoint.",
    "sasl.oauthbearer.client.credentials.client.secret": "Client secret at the token endpoint.",
    "sasl.oauthbearer.scope": "Scope that is requested at the token endpoint.",
    "sasl.login.callback.handler.class": "Only Kafka's own OAuthBearerLoginCallbackHandler. You can leave it out.",
    "ssl.truststore.type": "PEM. To convert a Java store, run `keytool -list -rfc -keystore STORE > ca.pem`.",
    "ssl.truststore.location": "PEM file of the trusted authorities. Default: the authorities of the system.",
    "ssl.ca.location": "The same, as librdkafka names it.",
    "ssl.truststore.certificates": "PEM text of the trusted authorities.",
    "ssl.keystore.type": "PEM.",
    "ssl.keystore.location": "PEM file with routelake's key and certificate.",
    "ssl.certificate.location": "PEM file of routelake's certificate, as librdkafka names it.",
    "ssl.key.location": "PEM file of its key, as librdkafka names it.",
    "ssl.keystore.certificate.chain": "PEM text of routelake's certificate.",
    "ssl.keystore.key": "PEM text of its key.",
    "ssl.key.password": "Password of an encrypted key.",
    "ssl.endpoint.identification.algorithm": "https (the default). Empty: a certificate for any host is accepted.",
    "ssl.enabled.protocols": "TLSv1.2, TLSv1.3, or both.",
    "client.id": "Name of routelake in the broker's log and quotas.",
}
"""Accepted properties, with their values and meaning."""

KNOWN: Final = frozenset(PROPERTIES)

_OURS: Final = frozenset(
    {
        *("acks", "enable.idempotence", "linger.ms", "batch.size", "max.request.size", "max.block.ms", "retries"),
        *("delivery.timeout.ms", "request.timeout.ms", "retry.backoff.ms", "compression.type", "transactional.id"),
        *("max.in.flight.requests.per.connection", "key.serializer", "value.serializer", "key.deserializer"),
        *("value.deserializer", "group.id", "auto.offset.reset", "enable.auto.commit", "max.poll.records"),
        *("isolation.level", "fetch.max.bytes", "fetch.min.bytes", "max.partition.fetch.bytes", "fetch.max.wait.ms"),
    }
)

_PEM_ALONE: Final = "is for JKS and PKCS12, which are not supported: use PEM files, and ssl.key.password for the key"

_SAID: Final = {
    "bootstrap.servers": "stands in --event-log, kafka://HOST:PORT,HOST:PORT/TOPIC: leave it out here",
    "ssl.truststore.password": _PEM_ALONE,
    "ssl.keystore.password": _PEM_ALONE,
    "ssl.protocol": "selects a Java implementation: use ssl.enabled.protocols instead",
    "enable.ssl.certificate.verification": "cannot be turned off: set ssl.truststore.location to the CA",
    "ssl.cipher.suites": "is not supported: OpenSSL chooses. Remove it",
}
_FAMILIES: Final = {
    "sasl.kerberos.": "is for Kerberos, which is not supported: use SCRAM-SHA-512 or certificates",
    "config.providers": "is not supported: write file:PATH or env:NAME in place of a password",
    "sasl.login.": "is for Java's login. Remove it",
    "sasl.client.callback.": "names a Java class. Remove it",
    "sasl.oauthbearer.": "is not supported. Remove it",
    "ssl.": "is for Java's TLS. Remove it",
    "security.providers": "names Java classes. Remove it",
}


def objection(key: str) -> str:
    """Return the problem with a property, or "" if it is supported."""
    if key in KNOWN:
        return ""
    if key in _SAID:
        return _SAID[key]
    if key in _OURS:
        return "is set by routelake itself. Remove it"
    close = difflib.get_close_matches(key, sorted(KNOWN), 1, 0.85)
    if close:
        return f"is an unknown property. Did you mean {close[0]}?"
    for family, text in _FAMILIES.items():
        if key.startswith(family):
            return text
    return "has no effect here. Remove it (docs/reference/kafka-properties.md lists the supported ones)"
