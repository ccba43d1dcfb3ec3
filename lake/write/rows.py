# SPDX-License-Identifier: Apache-2.0
"""Reports of a shard in addition to changed rows: its progress, heartbeat times and command outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from lake.write.arrow import DELETE, LIVENESS, UPDATE
from nameserver.state_machine.changes import command_name, is_liveness_only
from nameserver.state_machine.rows import rows_of
from nameserver.state_machine.state import At, BrokerGroup, Outcome
from schemas.events import AnyEvent
from schemas.tables import BROKER_LIVE_TABLE

_json = msgspec.json.Encoder()


class ShardProgress(msgspec.Struct):
    """Progress of a shard. With ``full``, it reported all its live rows, not only the touched ones."""

    shard: int
    offset: int
    event_time_ms: int
    watermark_ms: int
    full: bool


def outcome_entry(event: AnyEvent, at: At, outcome: Outcome) -> dict[str, Any]:
    """Entry of a command in the outcomes of the epoch and in routeChangeTable, without long fields."""
    fields = msgspec.to_builtins(event)
    fields.pop("command")
    fields.pop("actor")
    for bulky in ("topicConfigTable", "topicQueueMappingInfoMap", "filterServerList", "channel"):
        fields.pop(bulky, None)
    return {
        "offset": at.offset,
        "eventTime": at.now_ms,
        "command": command_name(event),
        "outcome": outcome.verdict,
        "reason": outcome.reason,
        "result": outcome.result,
        "actor": _json.encode(event.actor).decode(),
        "brokerName": fields.get("brokerName") or (fields.get("queueData") or {}).get("brokerName"),
        "topic": fields.get("topic"),
        "key": _json.encode(fields).decode(),
    }


def live_rows(
    start: Mapping[str, BrokerGroup], groups: Mapping[str, BrokerGroup], *, full: bool
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...] | None, str]]:
    """Rows of brokerLiveTable of the changed groups, or of all with ``full`` (at the start of a driver run).

    Their operations are UPDATE, DELETE and LIVENESS.
    """
    for name in dict.fromkeys([*start, *groups]):
        before, after = start.get(name), groups.get(name)
        if before is after and not full:
            continue
        old = rows_of(BROKER_LIVE_TABLE, before) if before is not None else {}
        new = rows_of(BROKER_LIVE_TABLE, after) if after is not None else {}
        for key, values in new.items():
            was = old.get(key)
            if full or was != values:
                yield key, values, LIVENESS if is_liveness_only(was, values) else UPDATE
        for key in old:
            if key not in new:
                yield key, None, DELETE
