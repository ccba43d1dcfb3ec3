# SPDX-License-Identifier: Apache-2.0
"""A process that appends to a log and says what was acknowledged.

    python -m tests.eventlog.appender URL NAME COUNT [PAYLOAD_BYTES]

Appends COUNT lists (0: without end) of one to five records with key NAME and payload ``NAME:<number>:<filling>``, and
prints ``<number> <offset> <event time>`` for each record once its append has returned.
"""

from __future__ import annotations

import itertools
import random
import sys

from eventlog import open_log


def main(url: str, name: str, count: int, payload_bytes: int = 100) -> None:
    """Append until done or killed."""
    rng = random.Random(name)
    log = open_log(url)
    number = 0
    for turn in itertools.count():
        if count and turn == count:
            break
        numbers = range(number, number + rng.randint(1, 5))
        number = numbers.stop
        appended = log.append([(name, f"{name}:{this}:".encode().ljust(payload_bytes, b".")) for this in numbers])
        lines = [f"{this} {at.offset} {at.event_time_ms}\n" for this, at in zip(numbers, appended, strict=True)]
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
    log.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(int, sys.argv[4:]))
