# SPDX-License-Identifier: Apache-2.0
"""Changes between two states, row by row: nameserver.state_machine.changes works by columns."""

from __future__ import annotations

from nameserver.state_machine.changes import RowChange, changes_of
from nameserver.state_machine.rows import rows_of
from nameserver.state_machine.step import GroupChange, KvChange
from schemas.tables import TOPIC_QUEUE_TABLE


def all_changes_of(change: GroupChange | KvChange) -> list[RowChange]:
    """Every row change of a step, topics first: from an empty table in the order of the new one, else by key."""
    rest = list(changes_of(change))
    if isinstance(change, KvChange):
        return rest
    old, new = rows_of(TOPIC_QUEUE_TABLE, change.before), rows_of(TOPIC_QUEUE_TABLE, change.after)
    keys = list(new) if not old else sorted({*old, *new})
    return [
        *(
            RowChange(TOPIC_QUEUE_TABLE, key, old.get(key), new.get(key))
            for key in keys
            if old.get(key) != new.get(key)
        ),
        *rest,
    ]
