# SPDX-License-Identifier: Apache-2.0
"""Blocks about the command line: `commands` with their own options, and `options-...` of each group that they share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, get_args

import typer.main

from cli.admin.command import Common
from cli.client_options import ClientOptions
from cli.history.options import Asking, Filters, Shown
from cli.main import app
from cli.options import Options
from dev.reference.markdown import code, sentence, table

_SECTIONS: Final = {
    "Run": ("serve", "gateway", "fold", "health"),
    "Query the history": ("history", "sql", "spark-sql"),
    "Administer RocketMQ": ("admin", "import-kv", "route", "broker", "fleet"),
    "Maintain": ("backup", "restore", "doctor", "plan", "event-log", "lake", "completion"),
    "Develop": ("test", "check", "fix", "coverage", "docs", "torture", "bench", "release"),
}
"""Title -> first words of its commands."""

GROUPS: Final = {
    "Data": "data",
    "Gateway": "gateway",
    "Accounts": "accounts",
    "TLS": "tls",
    "Fold": "fold",
    "Client": "client",
    "Admin commands": "admin",
    "History filters": "filters",
    "History source": "source",
    "History output": "output",
}
"""Group of options that several commands share -> end of its block's name."""

_CLASSES: Final[Mapping[str, type[Options]]] = {
    "Client": ClientOptions,
    "Admin commands": Common,
    "History filters": Filters,
    "History source": Asking,
    "History output": Shown,
}
"""Groups that are no section of the help."""

_DEFAULT: Final = re.compile(r" ?Default: (.+?)\.(?= [A-Z]|$)")
_TYPES: Final = {"int range": "whole number", "int": "whole number", "float range": "number", "float": "number"}
_METAVARS: Final = ("FILE", "FOLDER", "HOST:PORT", "SIZE", "URL")
"""Metavariables that name a type."""
_UNITS: Final = {
    "_s": "seconds",
    "_ms": "milliseconds",
    "_days": "days",
    "_hours": "hours",
    "_mib": "MiB",
    "_percent": "percent",
}


@cache
def commands() -> tuple[tuple[str, Any], ...]:
    """Every command with its full name, in the order of the help."""
    return tuple(_below(typer.main.get_command(app), ()))


def all_commands() -> str:
    """Return a section for each command: usage, text, own options, and the groups of options that it shares.

    Raises:
        ValueError: A command has no section.
    """
    placed = {word for words in _SECTIONS.values() for word in words}
    lost = {name.split()[0] for name, _ in commands()} - placed
    if lost:
        raise ValueError(f"dev/reference/options.py: _SECTIONS lacks {', '.join(sorted(lost))}")
    parts = []
    for title, words in _SECTIONS.items():
        parts.append(f"## {title}\n")
        for word in words:
            parts += ["\n".join(_section(name, one)) for name, one in commands() if name.split()[0] == word]
    return "\n".join(parts)


def groups() -> Mapping[str, Callable[[], str]]:
    """Return the block of each group of options."""
    return {f"options-{end}": partial(_group, title) for title, end in GROUPS.items()}


def variables() -> frozenset[str]:
    """Environment variables of all options."""
    return frozenset(
        name
        for _, command in commands()
        for option in command.params
        for name in _names(getattr(option, "envvar", None))
    )


def _names(variable: str | Sequence[str] | None) -> Sequence[str]:
    return [variable] if isinstance(variable, str) else variable or ()


def _variables(option: Any) -> str:  # noqa: ANN401
    return " or ".join(map(code, _names(option.envvar)))


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 (click has no types here)
    if not hasattr(command, "list_commands"):
        yield " ".join(path), command
        return
    context = command.make_context(path[-1] if path else "routelake", [], resilient_parsing=True)
    for name in command.list_commands(context):
        yield from _below(command.get_command(context, name), (*path, name))


def _section(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401
    words = [_argument(one) for one in command.params if one.param_type_name == "argument"]
    # A command with one option of a group does not have the others, so a link to the group would say too much.
    of_group = Counter(_panel(option) for option in command.params)
    shared = [panel for panel, count in of_group.items() if panel in GROUPS and count > 1]
    own = [option for option in command.params if _panel(option) not in shared and not option.hidden]
    yield f"### {name}"
    yield ""
    yield f"```\nroutelake {' '.join([name, *words, '[OPTIONS]'])}\n```"
    yield ""
    yield _text(command.help or "")
    yield ""
    arguments = [option for option in own if option.param_type_name == "argument" and option.help]
    if arguments:
        yield table(("argument", "meaning"), ((code(_argument(one)), _meaning(one)) for one in arguments))
    if options := [option for option in own if option.param_type_name == "option"]:
        rows = ((_spelled(one), _variables(one), code(_default(one)), _meaning(one)) for one in options)
        yield table(("option", "variable", "default", "meaning"), rows)
    if shared:
        links = (f"[{title}](settings.md#{title.lower().replace(' ', '-')})" for title in shared if title)
        yield f"Further options: {', '.join(links)}."
        yield ""


def _argument(argument: Any) -> str:  # noqa: ANN401
    name = argument.display_name_raw.upper().strip("[]")
    return name if argument.required else f"[{name}]"


def _group(title: str) -> str:
    found: dict[str, Any] = {}
    for _, command in commands():
        for option in command.params:
            known = found.get(option.name)
            if _panel(option) == title and not option.hidden and (known is None or len(option.opts) > len(known.opts)):
                found[option.name] = option
    rows = (
        (
            _spelled(option),
            _variables(option),
            _type(option),
            code(_default(option)),
            _range(option),
            _meaning(option),
        )
        for option in found.values()
    )
    return table(("option", "variable", "type", "default", "range", "effect"), rows)


def _panel(option: Any) -> str | None:  # noqa: ANN401
    """Group of an option; None for an option of its command alone."""
    panel = getattr(option, "rich_help_panel", None)
    return panel if isinstance(panel, str) else _panels().get((option.name, option.help))


@cache
def _panels() -> Mapping[tuple[str, str | None], str]:
    """Name and help of an option -> its group."""
    found: dict[tuple[str, str | None], str] = {}
    for title, group in _CLASSES.items():
        for parameter in group.parameters():
            found.setdefault((parameter.name, get_args(parameter.annotation)[1].help), title)
    return found


def _spelled(option: Any) -> str:  # noqa: ANN401
    names = ", ".join(map(code, [*option.opts, *option.secondary_opts]))
    value = option.metavar if option.metavar and not option.is_flag else ""
    return f"{names} {value}".strip()


def _type(option: Any) -> str:  # noqa: ANN401
    if option.is_flag:
        return "yes or no"
    shown = re.search(r"<([^>]+)>$", (option.get_help_record(_context()) or ("",))[0])
    text = "text" if shown is None else _TYPES.get(shown[1], shown[1].replace("|", ", "))
    text = str(option.metavar).lower() if option.metavar in _METAVARS else text
    text = "text" if text in ("str", "list[str]") else text
    unit = next((unit for ending, unit in _UNITS.items() if str(option.name).endswith(ending)), "")
    return f"{text}, {unit}" if unit else text


@cache
def _context() -> Any:  # noqa: ANN401
    command = typer.main.get_command(app)
    return command.make_context("routelake", [], resilient_parsing=True)


def _default(option: Any) -> str:  # noqa: ANN401
    said = _DEFAULT.search(option.help or "")
    if said:
        return said[1]
    value = option.default
    if value in (None, "", False, ()) or callable(value):
        return "no" if option.is_flag and option.default is False else ""
    number = isinstance(value, float) and value == int(value)
    return "yes" if value is True else str(int(value)) if number else str(getattr(value, "value", value))


def _range(option: Any) -> str:  # noqa: ANN401
    low, high = (f"{bound:,}" if bound is not None else "" for bound in (option.min, option.max))
    return f"{low} to {high}" if low and high else f"from {low}" if low else f"up to {high}" if high else ""


def _meaning(option: Any) -> str:  # noqa: ANN401
    text = " ".join(_DEFAULT.sub("", option.help or "").split())
    return sentence(_linked(text))


def _text(text: str) -> str:
    return _linked("\n\n".join(" ".join(part.split()) for part in text.replace("``", "`").split("\n\n")))


def _linked(text: str) -> str:
    """Text in which a page of the documentation is a link."""
    return re.sub(r"docs/([\w/-]+)/([\w-]+)\.md", lambda found: f"[{found[2]}](../{found[1]}/{found[2]}.md)", text)
