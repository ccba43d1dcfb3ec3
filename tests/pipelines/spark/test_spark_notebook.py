# SPDX-License-Identifier: Apache-2.0
"""The results in docs/how-to/analyze/notebooks/spark.md are those that Spark computes from the sample."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from dev.sample_lake import write_sample
from dev.support.command import command

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]

PAGE = (ROOT / "docs" / "how-to" / "analyze" / "notebooks" / "spark.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("in_shared_session")
def test_the_page_has_the_results_of_spark(tmp_path: Path) -> None:
    write_sample(tmp_path)
    statements = "\n".join(re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL))
    done = command("spark-sql", "--data-dir", tmp_path, stdin=statements)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().split("\n\n") == re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
