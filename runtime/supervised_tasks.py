# SPDX-License-Identifier: Apache-2.0
"""Threads and tasks that a process cannot do without: each death is told, and ends the process.

A thread that died prints a traceback, and the process goes on without it; a task that somebody keeps dies without a
word. Either way something stands still and nothing says why. So the loops that run for as long as the process does
catch what they can meet (a log that cannot be read, a file that is torn) and go on; what gets past that is a defect,
and the process ends with code 1: `serve` starts it again.

The rest (a request's task, a pool's thread) is awaited by somebody, who is told.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

log = structlog.get_logger("routelake.deaths")

OnDeath = Callable[[str, BaseException], object]

_listeners: list[OnDeath] = []
_essential: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Threads that the process cannot run without. The death of another thread is only reported."""


def on_death(listener: OnDeath) -> Callable[[], None]:
    """Tell somebody of each death of what this process cannot do without, on the thread where it was noticed.

    Of threads only after `watch_threads`.

    Returns:
        What ends that.
    """
    _listeners.append(listener)
    return partial(_listeners.remove, listener)


def watch_threads() -> None:
    """From now on, in this process, for all threads."""
    threading.excepthook = _thread_died


def critical_thread(target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> threading.Thread:
    """A daemon thread that is to run until the process ends, or to end well; not started yet.

    Args:
        target: What it does.
        name: Names it to an operator.
        args: Of the target.
    """
    thread = threading.Thread(target=target, name=name, args=args, daemon=True)
    _essential.add(thread)
    return thread


def critical_task(task: asyncio.Task[Any], what: str) -> asyncio.Task[Any]:
    """Watch a task that is to run until it is cancelled, or to end well.

    Args:
        task: which.
        what: names it to an operator.

    Returns:
        The same task.
    """
    task.add_done_callback(partial(_task_ended, what))
    return task


def _task_ended(what: str, task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        _tell(what, error)


def _thread_died(found: threading.ExceptHookArgs) -> None:
    name = "a thread" if found.thread is None else found.thread.name
    error = found.exc_value or found.exc_type()
    if isinstance(error, SystemExit):
        return
    if found.thread in _essential:
        _tell(name, error)
    else:
        log.error("background thread failed", thread=name, exc_info=error)


def _tell(what: str, error: BaseException) -> None:
    log.error("background task failed; the process exits", task=what, exc_info=error)
    for listener in list(_listeners):
        listener(what, error)
