# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's NameServer settings: their file format, their keys, and their meaning in routelake."""
