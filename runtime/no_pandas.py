# SPDX-License-Identifier: Apache-2.0
"""Start of a process that uses Arrow but no data frames, without pandas."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType


class _NoPandas:
    """An import finder that refuses pandas."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Refuse pandas, and leave all other modules to the other finders."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Make imports of pandas fail inside the block, unless pandas is already loaded."""
    sys.meta_path.insert(0, _NoPandas)
    try:
        yield
    finally:
        sys.meta_path.remove(_NoPandas)


def keep_pandas_out() -> None:
    """Make pyarrow work without pandas from now on.

    When pyarrow creates its first array, it imports pandas if possible. That costs 0.85 s of processor time and 44 MB,
    and routelake does not need it. pyarrow tries this only once. Call this function first, in a separate process.
    ``to_pandas`` does not work afterwards. If pandas is already loaded, nothing happens.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    with without_pandas():
        pa.array([])
