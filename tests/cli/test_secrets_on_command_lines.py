# SPDX-License-Identifier: Apache-2.0
"""No command takes a secret on its command line, which `ps` shows to everybody; no message shows one either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cli.main import app
from dev.support.command import told

SECRET = "hunter2hunter2"
WORDS = ("token", "secret", "password", "header")
"""Of names of options that take a secret; a new one has to refuse it, too."""


def commands(group: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    group = get_command(app) if group is None else group
    if not hasattr(group, "list_commands"):
        yield words, group
        return
    with group.make_context("x", [], resilient_parsing=True) as context:
        for name in group.list_commands(context):
            yield from commands(group.get_command(context, name), (*words, name))


def options(wanted: Any) -> list[tuple[tuple[str, ...], str]]:
    return [
        (words, name)
        for words, command in commands()
        for param in command.params
        if param.param_type_name == "option" and wanted(param)
        for name in (param.opts[0], param.opts[-1])[: len(param.opts)]
    ]


OF_SECRETS = options(lambda param: any(word in name for name in param.opts for word in WORDS))
OF_ADDRESSES = options(lambda param: param.metavar in ("URL", "HOST:PORT", "ADDRESSES"))


def needed(words: tuple[str, ...], folder: Path, option: str) -> list[str]:
    """What the command cannot do without."""
    command = dict(commands())[words]
    extra: dict[tuple[str, ...], list[str]] = {
        ("history", "diff"): ["--from", "-2h"],
        ("history", "timeline"): ["T"],
        ("history", "report"): ["--http", "h:1"],
    }
    given = list(extra.get(words, []))
    file = folder / "file"
    file.write_text("{}")
    for param in command.params:
        if param.required and option not in param.opts:
            names = {"perm": "4", "file": str(file), "filename": str(file), "method": "get", "name": "churn"}
            value = names.get(str(param.name), "x")
            given += [value] if param.param_type_name == "argument" else [param.opts[0], value]
    return given


def test_options_with_secrets_and_addresses_are_found() -> None:
    assert {name for _, name in OF_SECRETS} >= {
        *("--http-token", "--token", "--secret-key", "--broker-secret-key", "--tls-key-password"),
    }
    assert {name for _, name in OF_ADDRESSES} >= {
        "--http",
        "--event-log",
        "--lake",
        "--oidc-issuer",
        "--master",
        "--to",
        "-n",
    }


@pytest.mark.parametrize(
    ("words", "option"), OF_SECRETS, ids=lambda value: " ".join(value) if isinstance(value, tuple) else value
)
def test_a_secret_itself_is_refused(tmp_path: Path, words: tuple[str, ...], option: str) -> None:
    more = needed(words, tmp_path, option)
    key = ["--access-key", "a"] if option == "--secret-key" else []
    key = ["--broker-access-key", "a"] if option == "--broker-secret-key" else key
    certificate = ["--tls-cert", "a", "--tls-key", "b"] if option == "--tls-key-password" else []
    place = ["--data-dir", str(tmp_path)] if words[0] in ("serve", "gateway") else []
    asks = words[0] in ("route", "broker", "fleet") or words[0] == "admin"
    namesrv = ["-n", "127.0.0.1:1"] if asks else []
    code, output = told(*words, *more, *key, *certificate, *place, *namesrv, option, SECRET)
    assert code == 2, output
    assert "file:PATH" in output, output
    assert SECRET not in output


@pytest.mark.parametrize(
    ("words", "option"), OF_ADDRESSES, ids=lambda value: " ".join(value) if isinstance(value, tuple) else value
)
def test_an_address_with_a_password_is_refused(tmp_path: Path, words: tuple[str, ...], option: str) -> None:
    place = ["--data-dir", str(tmp_path)] if words[0] in ("serve", "gateway", "fold") else []
    code, output = told(
        *words, *place, *needed(words, tmp_path, option), option, f"https://user:{SECRET}@h.example:9/x"
    )
    assert code == 2, output
    assert SECRET not in output
