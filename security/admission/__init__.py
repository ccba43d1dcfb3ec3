# SPDX-License-Identifier: Apache-2.0
"""Decisions on requests: identity, permission and quota."""
