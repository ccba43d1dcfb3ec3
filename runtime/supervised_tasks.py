# SPDX-License-Identifier: Apache-2.0
"""Threads and tasks that a process cannot run without. If one fails, the failure is logged and the process exits.

By default, a failed thread prints a traceback and the process continues without it. A failed task with a reference
prints nothing. In both cases a part of the process stops without a reason. So loops that run as long as the process
handle all expected errors (an unreadable log, a damaged file) and continue. Any other error is a defect. Then the
process exits with code 1, and `serve` starts it again.

Other tasks and threads (of a request, of a pool) are awaited by their callers, which get the error.
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
"""Threads that the process cannot run without. The failure of another thread is only logged."""


def on_death(listener: OnDeath) -> Callable[[], None]:
    """Call a listener after each failure of a critical task or thread, on the thread that noticed the failure.

    Failures of threads are noticed only after `watch_threads`.

    Returns:
        A function that removes the listener.
    """
    _listeners.append(listener)
    return partial(_listeners.remove, listener)


def watch_threads() -> None:
    """Notice failures of all threads of this process, from now on."""
    threading.excepthook = _thread_died


def critical_thread(target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> threading.Thread:
    """Create a daemon thread that must run until the process ends, or return without error. It is not started.

    Args:
        target: Function of the thread.
        name: Name of the thread, for an operator.
        args: Arguments of the function.
    """
    thread = threading.Thread(target=target, name=name, args=args, daemon=True)
    _essential.add(thread)
    return thread


def critical_task(task: asyncio.Task[Any], what: str) -> asyncio.Task[Any]:
    """Watch a task that must run until it is cancelled, or end without error.

    Args:
        task: The task.
        what: Name of the task, for an operator.

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
