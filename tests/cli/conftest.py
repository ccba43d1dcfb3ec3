# SPDX-License-Identifier: Apache-2.0
"""Peers that several files use."""

from __future__ import annotations

from dev.support.live import lake

__all__ = ["lake"]
