# SPDX-License-Identifier: Apache-2.0
"""Block `events`: every type of event on the event log, as `schemas.events` declares it."""

from __future__ import annotations

from inspect import getdoc
from typing import Any, get_args

import msgspec

from dev.reference.markdown import code, prose, table
from schemas.events import AnyEvent, Event


def block() -> str:
    """Return a section for each type of event."""
    common = {field.encode_name for field in msgspec.structs.fields(Event)}
    return "\n".join(_section(kind, common) for kind in get_args(AnyEvent))


def _section(kind: Any, common: set[str]) -> str:  # noqa: ANN401 (any class of events)
    first, *more = prose(getdoc(kind) or "").split("\n\n")
    fields = [field for field in msgspec.structs.fields(kind) if field.encode_name not in common]
    rows = (
        (code(field.encode_name), _type(field.type), "yes" if field.required else f"no, {_default(field)}")
        for field in fields
    )
    parts = [f"## {kind.__struct_config__.tag}", " ".join(first.split()), *(" ".join(part.split()) for part in more)]
    for field in fields:
        parts = [part.replace(f"`{field.name}`", f"`{field.encode_name}`") for part in parts]
    if fields:
        parts.append(table(("field", "type", "required"), rows))
    return "\n\n".join(parts).rstrip() + "\n"


def _type(annotation: Any) -> str:  # noqa: ANN401
    text = str(annotation) if not isinstance(annotation, type) else annotation.__name__
    for name, shown in (
        ("NoneType", "null"),
        ("None", "null"),
        ("typing.", ""),
        ("schemas.broker.", ""),
        ("schemas.events.", ""),
    ):
        text = text.replace(name, shown)
    if "Meta(" in text or "Annotated" in text:
        text = "whole number" + (" or null" if "null" in text else "")
    return (
        text.replace(" | ", " or ")
        .replace("str", "text")
        .replace("bool", "true or false")
        .replace("int", "whole number")
    )


def _default(field: Any) -> str:  # noqa: ANN401
    value = None if field.default is msgspec.NODEFAULT else field.default
    return (
        f"default {'null' if value is None else str(value).lower()}"
        if field.default_factory is msgspec.NODEFAULT
        else "default empty"
    )
