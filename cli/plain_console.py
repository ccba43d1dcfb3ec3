# SPDX-License-Identifier: Apache-2.0
"""Rich's console for text of peers, without markup. The import of this module is slow."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from cli.foreign_text import harmless


class PlainConsole(Console):
    """A console that prints strings as plain text, without markup."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 (rich's)
        """Create a console. It writes to the original standard output, below `HarmlessOutput`."""
        stream = sys.stdout
        given = {} if settings.get("stderr") else {"file": getattr(stream, "stream", stream)}
        super().__init__(**{**given, **settings}, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **how: Any) -> Text:  # noqa: ANN401 (rich's)
        """Convert strings of tables and titles to text. Line ends and tabs stay."""
        return super().render_str(harmless(text), **{**how, "markup": False, "emoji": False})
