# SPDX-License-Identifier: Apache-2.0
r"""java.util.Properties.load: the text format of namesrv.properties, broker.conf and similar files. Pure.

The tests compare it with Java over generated files (tests/schemas/test_properties.py). A library, javaproperties 0.8.2,
was tried: it takes a comment after a single backslash for an entry, which Java does not.

A file is read as ISO-8859-1, whatever its encoding. Text of other scripts does no harm in a comment. In a value it
comes out garbled, as in RocketMQ. There is one difference from Java: a byte order mark of UTF-8, which Windows' editors
write, is skipped. Java takes it for a part of the first key.

A *logical line* is a natural line. If it ends in an odd number of backslashes, it is joined with the next one, without
the blanks at the start of the next one::

    # a comment; so is a line that starts with !
    listenPort = 9876            key listenPort, value 9876 (a blank at the END of a value stays)
    bindAddress:10.0.0.1         = or : or only blanks end the key
    configBlackList = a;\
                      b          value a;b
    path = C:\\data\tx\u00e4     value C:\data<tab>xä

Blank lines are skipped. A key given twice has its last value. Source: java.util.Properties (JDK 17).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from schemas.errors import BadRequestError

_BLANKS: Final = " \t\f"
_NEWLINE = re.compile(r"\r\n|\r|\n")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_BOM: Final = b"\xef\xbb\xbf"
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One entry. ``line`` is where it begins, from 1."""

    key: str
    value: str
    line: int


class PropertiesError(BadRequestError):
    r"""Malformed ``\uxxxx`` escapes, or a file in UTF-16. This format has no other errors.

    Attributes:
        line: Line of the first error, from 1.
        faults: Error of each invalid line.
        entries: Entries of the other lines.
    """

    def __init__(self, lines: list[int], what: str, entries: list[Property]) -> None:
        """Store the errors and the valid entries."""
        self.line = lines[0]
        self.faults = [f"line {line}: {what}" for line in lines]
        self.entries = entries
        super().__init__("; ".join(self.faults), line=self.line)


class _EscapeError(ValueError):
    pass


def is_true(text: str) -> bool:
    """Return Boolean.parseBoolean: only "true" in any letter case is true. ``TRUE`` with a blank after it is false."""
    return text.lower() == "true"


def parse_int(text: str, bits: int = 32) -> int | None:
    """Return Integer.parseInt or Long.parseLong. None for other text, such as a number with blanks around it."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def parse_file(data: bytes) -> list[Property]:
    """Return the entries of a file in their order (Properties.load(InputStream)).

    Raises:
        PropertiesError: The file has a malformed escape, or is in UTF-16.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PropertiesError([1], "the file is in UTF-16. Save it in UTF-8", [])
    return parse(data.removeprefix(_BOM).decode("latin-1"))


def parse_body(body: bytes) -> dict[str, str]:
    """Return a request's body as a table. It is decoded as UTF-8 first, as in RocketMQ (MixAll.string2Properties).

    Raises:
        PropertiesError: The body has a malformed escape.
    """
    return {entry.key: entry.value for entry in parse(body.decode("utf-8", "replace").encode().decode("latin-1"))}


def parse(text: str) -> list[Property]:
    """Return the entries of a text in their order, with duplicates.

    Raises:
        PropertiesError: The text has a malformed escape.
    """
    entries, wrong = [], []
    for line, number in _logical_lines(text):
        try:
            entries.append(_entry(line, number))
        except _EscapeError:
            wrong.append(number)
    if wrong:
        what = "malformed \\uxxxx escape: four hexadecimal digits must follow \\u"
        raise PropertiesError(wrong, what, entries)
    return entries


def _logical_lines(text: str) -> list[tuple[str, int]]:
    """Return the logical lines without leading blanks, comments and blank lines, each with its first line's number."""
    found: list[tuple[str, int]] = []
    joined, begins, is_open = "", 0, False
    if text.endswith(("\\\n", "\\\r")):  # the text ends, but not the line
        text = text[:-1]
    for number, natural in enumerate(_NEWLINE.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not joined:
            if not line or line[0] in "#!":
                is_open = False
                continue
            begins = number
        joined += line
        is_open = _is_continued(line)
        if is_open:
            joined = joined[:-1]
            continue
        if joined:
            found.append((joined, begins))
        joined = ""
    if joined or is_open:  # the text ends after a continuation mark: without other text that is an empty key
        found.append((joined, begins))
    return found


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _entry(line: str, number: int) -> Property:
    """Cut a logical line at the first blank, = or : without a backslash before it."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return Property(_unescaped(key), _unescaped(rest), number)


def _unescaped(text: str) -> str:
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
                raise _EscapeError
            pieces.append(chr(int(digits[0], 16)))
            at += 4
        else:
            pieces.append(_ESCAPES.get(escaped, escaped))
    # Java's characters are UTF-16 units: two escapes may make one character. Half of one is sent as a question mark.
    found = "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return found.encode(errors="replace").decode()
