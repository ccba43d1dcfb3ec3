# SPDX-License-Identifier: Apache-2.0
"""Block `log-messages`: each WARN and ERROR message of the product, with its entry in log-messages.toml.

A message is the first argument of a call such as ``log.warning("...")``. It must be a plain text, so that an operator
can search for it. What differs from line to line is in the other arguments.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dev.reference.markdown import code
from dev.reference.source import product_modules

TEXTS: Final = Path(__file__).with_name("log-messages.toml")
_LEVELS: Final = {"warning": "WARN", "error": "ERROR", "exception": "ERROR", "critical": "ERROR"}
_LOGGER: Final = re.compile(r"^_?log(ger)?$")


class Message(NamedTuple):
    """One message and its level."""

    text: str
    level: str


def messages() -> dict[Message, list[str]]:
    """Every message with the places that log it.

    Raises:
        ValueError: The first argument of a call is no plain text.
    """
    found: dict[Message, list[str]] = {}
    for path, tree in product_modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_logger(node.func.value):
                level = _LEVELS.get(node.func.attr)
                for text in _texts(node.args[0], f"{path}:{node.lineno}") if level else ():
                    found.setdefault(Message(text, str(level)), []).append(str(path))
    return found


def entries() -> Mapping[str, Mapping[str, str]]:
    """Message -> its meaning, cause and action."""
    return tomllib.loads(TEXTS.read_text(encoding="utf-8"))


def block() -> str:
    """Return a section for each message.

    Raises:
        ValueError: A message has no entry, an entry has no message, or an entry is incomplete.
    """
    found, known = messages(), entries()
    texts = {message.text for message in found}
    faults = [f"no entry for {text!r}" for text in sorted(texts - known.keys())]
    faults += [f"no message {text!r} in the product" for text in sorted(known.keys() - texts)]
    faults += [f"{text!r} needs meaning, cause, action" for text, entry in known.items() if set(entry) != _PARTS]
    if faults:
        raise ValueError(f"dev/reference/{TEXTS.name}: {'; '.join(faults)}")
    ordered = sorted(found.items(), key=lambda one: one[0].text.lower())
    return "\n".join("\n".join(_section(message, sorted(set(places)), known)) for message, places in ordered)


_PARTS: Final = {"meaning", "cause", "action"}


def _section(message: Message, places: list[str], known: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    entry = known[message.text]
    yield f"## {message.text.partition(', peer=%s')[0]}"
    yield ""
    yield f"**{message.level}**, from {', '.join(map(code, places))}. {entry['meaning']}"
    yield ""
    yield f"- **Cause.** {entry['cause']}"
    yield f"- **Action.** {entry['action']}"
    yield ""


def _is_logger(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _LOGGER.match(name) is not None
        case ast.Call(func=ast.Attribute(attr="get_logger" | "getLogger")):
            return True
        case _:
            return False


def _texts(node: ast.expr, place: str) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=body, orelse=other):
            yield from _texts(body, place)
            yield from _texts(other, place)
        case _:
            raise ValueError(f"{place}: a log message must be a plain text; put the rest into key=value arguments")
