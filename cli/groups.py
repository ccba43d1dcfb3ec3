# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have alike, given to each of them as one value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

Options = tuple[tuple[str, Any, object], ...]
"""Name, annotation and default of each parameter that typer is to see."""


def with_options(
    name: str, options: Options, build: Callable[[dict[str, Any]], object]
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Give a command these options in place of its parameter of that name.

    Args:
        name: Of the parameter.
        options: That stand where it stands.
        build: Its value, from what was said; takes the options out of the values it is given.
    """

    def decorate(command: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(command)
        def run(*args: _P.args, **values: _P.kwargs) -> _R:
            values[name] = build(values)
            return command(*args, **values)

        shown: list[tuple[str, Any, object]] = []
        for one in inspect.signature(command).parameters.values():
            if one.name == name:
                shown += options
                continue
            annotation = one.annotation
            if isinstance(annotation, str):  # one by one: the group's own type may be there for type checkers alone
                annotation = eval(annotation, command.__globals__)  # noqa: S307
            shown.append((one.name, annotation, one.default))
        show_options(run, shown)
        return run

    return decorate


def show_options(run: Callable[..., object], options: Iterable[tuple[str, Any, object]]) -> None:
    """Let typer see these as the parameters of a function, whatever it was written with."""
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in options
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
