# SPDX-License-Identifier: Apache-2.0
"""Records that are no events, through fold and writer into real tables: each is in quarantineTable, its neighbours count.

The numbers are those of reports/fault-to-test.md, "Bad input".
"""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from dev.support import events as make
from dev.support.drive import drive
from dev.support.expected import Expected
from dev.support.generated_logs import START_MS
from dev.support.lakes import last_epoch_tables, quarantine
from eventlog.base import LogRecord
from lake.delta.ddl import open_lake
from schemas.events import encode, routing_key
from schemas.limits import MAX_READABLE_EVENT_BYTES

GOOD = make.put("n", "k")
PAYLOAD = encode(GOOD)
KEY = routing_key(GOOD)


def flipped(bit: int) -> bytes:
    data = bytearray(PAYLOAD)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def oversized() -> bytes:
    """A frame that states, truly, more than is read."""
    return PAYLOAD[:1] + zstandard.ZstdCompressor(level=1).compress(bytes(MAX_READABLE_EVENT_BYTES + 1))


BAD = {
    "37 no value": (KEY, b""),
    "38 an unknown version": (KEY, b"\x09" + PAYLOAD[1:]),
    "39 oversized": (KEY, oversized()),
    "41 the key of another": ("b:b", PAYLOAD),
    **{f"42 bit {bit} flipped": (KEY, flipped(bit)) for bit in range(8, 8 * len(PAYLOAD), 8 * len(PAYLOAD) // 7)},
}


def test_each_is_quarantined_and_its_neighbours_are_folded(tmp_path: Path) -> None:
    records = []
    for number, (key, payload) in enumerate([*BAD.values()]):
        other = make.put("n", str(number))
        records.append(LogRecord(2 * number + 1, START_MS, key, payload))
        records.append(LogRecord(2 * number + 2, START_MS, routing_key(other), encode(other)))
    drive(tmp_path, [records])
    found = quarantine(tmp_path)
    assert [row["offset"] for row in found] == [2 * number + 1 for number in range(len(BAD))]
    assert all(row["error"] for row in found)
    assert last_epoch_tables(tmp_path) == Expected(records).tables()


@pytest.mark.parametrize("ms", [253_402_300_799_000, 0], ids=["9999", "1970"])
def test_40_an_event_time_at_the_end_of_time(tmp_path: Path, ms: int) -> None:
    """A log stamps its own times. A log with an absurd clock is folded and read all the same."""
    event = make.register()
    drive(tmp_path, [[LogRecord(1, ms, routing_key(event), encode(event))]])
    assert last_epoch_tables(tmp_path) == Expected([LogRecord(1, ms, routing_key(event), encode(event))]).tables()
    open_lake(tmp_path, retention_days=30)
