"""Servers that tests and benchmarks start: Apache RocketMQ and Apache Kafka from their jars, and routelake itself."""
