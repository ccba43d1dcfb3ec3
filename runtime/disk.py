# SPDX-License-Identifier: Apache-2.0
"""A disk that does not take what a start writes."""

from __future__ import annotations

import errno
import os
from typing import Final

from schemas.errors import SetupError, UnavailableError

_PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def at_start(error: Exception) -> type[UnavailableError | SetupError]:
    """Which error it is to meet this one at a start.

    A disk that is full or failing may have room again, so that whoever supervises the process is to start it again;
    for everything else somebody has to do something first. delta-rs says which it was in words alone.
    """
    number = error.errno if isinstance(error, OSError) else None
    passes = number in _PASSING or any(os.strerror(passing) in str(error) for passing in _PASSING)
    return UnavailableError if passes else SetupError
