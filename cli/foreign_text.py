# SPDX-License-Identifier: Apache-2.0
"""Text of peers on a terminal: no character that a terminal obeys. `cli.plain_console` prints none of it as markup.

Names of topics and brokers, addresses, values and remarks are chosen by whoever registers them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO, Any, Final

_OBEYED: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters but tab and line ends; what turns the direction of text, or has no width."""
_LINE_ENDS: Final = re.compile("[\t\n\r]")


def printable(text: str) -> str:
    r"""A text on one line, whose other characters stand as JSON would escape them: ``\u001b``."""
    return _LINE_ENDS.sub(_escaped, harmless(text))


def harmless(text: str) -> str:
    """`printable` of lines: tabs and line ends stay."""
    return text if text.isascii() and text.isprintable() else _OBEYED.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class HarmlessOutput:
    """A stream that writes nothing a terminal obeys but line ends, whoever prints. What is JSON stays the same JSON."""

    def __init__(self, stream: IO[str]) -> None:
        """Write to this one."""
        self.stream = stream

    def write(self, text: str) -> int:
        """As `IO.write`."""
        return self.stream.write(harmless(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """As `IO.writelines`."""
        self.stream.writelines(map(harmless, lines))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (of any stream)
        """All else is the stream's."""
        return getattr(self.stream, name)
