# SPDX-License-Identifier: Apache-2.0
"""What a fault may do to whom: the judge excuses nothing else by it.

A fault lasts from its beginning until everything is well again, for which it has so long as rule (g) gives it.
"""

from __future__ import annotations

from typing import Final

from dev.fault_injection.case import Case

FIRST, SECOND, BOTH = frozenset({0}), frozenset({1}), frozenset({0, 1})

AWAY: Final = {
    **dict.fromkeys(("kill-gateway", "kill-log", "kill-all", "restart", "lost-checkpoint"), FIRST),
    "kill-second": SECOND,
}
"""Which gateways end, and start again."""
MUTE: Final = {**AWAY, "stop-gateway": FIRST, **dict.fromkeys(("stop-second", "separate-second"), SECOND), "cut": BOTH}
"""Which gateways do not answer a read, or lose the connection that it came over."""
UNWRITABLE: Final = {
    **MUTE,
    # A process that stands still, or is killed, may hold the lock of the one file that both write.
    **dict.fromkeys(("stop-gateway", "stop-second", "stop-log", "kill-log", "kill-all"), BOTH),
    **dict.fromkeys(("slow-disk", "failing-disk", "disk-full", "clock-leap", "kill-kafka", "stop-kafka"), BOTH),
}
"""Which gateways do not take a write."""
SILENT: Final = {**AWAY, "separate-second": SECOND, **{kind: UNWRITABLE[kind] for kind in UNWRITABLE if kind != "cut"}}
"""Which gateways may not write down that a connection has ended, or not soon."""
UNSTARTABLE: Final = {**AWAY, **dict.fromkeys(("disk-full", "failing-disk", "slow-disk", "clock-leap"), BOTH)}
"""Which gateways end while they start, to be started again, or take longer: they have their time anew."""
FORWARD_MS: Final = 3_000_000
"""By how much "clock-forward" sets the clocks ahead: less than a leap that is refused."""
CLOCKS: Final = ("clock-forward", "clock-back", "clock-leap")
"""What sets the processes' clocks. Kafka's, which stamps its records, is not among them."""


AGAIN_S: Final = 5.0
"""So long after a fault a log may still fail a gateway that answers already."""


def near(
    case: Case,
    effect: dict[str, frozenset[int]],
    gateway: int,
    begun_s: float,
    ended_s: float,
    after_s: float | None = None,
) -> bool:
    """Whether, at some time between these two, one of these faults was not over yet for a gateway.

    Args:
        case: the run.
        effect: one of the tables above.
        gateway: which one.
        begun_s: the time, from here.
        ended_s: to here.
        after_s: how long a fault goes on behind its end; as long as rule (g) allows unless told otherwise.
    """
    after_s = case.well_limit_s if after_s is None else after_s
    return any(
        gateway in effect.get(fault.kind, ()) and fault.begun_s <= ended_s and begun_s <= fault.ended_s + after_s
        for fault in case.record.faults
    )


def kept_away(case: Case, gateway: int, begun_s: float, ended_s: float) -> bool:
    """Whether, at some time between these two, a gateway was not back yet from a fault that took it away.

    One that starts while its disk fails ends, and is started again: it has its time from then on.
    """
    away_until_s = float("-inf")
    for fault in sorted(case.record.faults, key=lambda fault: fault.begun_s):
        if fault.begun_s > ended_s:
            break
        effect = UNSTARTABLE if fault.begun_s <= away_until_s else AWAY
        if gateway in effect.get(fault.kind, ()):
            away_until_s = max(away_until_s, fault.ended_s + case.well_limit_s)
    return begun_s <= away_until_s
