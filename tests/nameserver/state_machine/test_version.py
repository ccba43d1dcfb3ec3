# SPDX-License-Identifier: Apache-2.0
"""STATE_MACHINE_VERSION is raised when the rules change. The states of some fixed logs are written down here, by version.

If this test fails and the logs are the recorded ones, rules have changed: raise STATE_MACHINE_VERSION (see
`nameserver/state_machine/version.py`), and record the new digest here. If the logs differ (a change of the generators, or
of the encoding of events), record both digests, from a run in which no rule has changed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

from dev.support.expected import Expected
from dev.support.generated_logs import ASSORTMENT, STEPS_MS, written
from eventlog.base import LogRecord
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from schemas.events import decode

VERSION = 8
LOGS = "56d198c007db775d"
RESULTS = "51fc102b75412973"


def fixed_logs() -> Iterator[list[LogRecord]]:
    rng = random.Random(17)
    for _ in range(400):
        yield written([(rng.choice(STEPS_MS), rng.choice(ASSORTMENT)) for _ in range(rng.choice((5, 20, 60)))])


def digest(values: Any) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def readable(record: LogRecord) -> object:
    """The record, whatever a compressor makes of it."""
    try:
        return decode(record.payload)
    except Exception:
        return record.payload


def test_the_version_is_raised_when_rules_change() -> None:
    logs, results = [], []
    for records in fixed_logs():
        logs.append([(*record[:3], readable(record)) for record in records])
        fold = Expected(records)
        tables = [(name, sorted(rows.items())) for name, rows in fold.tables().items()]
        results.append([tables, fold.outcomes, fold.unreadable])
    assert (STATE_MACHINE_VERSION, digest(logs), digest(results)) == (VERSION, LOGS, RESULTS)
