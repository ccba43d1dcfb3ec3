# SPDX-License-Identifier: Apache-2.0
"""Words of TLS that the listeners and what configures them share."""

from __future__ import annotations

from enum import StrEnum


class TlsMode(StrEnum):
    """What a port takes (TlsMode of RocketMQ's common module)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    """Encrypted and plain connections alike."""
    ENFORCING = "enforcing"
    """Encrypted ones alone."""


class ClientAuth(StrEnum):
    """Whether a client shows a certificate (tls.server.need.client.auth)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"
