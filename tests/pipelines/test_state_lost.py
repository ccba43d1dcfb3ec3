# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is made again if its state cannot be loaded, or if it is ahead of events that are not folded. A query that
fails once or twice is only started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipelines.main as main
from pipelines.job import FoldSettings
from runtime.process import EXIT_FAILED, StopSignal

LOST = "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE] Error reading streaming state file"


@pytest.mark.parametrize(
    ("ends", "kept"),
    [
        ([LOST, LOST, LOST, None], [True, True, True, False]),
        ([LOST, LOST, None], [True, True, True]),
        (["else", "else", "else", None], [True, True, True, True]),
        ([LOST, LOST, "else", LOST, None], [True, True, True, True, True]),
    ],
)
def test_state_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: list[str | None], kept: list[bool]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    seen: list[bool] = []

    def query(*_: object) -> str | None:
        seen.append(checkpoint.exists())
        return ends[len(seen) - 1]

    monkeypatch.setattr(main, "_query", query)
    monkeypatch.setattr(main, "_FIRST_PAUSE_S", 0.0)
    spark: Any = None
    settings = FoldSettings(tmp_path, checkpoint, "memory:", tmp_path)
    assert main._fold(spark, settings, StopSignal(), None) == 0
    assert seen == kept


@pytest.mark.parametrize("last", [LOST, "else"])
def test_the_last_failure_in_a_row_removes_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Whatever its kind: Spark has many messages for a damaged checkpoint."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    ends = iter(["else"] * 3 + [last] * 5)
    monkeypatch.setattr(main, "_query", lambda *_: next(ends))
    monkeypatch.setattr(main, "_FIRST_PAUSE_S", 0.0)
    spark: Any = None
    settings = FoldSettings(tmp_path, checkpoint, "memory:", tmp_path)
    assert main._fold(spark, settings, StopSignal(), None) == EXIT_FAILED
    assert not checkpoint.exists()


def test_nothing_is_folded_on_top_of_what_was_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is in the checkpoint when Spark says so: another process would go on behind it."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    monkeypatch.setattr(main, "_query", lambda *_: f"{main.CLOCK_WENT_BACK}: 3 records were not folded")
    spark: Any = None
    settings = FoldSettings(tmp_path, checkpoint, "memory:", tmp_path)
    assert main._fold(spark, settings, StopSignal(), None) == EXIT_FAILED
    assert not checkpoint.exists()
