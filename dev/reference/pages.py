# SPDX-License-Identifier: Apache-2.0
"""Fill the generated blocks of the pages, and copies of files, or check that they are up to date with the code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from dev.docs import ROOT, markdown_files
from dev.reference import (
    alerts,
    event_types,
    files,
    http,
    limits,
    log_messages,
    metrics,
    options,
    properties,
    results,
    sizes,
    tables,
)

COPIES: Final = {alerts.CHART_FILES / name: alerts.MIXIN / name for name in alerts.COPIED}
"""Copy -> original."""

BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "alerts": alerts.reference,
    "alerts-how-to": alerts.how_to,
    "access-reasons": results.access_reasons,
    "commands": options.all_commands,
    "data-files": files.block,
    "endpoints": http.endpoints,
    "events": event_types.block,
    "exit-codes": results.exit_codes,
    "kafka-properties": properties.kafka,
    "limits-events": limits.events,
    "limits-http": limits.http,
    "limits-remoting": limits.remoting,
    "log-messages": log_messages.block,
    "metrics": metrics.block,
    "namesrv-ignored": properties.ignored,
    "namesrv-keys": properties.namesrv,
    "outcomes": results.outcomes,
    "problems": http.problems,
    "quotas": limits.quotas,
    "reasons": results.reasons,
    "remarks": results.remarks,
    "reports": tables.reports,
    "sizes": sizes.table,
    "tables": tables.sections,
    **alerts.heads(),
    **options.groups(),
}
"""Name of a block -> function that returns its Markdown."""

_BLOCK: Final = re.compile(r"^(<!-- generated: ([\w-]+) -->\n).*?^(<!-- end -->)", re.DOTALL | re.MULTILINE)


def filled(page: str, blocks: Mapping[str, Callable[[], str]] = BLOCKS) -> str:
    """Return the text of a page with its blocks as the code is now.

    Args:
        page: Text of the page.
        blocks: Functions that return the blocks, by name.

    Raises:
        ValueError: The page shows a block that does not exist, or one without its end.
    """

    def fill(match: re.Match[str]) -> str:
        if match[2] not in blocks:
            raise ValueError(f"there is no block {match[2]!r}; dev/reference/pages.py has {', '.join(blocks)}")
        return f"{match[1]}\n{blocks[match[2]]().strip()}\n\n{match[3]}"

    new = _BLOCK.sub(fill, page)
    if len(re.findall(r"^<!-- generated: ", new, re.MULTILINE)) != len(_BLOCK.findall(new)):
        raise ValueError("a line '<!-- generated: NAME -->' has no line '<!-- end -->' after it")
    return new


def pages_with_blocks(root: Path = ROOT) -> Iterator[Path]:
    """Pages below docs/ that show at least one block."""
    for page in markdown_files(root / "docs"):
        if "<!-- generated: " in page.read_text(encoding="utf-8"):
            yield page


def check(root: Path = ROOT, *, write: bool = False) -> int:
    """Compare each page with the code, or write it; returns 1 if one differs or a block has no page.

    Args:
        root: Folder of the repository.
        write: Write the pages that differ.
    """
    faults, shown = [], set()
    for page in pages_with_blocks(root):
        text = page.read_text(encoding="utf-8")
        shown |= {name for _, name, _ in _BLOCK.findall(text)}
        name = page.relative_to(root)
        try:
            new = filled(text)
        except ValueError as error:
            faults.append(f"{name}: {error}")
            continue
        if new != text and write:
            page.write_text(new, encoding="utf-8")
        elif new != text:
            faults.append(f"{name}: not up to date with the code. Run ./routelake fix.")
    for copy, original in COPIES.items():
        text = original.read_text(encoding="utf-8")
        if copy.read_text(encoding="utf-8") == text:
            continue
        if write:
            copy.write_text(text, encoding="utf-8")
        else:
            faults.append(f"{copy.relative_to(ROOT)}: not a copy of {original.relative_to(ROOT)}. Run ./routelake fix.")
    faults += [f"docs/: no page shows the generated block {name!r}." for name in BLOCKS if name not in shown]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0
