# SPDX-License-Identifier: Apache-2.0
"""Cost of a record to a micro-batch in bytes, estimated before it is processed.

A batch holds what its records carry *inflated*, several times over: the event, rows of the tables and of history. A
payload is compressed: 12 MiB of one letter take 15 kB on the log. So batches are bounded by what the frames state
(`schemas.events.inflated_bytes`), which the fold checks when it inflates them.

Some commands do far more than they carry. Removing rows costs no more than writing them did, but permissions can be
cleared and set again without end, each time in every row of a broker; and a deletion looks at the topics of all
brokers. Such commands cost a round sum, so that a batch of them ends in bounded time.
"""

from __future__ import annotations

from typing import Final

from schemas.errors import EventDecodeError
from schemas.events import (
    DEFERRABLE,
    HEAD_BYTES,
    KEY_KV,
    AddWritePerm,
    DeleteTopic,
    WipeWritePerm,
    inflated_bytes,
    read_json,
)

WHOLE_BROKER_BYTES: Final = 512 * 1024
"""Of a command that may touch, or looks at, every topic of a broker."""

KV_BYTES: Final = 4 * 1024
"""Cost of a KV command in addition to its own size, bytes: the table's keys are copied."""

SMALL_BYTES: Final = 4 * 1024
"""Payloads up to this size are looked into. Commands take a few hundred bytes, 3 kB with the longest names."""

_INFLATED_SMALL_BYTES: Final = 64 * 1024

_WHOLE_BROKER: Final = tuple(
    b'{"command":"' + str(command.__struct_config__.tag).encode() + b'"'
    for command in (WipeWritePerm, AddWritePerm, DeleteTopic)
)


def cost_bytes(key: str, head: bytes, payload_bytes: int) -> int:
    """Cost of a record, bytes.

    Args:
        key: its routing key.
        head: its payload if that has at most `SMALL_BYTES`, else at least the first `HEAD_BYTES` of it.
        payload_bytes: the size of its payload.
    """
    inflated = inflated_bytes(head[:HEAD_BYTES])
    if inflated is None:
        return payload_bytes  # quarantined as it is
    size = max(inflated, payload_bytes)
    if key == KEY_KV:
        return size + KV_BYTES
    if not head.startswith(DEFERRABLE) and len(head) == payload_bytes and inflated <= _INFLATED_SMALL_BYTES:
        try:
            if read_json(head).startswith(_WHOLE_BROKER):
                return size + WHOLE_BROKER_BYTES
        except EventDecodeError:
            return size
    return size
