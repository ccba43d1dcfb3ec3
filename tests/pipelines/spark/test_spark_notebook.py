# SPDX-License-Identifier: Apache-2.0
"""The results in docs/how-to/analyze/notebooks/spark.md are those that Spark computes from the sample."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from dev.sample_lake import write_sample

PAGE = (ROOT / "docs" / "how-to" / "analyze" / "notebooks" / "spark.md").read_text(encoding="utf-8")


@pytest.mark.jvm
def test_the_stored_results(tmp_path: Path) -> None:
    write_sample(tmp_path)
    statements = "\n".join(re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL))
    done = subprocess.run(
        [ROOT / "routelake", "spark-sql", "--data-dir", tmp_path],
        input=statements,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().split("\n\n") == re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
