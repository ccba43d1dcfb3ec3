# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's remoting protocol.

Bytes to commands and back without I/O: `frame`, `connection`, `route_query`, `commands`, `registration`, `answers`.
The asyncio shell around them: `server`.
"""
