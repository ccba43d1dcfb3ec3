# SPDX-License-Identifier: Apache-2.0
"""CHANGELOG.md, assembled from the fragments in `changes`.

Commands::

    python -m dev.changelog VERSION   move all fragments into CHANGELOG.md as this version, of today
    python -m dev.changelog --check   exit with 1 if a fragment's name or text is not as changes/README.md says
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
KINDS: Final = ("added", "changed", "deprecated", "removed", "fixed", "security")
_MARK: Final = "<!-- releases -->\n"
_NAME: Final = re.compile(rf"({'|'.join(KINDS)})-[a-z0-9-]+\.md")


def fragments(root: Path) -> dict[str, list[Path]]:
    """The fragments of each kind, by name.

    Raises:
        ValueError: a file has another name, or no text.
    """
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    for path in sorted((root / "changes").iterdir()):
        if path.name == "README.md":
            continue
        if not (match := _NAME.fullmatch(path.name)):
            raise ValueError(f"changes/{path.name} is not named KIND-SLUG.md, with a kind of {', '.join(KINDS)}.")
        if not path.read_text(encoding="utf-8").strip():
            raise ValueError(f"changes/{path.name} is empty.")
        found[match[1]].append(path)
    return found


def release(root: Path, version: str, today: date) -> None:
    """Move the fragments into CHANGELOG.md, as its newest version.

    Raises:
        ValueError: there are no fragments, one is malformed, or the changelog has this version or lacks its mark.
    """
    found = fragments(root)
    changelog = root / "CHANGELOG.md"
    before, mark, after = changelog.read_text(encoding="utf-8").partition(_MARK)
    heading = f"## {version} "
    if not any(found.values()) or not mark or f"\n{heading}" in after:
        raise ValueError(f"CHANGELOG.md has {version} already, or lacks {_MARK.strip()}, or changes holds no fragment.")
    text = f"\n{heading}({today})\n"
    for kind, paths in found.items():
        lines = (" ".join(path.read_text(encoding="utf-8").split()) for path in paths)
        text += "".join([f"\n### {kind.capitalize()}\n\n", *(f"- {line}\n" for line in lines)]) if paths else ""
    changelog.write_text(before + mark + text + after, encoding="utf-8")
    for path in (path for paths in found.values() for path in paths):
        path.unlink()


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands; returns the exit code."""
    try:
        if list(arguments) == ["--check"]:
            fragments(ROOT)
        elif len(arguments) == 1 and re.fullmatch(r"\d+\.\d+\.\d+", arguments[0]):
            release(ROOT, arguments[0], datetime.now(UTC).date())
        else:
            raise ValueError("python -m dev.changelog VERSION, such as 0.2.0, or --check")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
