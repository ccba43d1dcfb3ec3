# SPDX-License-Identifier: Apache-2.0
"""Parameters of a test of which an ordinary run takes some, and ``--deep`` all."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def sampled(values: Iterable[tuple[Any, ...]], ordinary: Container[tuple[Any, ...]]) -> list[Any]:
    """Return parameter sets for `pytest.mark.parametrize`. Those that are not ``ordinary`` have the mark ``deep``."""
    return [pytest.param(*value, marks=() if value in ordinary else pytest.mark.deep) for value in values]
