# SPDX-License-Identifier: Apache-2.0
"""Rich's console for text of peers: a string is text, and no markup. It takes a while to import."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from cli.foreign_text import harmless


class PlainConsole(Console):
    """See the module."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 (rich's)
        """As rich's; it writes to standard output as that was before `HarmlessOutput`."""
        stream = sys.stdout
        given = {} if settings.get("stderr") else {"file": getattr(stream, "stream", stream)}
        super().__init__(**{**given, **settings}, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **how: Any) -> Text:  # noqa: ANN401 (rich's)
        """Strings of tables and titles, line ends and tabs included."""
        return super().render_str(harmless(text), **{**how, "markup": False, "emoji": False})
