# SPDX-License-Identifier: Apache-2.0
"""Broker agent: a broker with topics, registrations and answers to mqadmin, but without messages.

Read in this order: `topics` (the rules), `broker_topics` (topics.json), `registration` (requests), `agent` (timetable
and process), `fleet` (many brokers).
"""
