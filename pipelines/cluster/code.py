# SPDX-License-Identifier: Apache-2.0
"""Our packages as executors get them: one archive of byte code, so that workers compile nothing."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = ("eventlog", "lake", "nameserver", "pipelines", "runtime", "schemas")
"""What Spark's workers import, of ours."""


def write_archive(folder: Path) -> Path:
    """Write the archive; for the Python of this process, which Spark asks of its workers, too.

    Args:
        folder: where it goes, made if need be.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "routelake-code.zip"
    with zipfile.PyZipFile(str(path), "w", zipfile.ZIP_DEFLATED, optimize=sys.flags.optimize) as archive:
        for room in ROOMS:
            archive.writepy(str(_ROOT / room))
    return path
