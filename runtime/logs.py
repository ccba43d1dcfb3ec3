# SPDX-License-Identifier: Apache-2.0
"""Readable logs on standard error, one line for each event.

ROUTELAKE_LOG_LEVEL (debug, info, warning, error) sets the minimum level. With ROUTELAKE_LOG_FORMAT=json each line is a
JSON object.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection
from typing import Any, Final

import structlog

from schemas.errors import SetupError

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_FORMATS: Final = ("text", "json")


def configure(process: str) -> None:
    """Set up structlog and the standard library's logging for one process.

    Args:
        process: Name of the process in every line: ``serve``, ``gateway``, ``event-log`` or ``fold``.

    Raises:
        SetupError: ROUTELAKE_LOG_LEVEL or ROUTELAKE_LOG_FORMAT has an unknown value.
    """
    level = _LEVELS[_chosen("ROUTELAKE_LOG_LEVEL", _LEVELS, default="info")]
    as_json = _chosen("ROUTELAKE_LOG_FORMAT", _FORMATS, default="text") == "json"
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _named(process),
    ]
    renderer: Any
    if as_json:
        renderer = structlog.processors.JSONRenderer()
    else:
        colors = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        renderer = structlog.dev.ConsoleRenderer(
            colors=colors, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    # While a broker is down, kafka-python prints several lines a second, and the log writer prints one. At level debug,
    # kafka-python prints requests with their passwords.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    for chatty in ("asyncio", "httpx", "py4j", "pyspark"):  # their lines below WARNING are about their internals
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _chosen(variable: str, among: Collection[str], *, default: str) -> str:
    given = os.environ.get(variable, "")
    value = given.lower() or default
    if value not in among:
        raise SetupError(f"{variable} is {given!r}: expected one of {', '.join(among)}.")
    return value


def _named(process: str) -> structlog.types.Processor:
    def add(_logger: object, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        event["process"] = process
        return event

    return add
