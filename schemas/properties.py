# SPDX-License-Identifier: Apache-2.0
r"""java.util.Properties.load: the text format of namesrv.properties. Pure.

A file is read as ISO-8859-1. A *logical line* is a natural line, joined with the next one as long as it ends in an odd
number of backslashes (blanks at the start of the next one are dropped)::

    # a comment; so is a line that starts with !
    listenPort = 9876            key listenPort, value 9876 (a blank at the END of a value stays)
    bindAddress:10.0.0.1         = or : or only blanks end the key
    configBlackList = a;\
                      b          value a;b
    path = C:\\data\tx\u00e4     value C:\data<tab>xä

Blank lines are skipped; a key given twice has its last value. Source: java.util.Properties (JDK 17).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from schemas.errors import BadRequestError

_BLANKS: Final = " \t\f"
_NEWLINE = re.compile(r"\r\n|\r|\n")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One entry. ``line`` is where it begins, from 1."""

    key: str
    value: str
    line: int


class PropertiesError(BadRequestError):
    r"""A malformed ``\uxxxx`` escape, the only thing this format can get wrong. ``line`` is where, from 1."""

    def __init__(self, line: int) -> None:
        """See the attribute."""
        self.line = line
        super().__init__(f"line {line}: malformed \\uxxxx escape: four hexadecimal digits must follow \\u", line=line)


def parse_file(data: bytes) -> list[Property]:
    """The entries of a file in their order (Properties.load(InputStream)).

    Raises:
        PropertiesError: A malformed escape.
    """
    return parse(data.decode("latin-1"))


def parse_body(body: bytes) -> dict[str, str]:
    """A request's body as a table: decoded as UTF-8 first, as the NameServer does it (MixAll.string2Properties).

    Raises:
        PropertiesError: A malformed escape.
    """
    return {entry.key: entry.value for entry in parse_file(body.decode("utf-8", "replace").encode())}


def parse(text: str) -> list[Property]:
    """The entries of a text in their order, duplicates included.

    Raises:
        PropertiesError: A malformed escape.
    """
    return [_entry(line, number) for line, number in _logical_lines(text)]


def _logical_lines(text: str) -> list[tuple[str, int]]:
    """Logical lines without leading blanks, comments and blank lines, and the number of the line each begins on."""
    found: list[tuple[str, int]] = []
    joined, begins = "", 0
    for number, natural in enumerate(_NEWLINE.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not joined:
            if not line or line[0] in "#!":
                continue
            begins = number
        joined += line
        if _is_continued(line):
            joined = joined[:-1]
            continue
        if joined:
            found.append((joined, begins))
        joined = ""
    if joined:  # the text ends after a continuation mark
        found.append((joined, begins))
    return found


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _entry(line: str, number: int) -> Property:
    """Cut a logical line at the first blank, = or : that no backslash precedes."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return Property(_unescaped(key, number), _unescaped(rest, number), number)


def _unescaped(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    pieces, at = [], 0
    while at < len(text):
        character = text[at]
        at += 1
        if character != "\\":
            pieces.append(character)
            continue
        escaped = text[at : at + 1]
        at += 1
        if escaped == "u":
            digits = _HEX.fullmatch(text[at : at + 4])
            if digits is None:
                raise PropertiesError(line)
            pieces.append(chr(int(digits[0], 16)))
            at += 4
        else:
            pieces.append(_ESCAPES.get(escaped, escaped))
    # Java's characters are UTF-16 units: two escapes may make one character.
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
