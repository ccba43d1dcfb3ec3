# SPDX-License-Identifier: Apache-2.0
"""Answers that are kept for a while: an answer that took long to compute is given again for longer.

Whoever asks the same again and again takes a share of one processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import msgspec

from lake.history.as_of import Recent
from schemas.route_commit import RouteCommit

REST: Final = 20
"""An answer is given again for so many times as long as it took to compute."""


class _Answer(Protocol):
    @property
    def commit(self) -> RouteCommit:
        """The epoch that it is computed from."""


T = TypeVar("T", bound=_Answer)


class _Kept(msgspec.Struct, frozen=True):
    answer: Any
    until_s: float


def ask_or_kept(
    cache: Recent[Any, Any],
    question: object,
    newest: RouteCommit,
    ask: Callable[[], T],
    size_bytes: Callable[[T], int],
    *,
    is_fresh: bool = False,
) -> T:
    """A kept answer, or a new one, which is then kept.

    Args:
        cache: Where answers to such questions are kept.
        question: What is asked, hashable.
        newest: The newest epoch: an answer that is computed from it is as good as a new one.
        ask: Computes the answer.
        size_bytes: What an answer is counted as.
        is_fresh: Give no answer that is computed from an earlier epoch.
    """
    known: _Kept | None = cache.get(question)
    if known is not None and (known.answer.commit == newest or (not is_fresh and time.monotonic() < known.until_s)):
        kept: T = known.answer
        return kept
    began_s = time.monotonic()
    found = ask()
    done_s = time.monotonic()
    cache.put(question, _Kept(found, done_s + REST * (done_s - began_s)), size_bytes(found))
    return found
