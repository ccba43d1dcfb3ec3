# SPDX-License-Identifier: Apache-2.0
"""Every test with a routelake process asks, at its end, whether a gateway found that head and tables differ."""

from __future__ import annotations

import pytest

from dev.peers.routelake import Routelake


def test_a_difference_that_a_process_found_fails_its_test(gateway: Routelake) -> None:
    gateway.lake_dir.mkdir(exist_ok=True)
    (gateway.lake_dir / "live-view-differences-one.json").write_text('{"differences": ["planted"]}')
    with pytest.raises(AssertionError, match="live-view-differences-one.json.*planted"):
        gateway.stop()
