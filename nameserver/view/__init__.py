# SPDX-License-Identifier: Apache-2.0
"""Immutable route tables that one state of the NameServer makes, and how they change."""
