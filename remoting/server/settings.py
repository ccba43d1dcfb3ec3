# SPDX-License-Identifier: Apache-2.0
"""Bounds of a remoting server. The text of a bound names RocketMQ's setting, if any (NettyServerConfig, 5.5.0)."""

from __future__ import annotations

import msgspec

from remoting.codec.frame import DEFAULT_FRAME_LIMIT_BYTES


class RemotingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the server. The defaults are for production. Tests use shorter times."""

    frame_limit_bytes: int = DEFAULT_FRAME_LIMIT_BYTES
    """Size of one frame. A larger one closes the connection. RocketMQ accepts 16 MiB."""
    max_connections: int = 10_000
    """Number of connections. For one more, an idle connection of the address with most is closed."""
    max_connections_per_address: int | None = None
    """Number of connections of one address (`remoting.codec.bounds.address_of`). None: no such limit."""
    max_in_flight: int = 64
    """Number of requests of one connection that are handled at a time."""
    max_in_flight_bytes: int = 64 * 1024 * 1024
    """Size of the bodies of these requests. One request is always accepted."""
    max_received_bytes: int = 128 * 1024 * 1024
    """Size of unfinished frames and open requests of all connections together. From half of it on, large frames are
    read one after the other."""
    evict_after_s: float = 2.0
    """Time for which a connection may hold memory before it is evicted, if all together are not far above the limit."""
    write_high_bytes: int = 256 * 1024
    """Size of unsent answers of one connection above which no further request is read from it."""
    max_unread_bytes: int = 64 * 1024 * 1024
    """Size of unsent answers of all connections together. Beyond it, connections are evicted."""
    idle_timeout_s: float = 120.0
    """Time without received bytes after which a connection is closed (serverChannelMaxIdleTimeSeconds)."""
    frame_deadline_s: float = 60.0
    """Time in which a frame must be complete, unless it arrives at `frame_min_bytes_per_s`."""
    frame_min_bytes_per_s: int = 64 * 1024
    """Rate at which a frame may take longer than `frame_deadline_s`. 64 MiB at 0.5 Mbit/s take 17 minutes."""
    reuse_port: bool = False
    """SO_REUSEPORT: several gateway processes on one port."""
    backlog: int = 1024

    @property
    def tick_s(self) -> float:
        """Interval between checks of all deadlines, in seconds. A deadline is at most one tick late."""
        return min(5.0, max(0.02, min(self.idle_timeout_s, self.frame_deadline_s) / 4))
