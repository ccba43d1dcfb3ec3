# SPDX-License-Identifier: Apache-2.0
"""Servers that tests and benchmarks start: Apache RocketMQ and Apache Kafka from their jars, and routelake itself."""
