# SPDX-License-Identifier: Apache-2.0
"""The chain of a lake, computed row by row from what docs/reference/tables.md says, and by nothing of the product."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from dev.support import lakes

HEAD: Final = ("offset", "eventTime", "command", "outcome", "reason", "actor", "tableName", "brokerName")
REST: Final = ("seq", "topic", "key", "before", "after")
COMMIT: Final = (
    *("epoch", "logOffset", "livenessOffset", "eventTime", "watermark", "commitTime", "versions", "outcomes"),
    *("queryId", "batchId", "resumeTime", "rulesVersion", "preserveTime"),
)
QUARANTINE: Final = ("offset", "eventTime", "key", "error", "payload")


def field(value: Any) -> bytes:
    if value is None:
        return b"-:"
    if isinstance(value, datetime):
        value = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, list):
        value = ",".join(f"{name}={version}" for name, version in sorted(value))
    text = str(value).encode()
    return b"%d:%s" % (len(text), text)


def fields(row: dict[str, Any], names: tuple[str, ...]) -> bytes:
    return b"".join(field(row[name]) for name in names)


@lakes.read_once()
def assert_chain(lake_dir: Path) -> None:
    """Each epoch has its digest."""
    changes: dict[int, dict[bytes, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in lakes.history(lake_dir):
        changes[row["epoch"]][fields(row, HEAD)].append(row)
    unread = lakes.quarantine(lake_dir)
    previous, before = "", -1
    for commit in lakes.commits(lake_dir):
        digests = []
        for head, rows in changes[commit["epoch"]].items():
            rows.sort(key=lambda row: row["seq"])
            digests.append(hashlib.sha256(head + b"".join(fields(row, REST) for row in rows)).hexdigest())
        digests += [
            hashlib.sha256(fields(row, QUARANTINE)).hexdigest()
            for row in unread
            if before < row["offset"] <= commit["logOffset"]
        ]
        text = previous.encode() + fields(commit, COMMIT) + "".join(sorted(digests)).encode()
        expected = hashlib.sha256(text).hexdigest()
        assert commit["chain"] == expected, f"epoch {commit['epoch']}"
        previous, before = commit["chain"], commit["logOffset"]
