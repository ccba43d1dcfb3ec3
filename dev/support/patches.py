# SPDX-License-Identifier: Apache-2.0
"""Replacing what belongs to the whole process, for one test of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def in_this_thread(fake: Callable[P, T], real: Callable[..., T]) -> Callable[P, T]:
    """``fake`` for the thread that calls this, ``real`` for the others: lakes that tests share are written meanwhile."""
    mine = threading.get_ident()

    def either(*args: P.args, **kwargs: P.kwargs) -> T:
        return (fake if threading.get_ident() == mine else real)(*args, **kwargs)

    return either
