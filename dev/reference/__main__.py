# SPDX-License-Identifier: Apache-2.0
"""Write or check the generated blocks.

Commands::

    python -m dev.reference            write them
    python -m dev.reference --check    exit with 1 if one is not up to date
"""

from __future__ import annotations

import sys

from dev.reference.pages import check

if __name__ == "__main__":
    raise SystemExit(check(write="--check" not in sys.argv[1:]))
