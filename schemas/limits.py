# SPDX-License-Identifier: Apache-2.0
"""Limits of one event and of the KV table, the same for every listener.

If a request exceeds a limit, the listener refuses it and names the limit in its answer, and nothing is written. Stock
brokers stay far below: the largest registrations have 100,000 topics (`tests/namesrv_checklist/test_large.py`), and
values of ORDER_TOPIC_CONFIG some 10 kB. RocketMQ itself has only one limit, its frame of 16 MiB.
"""

from __future__ import annotations

from typing import Final

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""Size of the JSON of one event before compression, in bytes. 100,000 topics with names of 127 characters take
15 MB."""

MAX_READABLE_EVENT_BYTES: Final = 128 * 1024 * 1024
"""Size of an event that the fold reads, in bytes, for event logs older than `MAX_EVENT_BYTES`. A larger event goes to
quarantineTable."""

MAX_TOPICS: Final = 250_000
"""Number of topics in one registration."""

MAX_MAPPINGS: Final = 250_000
"""Number of static topic mappings in one registration. Each counts with the queue ids in its currIdMap."""

MAX_GROUP_ADDRESSES: Final = 64
"""Number of addresses of one brokerName that are live or being registered. RocketMQ groups have a handful. Each change
of one address writes the table of all of them."""

MAX_FILTER_SERVERS: Final = 10_000
"""Number of filter servers in one registration."""

MAX_TOPIC_QUEUES: Final = 1_000
"""Number of queueDatas in one REGISTER_TOPIC_IN_NAMESRV. Each is an event."""

MAX_NAME_BYTES: Final = 1024
"""Length of a name in bytes of UTF-8: topic, cluster, address, KV namespace, KV key."""

MAX_BROKER_NAME_PATH_BYTES: Final = 240
"""Length of a percent-encoded brokerName in bytes. ``brokerName=<name>`` is a folder of topicQueueTable, and file
systems accept names of 255 bytes. (delta-rs encodes it once more in the table's log, where no limit applies.)"""

MAX_KV_VALUE_BYTES: Final = 256 * 1024
"""Size of one KV value in bytes of UTF-8."""

MAX_KV_BYTES: Final = 16 * 1024 * 1024
"""Size of the whole KV configuration in bytes: namespace, key and value of each entry, and `KV_ENTRY_BYTES` for each.
The state machine checks it, because no listener knows which entries are still on their way."""

KV_ENTRY_BYTES: Final = 256
"""Bytes that each KV entry counts in addition to its text."""

MAX_HEADER_FIELDS: Final = 256
"""Number of header fields in a remoting request. Stock peers send fewer than thirty."""

MAX_HEADER_FIELDS_BYTES: Final = 32 * 1024
"""Size of all names and values of a remoting request's header fields in bytes, without the value of a KV entry. Stock
peers send a few hundred bytes, a signature included."""
