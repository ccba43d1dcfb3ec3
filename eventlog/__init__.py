# SPDX-License-Identifier: Apache-2.0
"""The event log: one totally ordered, durable sequence of events for a control plane. See `eventlog.base`."""

from eventlog.base import (
    MAX_KEY_BYTES,
    MAX_PAYLOAD_BYTES,
    Appended,
    Clock,
    EventLog,
    LogEnd,
    LogRecord,
)
from eventlog.open import open_log

__all__ = [
    "MAX_KEY_BYTES",
    "MAX_PAYLOAD_BYTES",
    "Appended",
    "Clock",
    "EventLog",
    "LogEnd",
    "LogRecord",
    "open_log",
]
