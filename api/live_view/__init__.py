# SPDX-License-Identifier: Apache-2.0
"""The head: the latest table version, and what the log holds beyond it, folded by the same rules (ADR 13)."""
