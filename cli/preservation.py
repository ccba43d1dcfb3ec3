# SPDX-License-Identifier: Apache-2.0
"""The options of self-preservation, and what is wrong with them."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from api.settings.keys import parse_percent
from cli.options import option
from schemas.errors import SetupError

Share = Annotated[
    str,
    option(
        "--self-preservation",
        metavar="SHARE",
        help="If more than this share of the live brokers falls silent at once, for example 15%, none expires until "
        "they are back. off: never, as in RocketMQ.",
    ),
]
LimitS = Annotated[
    float,
    option(
        "--self-preservation-limit-s",
        min=1,
        max=31_536_000,
        help="How long such a pause may last; then who is silent expires all the same.",
    ),
]


class PreservationOptions(NamedTuple):
    """What was said of it."""

    share: str
    limit_s: float

    def percent(self) -> int:
        """The share; 0: off.

        Raises:
            SetupError: It is none.
        """
        found = parse_percent(self.share.strip())
        if found is None:
            raise SetupError(f"--self-preservation {self.share!r}: expected a share, for example 15%, or off.")
        return found

    @property
    def arguments(self) -> list[str]:
        """The same, for a gateway process."""
        return [*("--self-preservation", self.share), *("--self-preservation-limit-s", str(self.limit_s))]
