# SPDX-License-Identifier: Apache-2.0
"""The version of the rules.

Every epoch says by which version it was folded (rulesVersion in routeCommitTable). A gateway folds the end of the log
itself; one whose rules are of another version than the last epoch's would answer what the tables will not say, so it
follows the tables alone until fold and gateway have both been upgraded.

Raise it by one in every change by which some log folds to another state, or an event gets another outcome, than with
the version before: a rule that is mended, an event or a field that rules now know, a record that is no longer put into
quarantine. How state is held does not count. `tests/nameserver/state_machine/test_version.py` fails when it was
forgotten, as far as generated logs show the change.
"""

from __future__ import annotations

from typing import Final

STATE_MACHINE_VERSION: Final = 7
