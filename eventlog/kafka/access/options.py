# SPDX-License-Identifier: Apache-2.0
"""`KafkaAccess` in kafka-python's words."""

from __future__ import annotations

from typing import Any

from eventlog.kafka.access.settings import KafkaAccess


def client_options(access: KafkaAccess) -> dict[str, Any]:
    """Options of kafka-python's clients.

    Raises:
        AccessError: Files of ours cannot be used.
    """
    if not access.source:
        return {}
    options: dict[str, Any] = {"security_protocol": str(access.protocol)}
    if access.client_id:
        options["client_id"] = access.client_id
    if access.protocol.encrypts:
        from eventlog.kafka.access.tls import client_context

        options["ssl_context"] = client_context(access.tls, access.source)
    if access.protocol.authenticates:
        options["sasl_mechanism"] = access.mechanism
        if access.oauth is not None:
            from eventlog.kafka.access.oauth import Tokens

            options["sasl_oauth_token_provider"] = Tokens(access.oauth, access.source)
        else:
            options |= {"sasl_plain_username": access.username, "sasl_plain_password": access.password}
    return options
