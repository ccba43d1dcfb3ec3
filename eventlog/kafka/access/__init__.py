# SPDX-License-Identifier: Apache-2.0
"""Access to a Kafka that requires authentication: client properties, TLS, SASL, and reasons for a refusal.

Without ``--event-log-config`` nothing of this is loaded before an opening has failed.
"""
