# SPDX-License-Identifier: Apache-2.0
"""A broker as the NameServer sees it: its topics, its registrations, its answers to mqadmin; no messages.

Read in this order: `topics` (the rules), `persistence` (topics.json), `registration` (what goes over the wire),
`cadence` (when), `agent` (the process), `fleet` (many of them).
"""
