# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's remoting protocol without I/O: frames, headers, bodies, replies."""
