# SPDX-License-Identifier: Apache-2.0
"""A sample data directory: two hours of 30 brokers and 500 topics, with outages, deletions and wiped permissions.

The notebooks of the documentation read it, and so can everybody who tries a query. The same events are written each
time, by the product's own state machine and writer.

Command::

    python -m dev.sample_lake FOLDER    write FOLDER/lake, unless it is there
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dev.support.drive import drive
from dev.support.generated_logs import batches
from dev.support.two_hours import two_hours
from lake.history.intervals import rebuild

_EVENTS_IN_AN_EPOCH = 160


def write_sample(folder: Path) -> None:
    """Write the sample lake below a folder.

    Args:
        folder: data directory; its folder `lake` must not exist.
    """
    drive(folder / "lake", list(batches(two_hours(), (_EVENTS_IN_AN_EPOCH,))))
    rebuild(folder / "lake", lambda epoch, last: None)


def main(arguments: Sequence[str]) -> int:
    """Write the sample into the folder that is named."""
    (name,) = arguments
    folder = Path(name)
    if not (folder / "lake").exists():
        write_sample(folder)
    print(f"{folder / 'lake'} has the sample")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
