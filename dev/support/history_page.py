# SPDX-License-Identifier: Apache-2.0
"""The twelve questions of docs/how-to/analyze/queries.md, and the SQL that answers each: with macros, and as Spark takes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TEXT: Final = (Path(__file__).parents[2] / "docs" / "how-to" / "analyze" / "queries.md").read_text(encoding="utf-8")
QUERIES: Final = {
    title: re.findall(r"(?:```sql\n|\nsql\(\"{3}\n)(.*?)(?:```|\"{3}\))", rest, re.DOTALL)
    for title, _, rest in (
        part.partition("\n") for part in re.split(r"^### ", TEXT.partition("## Twelve questions")[2], flags=re.M)[1:]
    )
}
"""Question to its queries; of two, the second is the one without macros."""
PROOF: Final = "Has anybody changed the history?"
"""Heading of the question that has no answer in Spark."""
