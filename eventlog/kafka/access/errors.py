# SPDX-License-Identifier: Apache-2.0
"""Errors of the access to Kafka."""

from __future__ import annotations

from schemas.errors import SetupError


class AccessError(SetupError):
    """Kafka refuses access, or the file that says how cannot be used.

    A refusal for good at the start. Later it may pass, as when a password changes at both ends: whoever had Kafka open
    goes on trying with what the file says then.
    """
