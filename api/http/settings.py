"""Settings of the HTTP door, units in names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Who may write, how large and how slow a request may be, how long it may wait.

    Attributes:
        tokens: User to bearer token, in the clear or as ``sha256:<hex of its digest>``. With any, writes need one.
        protect_reads: Reads and /metrics need a token, too. /healthz and /readyz never do.
        anonymous_writes: Without tokens, accept writes from anywhere instead of this machine only.
        trusted_hosts: Names besides IP addresses and localhost that a Host header of an anonymous write may carry.
        max_body_bytes: Of a registration, also after decompression.
        max_small_body_bytes: Of every other body.
        max_bodies_bytes: Of all bodies being read or worked on at a time; beyond it, SYSTEM_BUSY.
        body_timeout_s: A body must be complete by then.
        header_timeout_s: So must the head of a request, counted from its first byte (or from connecting).
        max_header_bytes: Of the head of a request.
        keep_alive_s: An idle connection is closed after this.
        max_connections: More are answered 503.
        max_long_polls: Long polls held at a time; beyond it they are answered at once.
        history_threads: Delta reads running at a time.
        history_queue: Delta reads waiting for their turn; beyond it, SYSTEM_BUSY.
        fold_stale_s: A fold that was not heard of for this long is not alive.
    """

    tokens: Mapping[str, str] = field(default_factory=dict)
    protect_reads: bool = False
    anonymous_writes: bool = False
    trusted_hosts: frozenset[str] = frozenset()
    max_body_bytes: int = 64 * _MIB
    max_small_body_bytes: int = _MIB
    max_bodies_bytes: int = 256 * _MIB
    body_timeout_s: float = 30.0
    header_timeout_s: float = 10.0
    max_header_bytes: int = 64 * _KIB
    keep_alive_s: int = 75
    max_connections: int = 4096
    max_long_polls: int = 2_000
    history_threads: int = 2
    history_queue: int = 32
    fold_stale_s: float = 30.0
