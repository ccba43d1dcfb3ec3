# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint of the fold's query says of itself, and its end; without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from lake.commits import RouteCommit

CHECKPOINT_FORMAT: Final = 4
"""Of the state, and of the offsets in the log. One written by an older routelake is deleted: the state comes back from
the tables."""
EPOCH_FILE: Final = "epoch"
"""In the checkpoint's folder: the last epoch that it has seen written."""
MARKER_FILE: Final = "routelake.json"


class Judgement(NamedTuple):
    """Whether the fold goes on with a checkpoint; if not, why it is made anew.

    Attributes:
        goes_on: it has a finished batch and belongs to the epochs in the lake.
        why: in words, where it does not.
        is_ahead: it has seen a later epoch than there is. It knows what the tables have lost, and would never write it
            again: the lake is a restored one.
    """

    goes_on: bool
    why: str = ""
    is_ahead: bool = False


def judge(checkpoint_dir: Path, last: RouteCommit | None) -> Judgement:
    """Judge a checkpoint by the last epoch of the lake."""
    try:
        query_id = json.loads((checkpoint_dir / "metadata").read_text(encoding="utf-8"))["id"]
        finished = any(entry.name.isdigit() for entry in (checkpoint_dir / "commits").iterdir())
        (checkpoint_dir / MARKER_FILE).stat()
        epoch_file = checkpoint_dir / EPOCH_FILE
        epoch = int(epoch_file.read_text(encoding="utf-8")) if epoch_file.exists() else 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Judgement(False, f"it is not whole: {' '.join(str(error).split())}")
    if last is not None and last.epoch < epoch:
        return Judgement(False, f"it has seen epoch {epoch}, the tables end at epoch {last.epoch}", is_ahead=True)
    if last is None or last.query_id != query_id:
        return Judgement(False, "it is of another query than the one that wrote the last epoch")
    return Judgement(True) if finished else Judgement(False, "it has no finished batch")


def remove(checkpoint_dir: Path) -> None:
    """Remove a checkpoint: the state comes back from the tables. What a kill leaves of it is none any more.

    Raises:
        OSError: storage failed; it would still be gone on with.
    """
    (checkpoint_dir / MARKER_FILE).unlink(missing_ok=True)
    shutil.rmtree(checkpoint_dir, ignore_errors=True)
