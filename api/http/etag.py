# SPDX-License-Identifier: Apache-2.0
"""Headers of reads: the commit that an answer shows, and its entity tag, ``"<epoch>-<digest of the body>"``.

The epoch names the commit that an answer shows. The digest decides if a client's copy is still valid. It stays the same
through epochs that changed something else, on every gateway, and through restarts. It differs if a lake was replaced
and its epochs started again. So If-None-Match compares only digests.

A missing resource has the tag ``"<epoch>-none"``. With it, a long poll waits until a topic exists.
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
"""Key in an ASGI scope: the request asked to wait, so its duration is not a latency."""
MOST_TAGS: Final = 100
NOTHING: Final = "none"
"""Replacement for the digest of a resource that does not exist."""

_TAG = re.compile(r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


class ReadPosition(NamedTuple):
    """Commit that an answer shows.

    Attributes:
        epoch: Number of its epoch.
        offset: Offset of the event log.
        event_time: Event time. Only for commits of the past.
        lineage: Lineage of the event log (`api.gateway.gateway.Gateway.lineage`). Only for the present.
    """

    epoch: int
    offset: int
    event_time: datetime | None = None
    lineage: str = ""

    @classmethod
    def of(cls, commit: RouteCommit) -> ReadPosition:
        """Return the position of a commit of the past."""
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
    """Return the token of an offset that a read can wait for. It includes the lineage of the event log."""
    return f"{offset}-{lineage}" if lineage else str(offset)


def read_headers(position: ReadPosition, digest: str) -> dict[str, str]:
    """Return the headers for the ETag, the position, and the order to check a copy before it is used again."""
    return {"etag": entity_tag(position.epoch, digest), "cache-control": "no-cache", **position.headers()}


def entity_tag(epoch: int, digest: str) -> str:
    """Return the ETag of a body with this digest, at this epoch."""
    return f'"{epoch}-{digest}"'


def if_none_match(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the If-None-Match header of a request, with its lines joined. Empty without one."""
    return ", ".join(value.decode("latin-1") for name, value in headers if name == b"if-none-match")


def matches(if_none_match: str, digest: str) -> bool:
    """Return whether a client's If-None-Match names the content with this digest. An invalid header matches nothing.

    A header with more tags than `MOST_TAGS` matches nothing, either. Then the content is sent again.
    """
    if if_none_match.strip() == "*":
        return digest != NOTHING
    if if_none_match.count('"') > 2 * MOST_TAGS:
        return False
    if _TAG.sub("", if_none_match).strip(" \t,"):
        return False
    return any(opaque.rpartition("-")[2] == digest for opaque in _TAG.findall(if_none_match))
