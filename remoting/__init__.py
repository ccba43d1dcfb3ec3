# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's remoting protocol, for the server and for its clients: nothing here knows what is served.

Bytes to commands and back without I/O or clock: frame, connection, commands, registration, names, answers, reply,
proxy_protocol. The asyncio shells around them: server (with accepting, channel, memory, fair_queue, bounds,
refusals), client.
"""
