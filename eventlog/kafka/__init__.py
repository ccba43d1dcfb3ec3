# SPDX-License-Identifier: Apache-2.0
"""The event log in one partition of a Kafka topic."""
