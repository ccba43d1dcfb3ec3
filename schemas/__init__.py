# SPDX-License-Identifier: Apache-2.0
"""Contracts: the data on the wire, on the event log and in the Delta tables. No I/O, no rules."""
