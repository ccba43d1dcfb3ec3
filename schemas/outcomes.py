# SPDX-License-Identifier: Apache-2.0
"""Outcome of a write, and reason of a refusal: ``outcome`` and ``reason`` in routeChangeTable and answers."""

from __future__ import annotations

from typing import Final

APPLIED: Final = "applied"
"""The command changed the state."""

UNCHANGED: Final = "unchanged"
"""The command was valid, but the state already was as the command wants it."""

REJECTED: Final = "rejected"
"""A rule rejected the command, and nothing changed. `reason` has the rule."""

ACCEPTED: Final = "accepted"
"""In answers only: the command is durable, but the gateway cannot apply the event log yet, so its result is unknown."""

SINGLE_TOPIC_REFUSED: Final = "SINGLE_TOPIC_REFUSED"
"""A registration with exactly one topic must not create a broker. It is answered with SYSTEM_ERROR."""

STATE_VERSION_CONFLICT: Final = "STATE_VERSION_CONFLICT"
"""The brokerId belongs to a live address with a higher stateVersion. The answer is OK, with empty fields."""

TOPICS_REQUIRED: Final = "TOPICS_REQUIRED"
"""The gateway stored a topicless registration, but the topics are needed. The next registration brings them."""

UNKNOWN_BROKER: Final = "UNKNOWN_BROKER"
"""A topic was registered for a broker that is not registered."""

KV_TABLE_FULL: Final = "KV_TABLE_FULL"
"""The KV configuration would exceed its size limit (`MAX_KV_BYTES`)."""

QUARANTINED: Final = "QUARANTINED"
"""The state machine failed on the event, which is a defect. quarantineTable has the event."""
