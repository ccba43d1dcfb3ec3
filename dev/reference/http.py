# SPDX-License-Identifier: Apache-2.0
"""Blocks about HTTP: `endpoints` from the OpenAPI document, `problems` from `api.http.problems`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI

from api.http.app import ROUTERS
from api.http.openapi import EXAMPLES, TAGS, openapi_document, operation_id
from api.http.problems import KINDS
from dev.reference.markdown import code, sentence, table

_Row = tuple[str, str, str, str]
_COLUMNS: Final = ("parameter", "in", "value", "meaning")
_COMMON: Final = 5
"""A parameter that at least so many endpoints have in the same words is described once."""
_ABOUT_COMMON: Final = (
    "Several endpoints have these parameters. The description of an endpoint names those that it has."
)
_SECTIONS: Final = {tag["name"]: tag["description"] for tag in TAGS}


def endpoints() -> str:
    """Return the common parameters, and a section for each group of endpoints with the parameters of each endpoint."""
    app = FastAPI(title="routelake", openapi_tags=TAGS, generate_unique_id_function=operation_id)
    for router in ROUTERS:
        app.include_router(router)
    document = openapi_document(app)
    bodies = document["components"]["schemas"]
    operations = [
        (method, path, operation) for path, item in document["paths"].items() for method, operation in item.items()
    ]
    uses = Counter(_row(parameter) for _, _, operation in operations for parameter in operation.get("parameters", ()))
    common = [row for row, count in uses.items() if count >= _COMMON]
    sections: dict[str, list[str]] = {}
    for method, path, operation in operations:
        text = "\n".join(_lines(method, path, operation, common, bodies))
        sections.setdefault(operation["tags"][0], []).append(text)
    return f"## Common parameters\n\n{_ABOUT_COMMON}\n\n{table(_COLUMNS, common)}\n" + "\n".join(
        f"## {name.capitalize() if name != 'kv' else 'KV'}\n\n{_SECTIONS[name]}\n\n" + "\n".join(sections[name])
        for name in _SECTIONS
        if name in sections
    )


def problems() -> str:
    """Return the kinds of problems as a table."""
    rows = (
        (
            code(kind.type),
            str(kind.status),
            kind.title,
            f"{kind.code.value} {kind.code.name}",
            f"{code(example['detail'])} {_members(example)}",
        )
        for kind in KINDS
        for example in (EXAMPLES["problems"][kind.slug],)
    )
    return table(("type", "status", "title", "code", "example of detail, further members"), rows)


def _members(example: Mapping[str, Any]) -> str:
    members = {name: value for name, value in example.items() if name != "detail"}
    return code(json.dumps(members)) if members else ""


def _lines(
    method: str, path: str, operation: Mapping[str, Any], common: Sequence[_Row], bodies: Mapping[str, Any]
) -> Iterator[str]:
    yield f"### {method.upper()} {path}"
    yield ""
    yield sentence(operation.get("summary", ""))
    if operation.get("description"):
        yield ""
        yield operation["description"].replace("``", "`")
    yield ""
    rows = [_row(parameter) for parameter in operation.get("parameters", ())]
    if own := [row for row in rows if row not in common]:
        yield table(_COLUMNS, own)
    if shared := [row[0] for row in rows if row in common]:
        yield f"[Common parameters](#common-parameters): {', '.join(shared)}."
        yield ""
    if "requestBody" in operation:
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        yield table(("field of the body", "value", "meaning"), _fields(bodies[name]))
    yield f"Answers: {', '.join(sorted(operation['responses']))}."
    yield ""


def _row(parameter: Mapping[str, Any]) -> _Row:
    required = "Required. " if parameter.get("required") and parameter["in"] != "path" else ""
    about = required + sentence(parameter.get("description") or "")
    return code(parameter["name"]), parameter["in"], _values(parameter["schema"]), about


def _fields(body: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, schema in body["properties"].items():
        required = "Required. " if name in body["required"] else ""
        yield code(name), _values(schema), required + sentence(schema.get("description") or "")


def _values(schema: Mapping[str, Any]) -> str:
    for one in schema.get("anyOf", []):
        if one.get("type") != "null":
            schema = {**one, "default": schema.get("default")}
            break
    if "enum" in schema:
        text = ", ".join(map(str, schema["enum"]))
    else:
        kind = schema.get("type", "object" if schema.get("$ref", "").endswith("Body") else "text")
        text = str(kind).replace("string", "text").replace("integer", "whole number")
        bounds = [schema.get("minimum"), schema.get("maximum")]
        if bounds != [None, None]:
            text += f", {bounds[0]} to {bounds[1]}" if None not in bounds else f", from {bounds[0]}"
    default = schema.get("default")
    return text if default in (None, "", []) else f"{text}. Default: {str(default).lower()}"
