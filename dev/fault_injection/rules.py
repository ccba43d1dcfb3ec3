# SPDX-License-Identifier: Apache-2.0
"""The judge's rules: each reads a finished run and reports contradictions. Pure: no I/O, no waits.

======================  =============================================================================================
`once`                  (a) every acknowledged event is on the log once, at the offset of its answer; in the tables once
`as_sent`               (a) a registration is on the log with all that its broker sent
`in_order`              (a) writes are in the order of their requests; one without an answer comes soon or never
`connections`           (a) an ended connection is on the log, and no other
`equals_the_model`      (b) an answer is the model's fold up to the offset it names (without one: up to an offset
                        that was on the log by then)
`receipts`              (b) the answer to a write agrees with log and model
`headers`               (b) epoch, offset and ETag of an answer fit its contents
`never_back`            (c) an answer shows all that was acknowledged or shown before its request
`epochs_never_back`     (c) the same of epochs
`every_epoch_is_told`   (c) a subscriber receives each epoch and its changes once, in order and in time
`differences`           (d) the difference of two epochs is that of the model's tables at both
`the_past_stays`        (d) one `as_of` of an epoch always has the model's answer, and is not refused
`stamped`               (e) the time of an event is that of its arrival
`clocks_and_resumes`    (e) CLOCK and RESUME come when they should, with the right contents
`expiry`                (e) no broker with heartbeats in time expires; no silent one stays
`tables_are_a_replay`   (f) tables = the model's fold = the product's own replay of the log; intervals = changes; the hash
                        chain holds; live views agreed with the tables; what is reported as folded is in them
`well_by_itself`        (g) after each pause of the faults everything is healthy in time
`refusals`              (g) no request is refused, or left without an answer, unless a fault is the reason
`faults_happened`       every kind of planned fault found a target, and showed nothing that must not be
`everything_was_asked`  answers of every kind were checked: no part of traffic or judge stopped
======================  =============================================================================================

With several gateways (c) holds within each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dev.fault_injection.case import Case, Violation
from dev.fault_injection.rules_of_answers import epochs_never_back, equals_the_model, never_back
from dev.fault_injection.rules_of_connections import connections
from dev.fault_injection.rules_of_expiry import expiry
from dev.fault_injection.rules_of_followers import differences, every_epoch_is_told
from dev.fault_injection.rules_of_headers import headers
from dev.fault_injection.rules_of_past import the_past_stays
from dev.fault_injection.rules_of_receipts import receipts
from dev.fault_injection.rules_of_refusals import refusals
from dev.fault_injection.rules_of_run import everything_was_asked, faults_happened
from dev.fault_injection.rules_of_tables import tables_are_a_replay, well_by_itself
from dev.fault_injection.rules_of_time import clocks_and_resumes, stamped
from dev.fault_injection.rules_of_writes import as_sent, in_order, once

OF_THE_RUN: Final = frozenset({"faults_happened", "everything_was_asked"})
"""Rules that judge the run itself: not by these alone a defect counts as found."""

RULES: Final[tuple[Callable[[Case], list[Violation]], ...]] = (
    *(once, as_sent, in_order, connections, equals_the_model, receipts, headers),
    *(never_back, epochs_never_back, the_past_stays, stamped, clocks_and_resumes, expiry),
    *(tables_are_a_replay, well_by_itself, refusals),
    *(every_epoch_is_told, differences, faults_happened, everything_was_asked),
)
