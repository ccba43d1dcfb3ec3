# SPDX-License-Identifier: Apache-2.0
"""Full size: 10,000 topics on 300 broker groups. Runs with --deep; `dev.benchmarks.view_load` prints the same figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.benchmarks import view_load

TOPICS, GROUPS = 10_000, 300


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake")
    view_load.write_epochs(view_load.write_lake(path, TOPICS, GROUPS), TOPICS, GROUPS, 100)
    return path


@pytest.mark.deep
def test_a_view_of_3_000_000_rows_loads_in_five_seconds_and_a_gigabyte(lake: Path) -> None:
    figures = view_load.run_part("load", lake, TOPICS, GROUPS)
    assert figures["load_s"] < 5
    assert figures["load_peak_mb"] < 1_000
    assert figures["load_settled_mb"] < 500


@pytest.mark.deep
def test_large_epochs_do_not_stall_the_loop_beside_them(lake: Path) -> None:
    figures = view_load.run_part("storm", lake, TOPICS, GROUPS)
    own_ms = figures["storm_nothing_loop_late_p99_ms"]  # what the machine does to a loop that has it to itself
    for name, value in figures.items():
        if name.endswith("_loop_late_p99_ms"):
            assert value < 20 + own_ms, name
    assert figures["storm_all_rows_s"] < 10
    assert figures["storm_one_row_processor_s"] < 0.1


@pytest.mark.deep
def test_answers_of_a_topic_on_300_groups(lake: Path) -> None:
    figures = view_load.run_part("answers", lake, TOPICS, GROUPS)
    assert figures["answer_hot_us"] < 5
    assert figures["answer_encode_us"] < 1_000
    assert figures["answer_after_swap_us"] < 50


@pytest.mark.deep
def test_routes_of_the_past(lake: Path) -> None:
    figures = view_load.run_part("history", lake, TOPICS, GROUPS)
    assert figures["history_first_ms"] < 1_500  # 500 on an idle machine
    assert figures["history_repeated_ms"] < 5
