# SPDX-License-Identifier: Apache-2.0
"""Record what stock mqadmin 5.5.0 asks of scripted NameServers and brokers, command by command.

    python -m tests.cli.admin.record_golden [file]

writes the requests of each case of `tests.cli.admin.commands`; see golden/README.md.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from dev.support.recorder import Recorded, Recorder
from dev.support.rocketmq import mqadmin
from tests.cli.admin.commands import CASES, TOPIC_LIST_FILE, command
from tests.cli.admin.world import start_world

GOLDEN = Path(__file__).parent / "golden" / "requests.json"

HEART_BEAT, UNREGISTER_CLIENT = 34, 35


def belongs_to_command(request: Recorded) -> bool:
    """Whether a request is the command's own, not that of the client instance that mqadmin also starts."""
    return request.code not in (HEART_BEAT, UNREGISTER_CLIENT)


def record(cases: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Run stock mqadmin on each case against the scripted world."""
    recorded = {}
    with Recorder() as recorder, tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "topics.json"
        file.write_text(TOPIC_LIST_FILE)
        start_world(recorder)
        for case in cases:
            name, _, name_servers, *options = command(case, str(file))
            ran = mqadmin([name, *options], name_servers)
            requests = [request for request in recorder.take() if belongs_to_command(request)]
            print(f"{case}: {len(requests)} requests", (ran.stdout + ran.stderr)[-300:], sep="\n", file=sys.stderr)
            recorded[case] = [dataclasses.asdict(request) for request in requests]
    return recorded


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(record(CASES), indent=1, ensure_ascii=False) + "\n")
