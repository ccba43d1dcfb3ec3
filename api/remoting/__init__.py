# SPDX-License-Identifier: Apache-2.0
"""The gateway's answers to RocketMQ's requests: handlers, and caches of earlier work."""
