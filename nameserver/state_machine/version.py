# SPDX-License-Identifier: Apache-2.0
"""Version of the state machine's rules.

Each epoch names the version that made it (rulesVersion in routeCommitTable). A gateway with another version than the
latest epoch would give answers that the tables will not have. So it serves the committed view until fold and gateway
have the same version.

Raise the version by one in each change by which some event log leads to another state, or an event to another outcome.
Examples are a repaired rule, a new event or field, and a record that is no longer put into quarantine. The encoding of
the state does not count. `tests/nameserver/state_machine/test_version.py` fails if the version was not raised, as far
as generated logs show the change.
"""

from __future__ import annotations

from typing import Final

STATE_MACHINE_VERSION: Final = 8
