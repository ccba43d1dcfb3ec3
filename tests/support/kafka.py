# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka in tests; see `deploy.peers.kafka`."""

from deploy.peers.kafka import QUICK_KAFKA, Kafka

__all__ = ["QUICK_KAFKA", "Kafka"]
