# SPDX-License-Identifier: Apache-2.0
"""Bounds of a remoting server. Where RocketMQ has a setting of the kind, it is named (NettyServerConfig, 5.5.0)."""

from __future__ import annotations

import msgspec

from remoting.codec.frame import DEFAULT_FRAME_LIMIT_BYTES


class RemotingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the server. The defaults are for production; tests shorten the times."""

    frame_limit_bytes: int = DEFAULT_FRAME_LIMIT_BYTES
    max_connections: int = 10_000
    max_connections_per_address: int | None = None
    """As `remoting.codec.bounds.address_of` has it; None: as many as there may be in all."""
    max_in_flight: int = 64
    """Requests of one connection that are handled at a time."""
    max_in_flight_bytes: int = 64 * 1024 * 1024
    """Their bodies; one is always let through."""
    max_received_bytes: int = 128 * 1024 * 1024
    """Of unfinished frames and of requests being handled, all connections together. From half of it on, large frames
    are read one after the other."""
    evict_after_s: float = 2.0
    """Seconds for which a connection may hold something before it is evicted, while they are not far above that."""
    write_high_bytes: int = 256 * 1024
    """Unsent answers of one connection above which it is not read."""
    max_unread_bytes: int = 64 * 1024 * 1024
    """Unsent answers of all connections above that."""
    idle_timeout_s: float = 120.0
    """Nothing received for so long: closed (serverChannelMaxIdleTimeSeconds)."""
    frame_deadline_s: float = 60.0
    """A frame that has begun must be complete after this ..."""
    frame_min_bytes_per_s: int = 64 * 1024
    """... or keep arriving at this rate: 64 MiB over a line of 0.5 Mbit/s take 17 minutes and are let through."""
    reuse_port: bool = False
    """SO_REUSEPORT: several gateway processes on one port."""
    backlog: int = 1024

    @property
    def tick_s(self) -> float:
        """How often times are looked at; they are kept to within one tick."""
        return min(5.0, max(0.02, min(self.idle_timeout_s, self.frame_deadline_s) / 4))
