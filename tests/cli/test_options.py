# SPDX-License-Identifier: Apache-2.0
"""Groups of options: the help shows each option once, with its variable."""

from __future__ import annotations

from typing import Any

import pytest
from typer.main import get_command

from cli.gateway_options import GatewayOptions
from cli.main import app


def command(name: str) -> Any:
    return get_command(app).commands[name]  # type: ignore[attr-defined]


def test_the_help_has_sections() -> None:
    with command("serve").make_context("serve", [], resilient_parsing=True) as context:
        text = context.get_help()
    sections = [line.removesuffix(":") for line in text.splitlines() if line.endswith(":") and line[0] != " "]
    assert sections == ["Data", "Gateway", "Accounts", "TLS", "Fold", "Options"]


@pytest.mark.parametrize("name", ["serve", "gateway", "fold"])
def test_every_option_has_one_name_and_a_variable(name: str) -> None:
    shown = [param for param in command(name).params if not param.hidden]
    names = [param.opts[0] for param in shown]
    assert len(names) == len(set(names))
    assert all(param.envvar == f"ROUTELAKE_{param.opts[0][2:].replace('-', '_').upper()}" for param in shown)
    assert all(param.help.endswith(".") and param.help[0].isupper() for param in shown)


@pytest.mark.parametrize(("text", "percent"), [("off", 0), ("15%", 15), (" 99% ", 99)])
def test_self_preservation_is_a_share_or_off(text: str, percent: int) -> None:
    assert GatewayOptions(self_preservation=text).percent() == percent
