# SPDX-License-Identifier: Apache-2.0
"""Which rows of brokerLiveTable count as changed: all but those that only a heartbeat moved."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nameserver.state_machine.changes import LIVENESS_COLUMNS, row_changes
from nameserver.state_machine.rows import rows_of
from nameserver.state_machine.state import BrokerGroup, HeardChannel, LiveInfo
from schemas.broker import DataVersion
from schemas.tables import BROKER_LIVE_TABLE

INFO = LiveInfo(1, 2, 3, 4, DataVersion(5, 6, 7), "ha:1", "digest", {"g": HeardChannel("c", 8)})
OTHER: dict[str, Any] = {
    "last_update_ms": 9,
    "last_update_offset": 9,
    "heartbeat_timeout_ms": 9,
    "expire_ms": 9,
    "data_version": DataVersion(5, 6, 9),
    "ha_server_addr": None,
    "topic_config_digest": None,
    "channels": {},
}


def group(**live: LiveInfo) -> BrokerGroup:
    return BrokerGroup("b", live={("c", addr): info for addr, info in live.items()})


@pytest.mark.parametrize("field", LiveInfo.__struct_fields__)
def test_a_member_has_changed_if_a_column_has_that_no_heartbeat_moves(field: str) -> None:
    before, after = group(a=INFO, z=INFO), group(a=msgspec.structs.replace(INFO, **{field: OTHER[field]}), z=INFO)
    (was, now) = (rows_of(BROKER_LIVE_TABLE, one)["b", "c", "a"] for one in (before, after))
    columns = {name for name, old, new in zip(BROKER_LIVE_TABLE.value_columns, was, now, strict=True) if old != new}
    assert columns
    expected = [(("b", "c", "a"), was, now)] if columns - LIVENESS_COLUMNS else []
    assert [change[1:] for change in row_changes(before, after)] == expected


def test_members_that_came_and_went_are_listed_by_their_keys() -> None:
    changes = list(row_changes(group(c=INFO, k=INFO, a=INFO), group(b=INFO, k=INFO)))
    assert [(change.key[2], change.before is None, change.after is None) for change in changes] == [
        ("a", False, True),
        ("b", True, False),
        ("c", False, True),
    ]
