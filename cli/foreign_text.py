# SPDX-License-Identifier: Apache-2.0
"""Text of peers on a terminal, without control characters. `cli.plain_console` prints none of it as markup.

A peer can choose any text for its names of topics and brokers, addresses, values and remarks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO, Any, Final

_OBEYED: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters except tab and line ends, and characters that change the text direction or have no width."""
_LINE_ENDS: Final = re.compile("[\t\n\r]")


def printable(text: str) -> str:
    r"""Return a text on one line. Characters that are not printable are escaped as in JSON: ``\u001b``."""
    return _LINE_ENDS.sub(_escaped, harmless(text))


def harmless(text: str) -> str:
    """Escape a text like `printable`, but keep tabs and line ends."""
    return text if text.isascii() and text.isprintable() else _OBEYED.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class HarmlessOutput:
    """A stream that escapes all control characters except tabs and line ends. JSON keeps its meaning."""

    def __init__(self, stream: IO[str]) -> None:
        """Create a stream that writes to this one."""
        self.stream = stream

    def write(self, text: str) -> int:
        """See `IO.write`."""
        return self.stream.write(harmless(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """See `IO.writelines`."""
        self.stream.writelines(map(harmless, lines))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (of any stream)
        """Return all other attributes of the stream."""
        return getattr(self.stream, name)
