# SPDX-License-Identifier: Apache-2.0
"""Event loops in tests: a test that runs on one, and a loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import wraps
from typing import Any, Final, TypeVar

import uvloop

T = TypeVar("T")


_loops_of_failed_tests: Final[list[asyncio.AbstractEventLoop]] = []


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the gateway's kind of loop, with a clock that is coarser than asyncio's. It has two minutes.

    The loop of a test that fails stays open: it may have connections, and uvloop waits for them for ever when it is closed.
    """

    @wraps(test)
    def run(**fixtures: object) -> None:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        try:
            runner.run(asyncio.wait_for(test(**fixtures), 120))
        except BaseException:
            _loops_of_failed_tests.append(runner.get_loop())
            raise
        runner.close()

    return run


async def eventually(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait on a loop until a condition holds; `dev.peers.java.wait_until` is the same for a thread.

    Raises:
        AssertionError: The condition did not hold in time. The text names its source and its last value.
    """
    end = time.monotonic() + timeout_s
    while not (said := condition()):
        assert time.monotonic() < end, f"{source_of(condition)} was still {said!r} after {timeout_s} s"
        await asyncio.sleep(0.002)


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """The same on a thread, without words of the test's own."""
    end = time.monotonic() + timeout_s
    while not (said := condition()):
        assert time.monotonic() < end, f"{source_of(condition)} was still {said!r} after {timeout_s} s"
        time.sleep(0.002)


def source_of(condition: Callable[[], object]) -> str:
    """Return the place of a condition in the source code."""
    code = getattr(condition, "__code__", None)
    return repr(condition) if code is None else f"the condition at {code.co_filename}:{code.co_firstlineno}"


class Loop:
    """An event loop on a thread of its own."""

    def __init__(self, name: str = "test-loop") -> None:
        self.loop = asyncio.new_event_loop()
        self._error: BaseException | None = None
        self._running: set[Future[Any]] = set()
        self.errors: list[BaseException] = []
        """Exceptions of callbacks, and of tasks without a waiter."""
        self.loop.set_exception_handler(self._on_error)
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = 60) -> T:
        """Run it there, wait, and return what it returns. After `fail` there is nothing to wait for."""
        if self._error is not None:
            work.close()
            raise self._error
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except CancelledError:
            if self._error is not None:
                raise self._error from None
            raise
        except TimeoutError:
            raise TimeoutError(f"{work} did not end within {timeout_s} s") from None

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there; its `result(timeout)` is what it returns."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call it there, soon."""
        self.loop.call_soon_threadsafe(function, *args)

    def fail(self, error: BaseException) -> None:
        """Cancel all that runs there for a test, so that `run` raises this error instead."""
        self._error = error
        for future in list(self._running):
            future.cancel()

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        if (error := context.get("exception")) is not None:
            self.errors.append(error)

    def close(self) -> None:
        self._error = None
        self.run(self.loop.shutdown_default_executor())
        self.call(self.loop.stop)
        self._thread.join(10)
        self.loop.close()
