# SPDX-License-Identifier: Apache-2.0
"""Limits of one event and of the KV table, the same for every listener.

A listener refuses with the limit in its answer; nothing is written then. Stock brokers stay far below: the largest
registrations bring 100,000 topics (`tests/namesrv_checklist/test_large.py`), values of ORDER_TOPIC_CONFIG some 10 kB.
RocketMQ itself has one bound, its frame of 16 MiB.
"""

from __future__ import annotations

from typing import Final

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""Of an event's JSON, before compression. 100,000 topics with names of 127 characters take 15 MB."""

MAX_READABLE_EVENT_BYTES: Final = 128 * 1024 * 1024
"""What the fold still reads of a log that was written before there was a smaller bound; beyond it, quarantine."""

MAX_TOPICS: Final = 250_000
"""Topics of one registration."""

MAX_MAPPINGS: Final = 250_000
"""Static topic mappings of one registration, each counted with the queue ids in its currIdMap."""

MAX_GROUP_ADDRESSES: Final = 64
"""Addresses of one brokerName that are live or on their way. RocketMQ has a handful; each change of one writes
the table of all of them."""

MAX_FILTER_SERVERS: Final = 10_000
"""Filter servers of one registration."""

MAX_TOPIC_QUEUES: Final = 1_000
"""queueDatas of one REGISTER_TOPIC_IN_NAMESRV, each of which is an event."""

MAX_NAME_BYTES: Final = 1024
"""UTF-8 bytes of a name: topic, cluster, address, KV namespace, KV key, ..."""

MAX_BROKER_NAME_PATH_BYTES: Final = 240
"""Of a brokerName, percent-encoded: ``brokerName=<name>`` is a directory of topicQueueTable, and file systems take 255
bytes for its name. (In a table's log delta-rs encodes it once more; nothing bounds that.)"""

MAX_KV_VALUE_BYTES: Final = 256 * 1024
"""UTF-8 bytes of one KV value."""

MAX_KV_BYTES: Final = 16 * 1024 * 1024
"""Of all KV configuration: UTF-8 bytes of each entry's namespace, key and value, and `KV_ENTRY_BYTES` for the entry.
The fold enforces it (what is on its way cannot be known before), so it holds for every listener and log."""

KV_ENTRY_BYTES: Final = 256

MAX_HEADER_FIELDS: Final = 256
"""Header fields of a remoting request. Stock peers send fewer than thirty."""

MAX_HEADER_FIELDS_BYTES: Final = 32 * 1024
"""Names and values of a remoting request's header fields, the value of a KV entry not counted. Stock peers send a few
hundred bytes, a signature of ACL included."""
