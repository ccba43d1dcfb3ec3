# SPDX-License-Identifier: Apache-2.0
"""How routelake gets into a Kafka that asks who comes: Kafka's client properties, TLS, SASL, and why it was refused.

Without ``--event-log-config`` nothing of this is loaded before an opening has failed.
"""
