# SPDX-License-Identifier: Apache-2.0
"""Status and last failure of the fold, from two files in the lake's directory, and a reader that follows them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from api.gateway.watched_view import Arrival
from lake.delta.log import is_local
from lake.store import store_of
from schemas.tables import FOLD_FAILURE_FILE, FOLD_HASTEN_FILE, FOLD_STATUS_FILE

_POLL_S: Final = 0.5
_REMOTE_POLL_S: Final = 10.0
_FAILURE_EVERY: Final = 6
"""Polls of an object store for each read of the failure file. The failure matters only if the status is old."""


@dataclass(frozen=True, slots=True)
class FoldStatus:
    """Progress of the fold (its status file).

    ``time_ms`` is by the fold's clock. ``look`` is the number of the poll that found the status.
    """

    epoch: int
    log_offset: int
    time_ms: int
    look: int = 0


@dataclass(frozen=True, slots=True)
class FoldFailure:
    """Last failure of the fold, in one line (its failure file). Times are as in `FoldStatus`."""

    time_ms: int
    error: str
    look: int = 0


class FoldStatusReader:
    """Reader of the two files. Used on one event loop.

    Threads touch the files, because a network file system may hang while routes are served.
    """

    def __init__(self, lake: str) -> None:
        """Prepare, without reading.

        Args:
            lake: Directory or URL of the lake.
        """
        self._is_local = is_local(lake)
        self._status_file, self._failure_file = _Report(lake, FOLD_STATUS_FILE), _Report(lake, FOLD_FAILURE_FILE)
        self._hasten_file = Path(lake, FOLD_HASTEN_FILE)
        self._status: FoldStatus | None = None
        self._failure: FoldFailure | None = None
        self._status_came, self._failure_came = Arrival(), Arrival()
        self._hastening: asyncio.Future[None] | None = None

    def hasten(self) -> None:
        """Ask the fold to begin the next batch without a delay (`pipelines.source.Pace`).

        Does nothing if the lake is in an object store, or if this process may not write into the lake's directory.
        """
        if self._is_local and (self._hastening is None or self._hastening.done()):
            self._hastening = asyncio.ensure_future(asyncio.to_thread(self._touch))

    def _touch(self) -> None:
        with suppress(OSError):
            self._hasten_file.touch()

    @property
    def status(self) -> FoldStatus | None:
        """Last status of the fold. None before the fold ever ran on this lake."""
        return self._status

    @property
    def failure(self) -> FoldFailure | None:
        """Last failure of the fold. None if the fold has continued since, or never failed."""
        failure, status = self._failure, self._status
        if failure is None or status is None:
            return failure
        is_over = (status.look, status.time_ms) > (failure.look, failure.time_ms)
        return None if is_over else failure

    @property
    def age_s(self) -> float | None:
        """Seconds since the last status of the fold arrived, independent of the fold's clock. None without a status."""
        return self._status_came.age_s

    @property
    def failure_age_s(self) -> float | None:
        """Seconds since the last failure arrived. None without a failure."""
        return self._failure_came.age_s

    async def follow(self, moved: Callable[[], None]) -> None:
        """Poll the files for ever. Call back at each new status."""
        for number in count():
            if (found := await asyncio.to_thread(self._status_file.news)) is not None:
                with suppress(KeyError, TypeError):
                    self._status = FoldStatus(found["epoch"], found["logOffset"], found["timeMillis"], number)
                    self._status_came.came(self._status.time_ms / 1000)
                    moved()
            if (self._is_local or number % _FAILURE_EVERY == 0) and (
                found := await asyncio.to_thread(self._failure_file.news)
            ) is not None:
                with suppress(KeyError, TypeError):
                    self._failure = FoldFailure(found["timeMillis"], found["error"], number)
                    self._failure_came.came(self._failure.time_ms / 1000)
            await asyncio.sleep(_POLL_S if self._is_local else _REMOTE_POLL_S)


class _Report:
    """A file in the lake's directory, or the object of that name."""

    def __init__(self, lake: str, name: str) -> None:
        self._read = Path(lake, name).read_bytes if is_local(lake) else lambda: store_of(lake).get(name)
        self._known = b""

    def news(self) -> Any:  # noqa: ANN401 (JSON)
        """Return the content. None if it has not changed since the last call, or cannot be read."""
        with suppress(OSError, ValueError):
            text = self._read()
            if text != self._known:
                found = json.loads(text)
                self._known = text
                return found
        return None
