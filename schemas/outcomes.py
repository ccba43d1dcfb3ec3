# SPDX-License-Identifier: Apache-2.0
"""Outcome of a write, and reason of a refusal: ``outcome`` and ``reason`` in routeChangeTable and answers."""

from __future__ import annotations

from typing import Final

APPLIED: Final = "applied"
UNCHANGED: Final = "unchanged"
REJECTED: Final = "rejected"
ACCEPTED: Final = "accepted"
"""In answers alone: durable, and not folded yet."""

SINGLE_TOPIC_REFUSED: Final = "SINGLE_TOPIC_REFUSED"
"""A registration with exactly one topic may not create a broker (answered with SYSTEM_ERROR)."""

STATE_VERSION_CONFLICT: Final = "STATE_VERSION_CONFLICT"
"""The brokerId is held by a living address that is ahead in stateVersion (answered OK, with empty fields)."""

TOPICS_REQUIRED: Final = "TOPICS_REQUIRED"
"""The gateway left the topics out, and they turned out to be needed; the next registration brings them."""

UNKNOWN_BROKER: Final = "UNKNOWN_BROKER"
"""A topic was registered for a broker that is not."""

KV_TABLE_FULL: Final = "KV_TABLE_FULL"
"""The KV configuration would grow past `schemas.limits.MAX_KV_BYTES`; nothing was changed."""

QUARANTINED: Final = "QUARANTINED"
"""A rule failed on the event (a defect): quarantineTable has it, nothing was changed."""
