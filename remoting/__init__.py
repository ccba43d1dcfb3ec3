# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's remoting protocol, for the server and for its clients. Nothing here knows what is served.

codec/     bytes to commands and back, without I/O or clock
server/    the asyncio server, and the bounds of its connections
client.py  a client of one connection
errors.py  errors of connections
"""
