# SPDX-License-Identifier: Apache-2.0
"""Permitted effects of a fault on a gateway: the judge excuses no other failure by it.

A fault lasts from its beginning until everything is healthy again. Rule (g) limits that time.
"""

from __future__ import annotations

from typing import Final

from dev.fault_injection.case import Case

FIRST, SECOND, BOTH = frozenset({0}), frozenset({1}), frozenset({0, 1})

AWAY: Final = {
    **dict.fromkeys(("kill-gateway", "kill-log", "kill-all", "restart", "lost-checkpoint"), FIRST),
    "kill-second": SECOND,
}
"""Gateways that end, and start again, by fault."""
MUTE: Final = {**AWAY, "stop-gateway": FIRST, **dict.fromkeys(("stop-second", "separate-second"), SECOND), "cut": BOTH}
"""Gateways that do not answer a read, or lose the connection that it came over, by fault."""
UNWRITABLE: Final = {
    **MUTE,
    # A process that stands still, or is killed, may hold the lock of the one file that both write.
    **dict.fromkeys(("stop-gateway", "stop-second", "stop-log", "kill-log", "kill-all"), BOTH),
    **dict.fromkeys(("slow-disk", "failing-disk", "disk-full", "clock-leap", "kill-kafka", "stop-kafka"), BOTH),
}
"""Gateways that do not take a write, by fault."""
SILENT: Final = {**AWAY, "separate-second": SECOND, **{kind: UNWRITABLE[kind] for kind in UNWRITABLE if kind != "cut"}}
"""Gateways that may write the end of a connection late, or not at all, by fault."""
UNSTARTABLE: Final = {**AWAY, **dict.fromkeys(("disk-full", "failing-disk", "slow-disk", "clock-leap"), BOTH)}
"""Gateways that end while they start, to be started again, or take longer, by fault: their time begins again."""
FORWARD_MS: Final = 3_000_000
"""By how much "clock-forward" sets the clocks ahead: less than a leap that is refused."""
CLOCKS: Final = ("clock-forward", "clock-back", "clock-leap")
"""Faults that set the processes' clocks. Kafka's, which stamps its records, is not among them."""


AGAIN_S: Final = 5.0
"""Time after a fault in which a log may still fail a gateway that answers already, in seconds."""


def near(
    case: Case,
    effect: dict[str, frozenset[int]],
    gateway: int,
    begun_s: float,
    ended_s: float,
    after_s: float | None = None,
) -> bool:
    """Return whether, at some time between these two, one of these faults was not over yet for a gateway.

    Args:
        case: The run.
        effect: A table from above.
        gateway: Number of the gateway.
        begun_s: Start of the time.
        ended_s: End of the time.
        after_s: Time that a fault goes on after its end, in seconds; default: as long as rule (g) allows.
    """
    after_s = case.well_limit_s if after_s is None else after_s
    return any(
        gateway in effect.get(fault.kind, ()) and fault.begun_s <= ended_s and begun_s <= fault.ended_s + after_s
        for fault in case.record.faults
    )


def kept_away(case: Case, gateway: int, begun_s: float, ended_s: float) -> bool:
    """Return whether, at some time between these two, a gateway was not back yet from a fault that ended it.

    A gateway that starts while its disk fails ends, and is started again: its time begins then.
    """
    away_until_s = float("-inf")
    for fault in sorted(case.record.faults, key=lambda fault: fault.begun_s):
        if fault.begun_s > ended_s:
            break
        effect = UNSTARTABLE if fault.begun_s <= away_until_s else AWAY
        if gateway in effect.get(fault.kind, ()):
            away_until_s = max(away_until_s, fault.ended_s + case.well_limit_s)
    return begun_s <= away_until_s
