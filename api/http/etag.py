# SPDX-License-Identifier: Apache-2.0
"""Headers of reads: which commit an answer shows, and its entity tag, ``"<epoch>-<digest of the body>"``.

The epoch says which commit an answer shows. The digest decides whether a client's copy is still good: it stays the same
through epochs that changed something else, on every gateway, through restarts, and it differs when a lake was replaced
and its epochs started again. So If-None-Match compares digests only.

A missing resource has the tag ``"<epoch>-none"``: with it, a long poll waits for a topic to come into being.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from lake.history.as_of import rfc3339
from schemas.route_commit import RouteCommit

JSON: Final = "application/json"
WAITED: Final = "routelake.waited"
"""Key in an ASGI scope: the request waited because it asked to, so its time is no latency."""
MOST_TAGS: Final = 100
NOTHING: Final = "none"
"""Stands for the digest of a resource that is not there."""

_TAG = re.compile(r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


class ReadPosition(NamedTuple):
    """The commit an answer shows.

    Attributes:
        epoch: Number of its epoch.
        offset: Offset of the event log.
        event_time: Event time; for commits of the past only.
        lineage: Lineage of the event log (`api.gateway.gateway.Gateway.lineage`); for the present only.
    """

    epoch: int
    offset: int
    event_time: datetime | None = None
    lineage: str = ""

    @classmethod
    def of(cls, commit: RouteCommit) -> ReadPosition:
        """A commit of the past."""
        return cls(commit.epoch, commit.log_offset, commit.event_time)

    def headers(self) -> dict[str, str]:
        """Return the position as response headers."""
        found = {"x-routelake-epoch": str(self.epoch), "x-routelake-offset": str(self.offset)}
        if self.lineage:
            found["x-routelake-token"] = offset_token(self.offset, self.lineage)
        if self.event_time is not None:
            found["x-routelake-event-time"] = rfc3339(self.event_time)
        return found


def offset_token(offset: int, lineage: str) -> str:
    """An offset that a read can wait for, with the log it is of."""
    return f"{offset}-{lineage}" if lineage else str(offset)


def read_headers(position: ReadPosition, digest: str) -> dict[str, str]:
    """ETag, position, and that a copy must be checked before it is used again."""
    return {"etag": entity_tag(position.epoch, digest), "cache-control": "no-cache", **position.headers()}


def entity_tag(epoch: int, digest: str) -> str:
    """The ETag of a body with this digest, at this epoch."""
    return f'"{epoch}-{digest}"'


def if_none_match(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The header of a request, its lines joined; empty without one."""
    return ", ".join(value.decode("latin-1") for name, value in headers if name == b"if-none-match")


def matches(if_none_match: str, digest: str) -> bool:
    """Return whether a client's If-None-Match names the content with this digest. An invalid header matches nothing.

    A header with more tags than `MOST_TAGS` matches nothing, either: then the content is sent again.
    """
    if if_none_match.strip() == "*":
        return digest != NOTHING
    if if_none_match.count('"') > 2 * MOST_TAGS:
        return False
    if _TAG.sub("", if_none_match).strip(" \t,"):
        return False
    return any(opaque.rpartition("-")[2] == digest for opaque in _TAG.findall(if_none_match))
