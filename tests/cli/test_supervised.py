# SPDX-License-Identifier: Apache-2.0
"""The options of a supervisor reach its children on their standard input, each as it was given."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from cli.data_options import DataOptions
from cli.fold_options import FoldOptions
from cli.gateway_options import GatewayOptions
from cli.options import Options
from cli.preflight import Listen
from cli.supervised import child, gateways, settings_of

LISTEN = Listen("127.0.0.1", 8081), Listen("::1", 9877)


def other(kind: Any, default: Any, name: str) -> Any:
    """A value of that type which is not the default."""
    kinds = [one for one in (get_args(kind) or (kind,)) if one is not type(None)]
    if isinstance(default, bool) or bool in kinds:
        return not default
    if isinstance(kinds[0], type) and issubclass(kinds[0], StrEnum):
        return next(one for one in kinds[0] if one != default)
    if kind == list[str] | None:
        return ["brokers=off", "connections=5"]
    if Path in kinds:
        return Path(f"/somewhere/{name}")
    return {int: 7, float: 7.5, str: f"a {name}"}[kinds[0]]


def changed(group: type[Options]) -> Any:
    """A group without a single default."""
    hints = get_type_hints(group)
    return group(
        **{
            field.name: changed(hints[field.name])
            if isinstance(hints[field.name], type) and issubclass(hints[field.name], Options)
            else other(hints[field.name], field.default, field.name)
            for field in fields(group)
        }
    )


@pytest.mark.parametrize(("kind", "group"), [("gateway", GatewayOptions), ("fold", FoldOptions)])
def test_every_option_reaches_a_child(kind: str, group: type[Options]) -> None:
    data, options = changed(DataOptions), changed(group)
    found = child(kind, data, options)
    assert settings_of(kind, found.settings.decode()) == (data, options)
    assert found.settings.count(b"\n") == 1
    assert list(found.command[2:]) == ["cli.child", kind, "--data-dir", str(data.data_dir), "--name", kind]


def test_a_path_of_any_bytes() -> None:
    options = GatewayOptions(config=Path(os.fsdecode(b"/etc/\xff.properties")))
    text = child("gateway", DataOptions(), options).settings.decode("ascii")
    assert settings_of("gateway", text)[1] == options


def test_gateways_share_their_ports_and_have_names_of_their_own() -> None:
    def told(workers: int) -> list[GatewayOptions]:
        options = GatewayOptions(gateway_id="gw", workers=workers, config=Path("namesrv.properties"))
        children = gateways(options, LISTEN, DataOptions())
        return [settings_of("gateway", one.settings.decode())[1] for one in children]

    one = GatewayOptions(
        gateway_id="gw", http="127.0.0.1:8081", remoting="[::1]:9877", config=Path("namesrv.properties")
    )
    assert told(1) == [one]
    several = told(2)
    sockets = [options.worker_socket for options in several]
    assert None not in sockets
    assert len(set(sockets)) == 2
    assert [replace(options, worker_socket=None) for options in several] == [
        replace(one, gateway_id=f"gw/{number}", reuse_port=True) for number in (1, 2)
    ]
    assert one.listening() == LISTEN


CHILD = """
import sys

import pipelines.main
from cli.child import main

pipelines.main.run_fold = lambda settings: print(settings.trigger_ms, settings.log_url) or 3
sys.argv = ["child", "fold"]
main()
"""


@pytest.mark.parametrize("cut", [0, 1])
def test_a_child_runs_with_what_it_was_sent(tmp_path: Path, cut: int) -> None:
    """Its environment says nothing to it; without the whole line it does nothing."""
    data = DataOptions(data_dir=tmp_path / "data")
    line = child("fold", data, FoldOptions(trigger_ms=17)).settings
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=line[: len(line) - cut],
        env={**os.environ, "ROUTELAKE_TRIGGER_MS": "nothing", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        timeout=120,
        check=False,
    )
    if cut:
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"the supervisor ended before it sent the options" in done.stderr
    else:
        assert (done.returncode, done.stdout.decode()) == (3, f"17 {data.log_url}\n"), done.stderr
