# SPDX-License-Identifier: Apache-2.0
"""`python -m dev.release`: the release checklist, see `dev.release.checklist`."""

from __future__ import annotations

import sys

from dev.release.checklist import main

sys.exit(main(sys.argv[1:]))
