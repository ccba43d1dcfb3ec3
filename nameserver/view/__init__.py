# SPDX-License-Identifier: Apache-2.0
"""Immutable route tables of one state of the NameServer, and their changes."""
