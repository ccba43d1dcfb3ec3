# SPDX-License-Identifier: Apache-2.0
"""The judge's rules: each reads a finished run and says what contradicts it. Pure: nothing is asked, nothing is waited for.

======================  =============================================================================================
`once`                  (a) every acknowledged event is on the log, where its answer says, once; in the tables once
`as_sent`               (a) a registration is there with all that its broker sent
`in_order`              (a) writes are in the order in which they were asked for; one in doubt comes soon or never
`connections`           (a) a connection that ends is on the log, and none that does not
`equals_the_model`      (b) an answer is the model's fold up to the offset it names (without one: up to some offset
                        that was on the log by then)
`receipts`              (b) the answer to a write says what log and model say of it
`headers`               (b) epoch, offset and ETag of an answer are of what it says
`never_back`            (c) what was acknowledged, or seen, before a question was asked is in its answer
`epochs_never_back`     (c) the same of epochs
`every_epoch_is_told`   (c) who listens to epochs is told each once, in order, in time, and what it changed
`differences`           (d) what is different between two epochs is what the model's tables at both differ in
`the_past_stays`        (d) an `as_of` of one epoch is answered alike every time, as the model had it, and not refused
`stamped`               (e) an event's time is when it came
`clocks_and_resumes`    (e) CLOCK and RESUME come when they should, and say what they should
`expiry`                (e) nobody expires who was heard in time; nobody silent stays
`tables_are_a_replay`   (f) tables = the model's fold = the product's own replay of the log; intervals = changes; the chain
                        of epochs holds; heads agreed with the tables; what is said to be folded is
`well_by_itself`        (g) where faults rest, all is well in so many seconds
`refusals`              (g) nobody is refused, or not answered, without a fault that is the reason
`faults_happened`       every kind of fault that was planned hit somebody, and did not itself show what must not be
`everything_was_asked`  answers of every kind were judged: no part of traffic or judge fell silent
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
