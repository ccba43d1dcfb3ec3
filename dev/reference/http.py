# SPDX-License-Identifier: Apache-2.0
"""Blocks about HTTP: `endpoints` from the OpenAPI document, `problems` from `api.http.problems`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import FastAPI

from api.http.app import ROUTERS
from api.http.openapi import TAGS, openapi_document
from api.http.problems import KINDS
from dev.reference.markdown import code, sentence, table

_SECTIONS: Final = {tag["name"]: tag["description"] for tag in TAGS}


def endpoints() -> str:
    """Return a section for each group of endpoints, with the parameters of each endpoint."""
    app = FastAPI(title="routelake", openapi_tags=TAGS)
    for router in ROUTERS:
        app.include_router(router)
    operations: dict[str, list[str]] = {}
    for path, item in openapi_document(app)["paths"].items():
        for method, operation in item.items():
            operations.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    return "\n".join(
        f"## {name.capitalize() if name != 'kv' else 'KV'}\n\n{_SECTIONS[name]}\n\n" + "\n".join(operations[name])
        for name in _SECTIONS
        if name in operations
    )


def problems() -> str:
    """Return the kinds of problems as a table."""
    rows = (
        (
            code(kind.type),
            str(kind.status),
            kind.title,
            f"{kind.code.value} {kind.code.name}",
            f"{code(kind.example)} {_members(kind.members)}",
        )
        for kind in KINDS
    )
    return table(("type", "status", "title", "code", "example of detail, further members"), rows)


def _members(members: Mapping[str, Any]) -> str:
    return code(json.dumps(dict(members))) if members else ""


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    return "\n".join(_lines(method, path, operation))


def _lines(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {method.upper()} {path}"
    yield ""
    yield sentence(operation.get("summary", ""))
    if operation.get("description"):
        yield ""
        yield operation["description"].replace("``", "`")
    yield ""
    parameters = operation.get("parameters", [])
    if parameters:
        rows = ((code(one["name"]), one["in"], _values(one["schema"]), _about(one)) for one in parameters)
        yield table(("parameter", "in", "value", "meaning"), rows)
    yield f"Answers: {', '.join(sorted(operation['responses']))}."
    yield ""


def _about(parameter: Mapping[str, Any]) -> str:
    required = "Required. " if parameter.get("required") and parameter["in"] != "path" else ""
    return required + sentence(parameter.get("description") or "")


def _values(schema: Mapping[str, Any]) -> str:
    for one in schema.get("anyOf", []):
        if one.get("type") != "null":
            schema = {**one, "default": schema.get("default")}
            break
    if "enum" in schema:
        text = ", ".join(map(str, schema["enum"]))
    else:
        text = str(schema.get("type", "text")).replace("string", "text").replace("integer", "whole number")
        bounds = [schema.get("minimum"), schema.get("maximum")]
        if bounds != [None, None]:
            text += f", {bounds[0]} to {bounds[1]}" if None not in bounds else f", from {bounds[0]}"
    default = schema.get("default")
    return text if default in (None, "", []) else f"{text}. Default: {str(default).lower()}"
