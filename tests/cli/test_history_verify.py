# SPDX-License-Identifier: Apache-2.0
"""`./routelake history verify`: what it says, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

from dev.support import events as make
from dev.support.command import command, process
from dev.support.local import LocalLake
from dev.support.tampering import flip
from eventlog.open import open_log
from schemas.events import AnyEvent, encode, routing_key
from schemas.tables import KV_CONFIG_TABLE


def verify(data: Path, *options: str) -> CompletedProcess[str]:
    return command("history", "verify", "--data-dir", data, *options)


def test_verified_then_refuted(tmp_path: Path) -> None:
    with LocalLake(tmp_path, log_url=f"sqlite://{tmp_path}/events.db") as lake:
        events: list[AnyEvent] = [make.register(), make.put("n", "k", "1"), make.clock()]
        last = lake.log.append([(routing_key(event), encode(event)) for event in events])[-1].offset
        lake.fold.wait_for(last)
        found = process("history", "verify", "--data-dir", tmp_path)
        assert found.returncode == 0, found
        *_, third, digest = found.stdout.splitlines()
        assert third.startswith(f"verified: a replay of log offsets 1 to {last} from nothing gives the rows of epoch ")
        kept = digest.removeprefix("newest digest: ").split(" ")[0]
        shown = json.loads(verify(tmp_path, "--expect", kept, "-o", "json").stdout)
        assert f"{shown['epoch']}:{shown['digest']}" == kept
        assert "equals the given digest" in " ".join(shown["verified"])
    flip(tmp_path / "lake", KV_CONFIG_TABLE, "value")
    found = verify(tmp_path)
    assert found.returncode == 1
    assert "refuted: kvConfigTable, namespace=n key=k: column value is 1x, and by the changes 1 (" in found.stdout


def test_a_lake_without_a_proof_exits_with_an_error(tmp_path: Path) -> None:
    for options, why in [((), "there is no lake in"), (("--expect", "7"), "write EPOCH:DIGEST")]:
        found = verify(tmp_path, *options)
        assert (found.returncode, found.stdout) == (2, "")
        assert why in found.stderr
    open_log(f"sqlite://{tmp_path}/events.db").close()
    (tmp_path / "lake").mkdir()
    assert verify(tmp_path).returncode == 2
