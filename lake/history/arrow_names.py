# SPDX-License-Identifier: Apache-2.0
"""Many names in order, as Arrow has them: no Python object is made but for those that are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc


class SortedNames(Sequence[str]):
    """Different names in the order of Python and UTF-8.

    Args:
        names: Texts, in any order, as often as they come.
    """

    def __init__(self, names: pa.ChunkedArray | pa.Array) -> None:
        """Sort them, without the interpreter's lock."""
        found = pc.unique(names)
        self._names = found.take(pc.sort_indices(found))

    @property
    def bytes(self) -> int:
        """How much they take."""
        return int(self._names.nbytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self[:] == other[:]

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            found: Any = self._names[place].to_pylist()
            return list(found)
        return str(self._names[place].as_py())
