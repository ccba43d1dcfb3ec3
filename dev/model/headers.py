# SPDX-License-Identifier: Apache-2.0
"""Request headers as RemotingCommand.decodeCommandCustomHeader reads them, and the errors Java code ends in."""

from __future__ import annotations

import re
from typing import Any

from dev.model.wire import Request

# Kinds of header field.
STRING, INT, LONG, BOOLEAN = "String", "Integer", "Long", "Boolean"


class JavaError(Exception):
    """An exception that escapes the request handler; the peer gets SYSTEM_ERROR (1) and no extFields."""


class NullPointer(JavaError):
    """A NullPointerException."""


def read_header(request: Request, kinds: dict[str, str]) -> dict[str, Any]:
    """The fields a header class declares, null where absent or unparseable.

    CFNotNull is not enforced: RemotingCommand logs the missing field and goes on.

    Args:
        request: Request with extFields.
        kinds: Field name -> kind.
    """
    return {name: _parse(request.ext.get(name), kind) for name, kind in kinds.items()}


def _parse(text: str | None, kind: str) -> Any:
    if text is None or kind == STRING:
        return text
    if kind == BOOLEAN:
        return parse_boolean(text)
    return parse_int(text, bits=32 if kind == INT else 64)


def parse_boolean(text: str | None) -> bool:
    """Boolean.parseBoolean: true for "true" in any letter case, false for everything else."""
    return text is not None and text.lower() == "true"


def parse_int(text: str, bits: int) -> int | None:
    """Integer.parseInt or Long.parseLong; None where they throw."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None
