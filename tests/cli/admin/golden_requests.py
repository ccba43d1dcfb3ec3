# SPDX-License-Identifier: Apache-2.0
"""The requests recorded from stock mqadmin, and what of them can be compared."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from itertools import groupby

from dev.support.recorder import Recorded
from tests.cli.admin.commands import EVERY_NAME_SERVER
from tests.cli.admin.record_golden import GOLDEN
from tests.cli.admin.world import NAME_SERVERS

READS_OF_ANY_NAME_SERVER = {101, 105, 106, 206}
SHUFFLED = {100, 102, 205, 327}
"""Sent to every NameServer in the order of NettyRemotingClient's list, which is shuffled when it is set."""


def recorded() -> dict[str, list[Recorded]]:
    """Case to requests, in order."""
    return {
        case: [Recorded(**request) for request in requests] for case, requests in json.loads(GOLDEN.read_text()).items()
    }


def comparable(case: str, requests: Sequence[Recorded]) -> list[Recorded]:
    """The requests without what stock mqadmin leaves to chance: which NameServer it reads from, if there are two."""
    if case not in EVERY_NAME_SERVER:
        return list(requests)
    result: list[Recorded] = []
    for (code, _, _), run in groupby(requests, key=lambda one: (one.code, one.ext_fields, one.body)):
        same = list(run)
        if code in READS_OF_ANY_NAME_SERVER:
            same = [dataclasses.replace(one, server="a NameServer") for one in same]
        elif code in SHUFFLED:
            assert {one.server for one in same} <= set(NAME_SERVERS)
            same.sort(key=lambda one: one.server)
        result += same
    return result
