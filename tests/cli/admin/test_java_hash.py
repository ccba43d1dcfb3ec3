# SPDX-License-Identifier: Apache-2.0
"""Keys come back as from Java's HashMap and HashSet."""

from __future__ import annotations

import json
from pathlib import Path

from cli.admin.java_hash import hash_order

PAIRS = json.loads((Path(__file__).parent / "golden" / "hash_order.json").read_text())


def test_as_java_gave_them_back() -> None:
    assert len(PAIRS) > 30
    for inserted, iterated in PAIRS:
        assert hash_order(inserted) == iterated


def test_a_repeated_key_counts_once() -> None:
    assert hash_order(["a"] * 100 + ["b"]) == ["a", "b"]
