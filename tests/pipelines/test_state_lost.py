# SPDX-License-Identifier: Apache-2.0
"""A checkpoint whose state cannot be loaded is made anew; a query that fails once or twice is only tried again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipelines.main as main
from pipelines.job import FoldSettings
from runtime.process import StopSignal

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
