# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's remoting protocol, for the server and for its clients. This package does not depend on the NameServer.

codec/     bytes to commands and back, without I/O or clock
server/    the asyncio server, and the bounds of its connections
client.py  a client with one connection to each address
errors.py  errors of connections
"""
