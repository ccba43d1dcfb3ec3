# SPDX-License-Identifier: Apache-2.0
"""The API description (OpenAPI): answers and errors of each route, and the document of all routes.

FastAPI makes the document. This module adds the request bodies, answers and problems that FastAPI does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema
from starlette.types import Scope

from api.http.answers import ProblemDetails
from api.http.problems import (
    BAD_BODY,
    BAD_PARAMETER,
    BAD_REQUEST,
    BEFORE_HISTORY,
    BUSY,
    CROSS_SITE,
    FORBIDDEN,
    FUTURE_EPOCH,
    FUTURE_TIME,
    GONE,
    INTERNAL,
    MEDIA_TYPE,
    OTHER_LAKE,
    TIMEOUT,
    TOO_LARGE,
    TOO_MANY,
    UNAUTHORIZED,
    UNKNOWN_HOST,
    UNSUPPORTED_MEDIA,
    Kind,
)

Responses = dict[int | str, dict[str, Any]]
_REFS: Final = "#/components/schemas/"
UNDESCRIBED: Final = "other"
"""Name of every operation without a description, such as a file of the console."""

READ_PROBLEMS: Final = (BAD_PARAMETER, UNAUTHORIZED, UNKNOWN_HOST, OTHER_LAKE, TOO_MANY, BUSY)
PAST_PROBLEMS: Final = (FUTURE_EPOCH, FUTURE_TIME, BEFORE_HISTORY, GONE)
"""Problems of all operations that take a point in time of the past."""
WRITE_PROBLEMS: Final = (BAD_PARAMETER, UNAUTHORIZED, FORBIDDEN, CROSS_SITE, UNKNOWN_HOST, TOO_MANY, BUSY)
BODY_PROBLEMS: Final = (BAD_REQUEST, BAD_BODY, TIMEOUT, TOO_LARGE, UNSUPPORTED_MEDIA)

EXAMPLES: Final[dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("examples.json").read_text(encoding="utf-8")
)
"""``operations`` -> operationId -> ``body`` -> name -> summary and value; and status -> media type -> an answer.
``problems`` -> slug of the kind -> detail and further members.
"""

ANSWER_TYPES: Final[dict[str, type[msgspec.Struct]]] = {}
"""Types of the answers that routes have described, by their names in the description."""
_BODY_TYPES: Final[dict[str, type[BaseModel]]] = {}
"""Types of the request bodies that routes have described, by their names in the description."""

_NOT_MODIFIED: Final = {"description": "The client's copy (If-None-Match) is still good."}
_IF_NONE_MATCH: Final = {
    **{"name": "If-None-Match", "in": "header", "required": False, "schema": {"type": "string"}},
    "description": "ETag of the copy that the client has.",
}
"""Parameter of all reads with entity tags."""
_READ_HEADERS: Final = {
    "ETag": {
        "description": "Epoch and digest of the body; send it back as If-None-Match.",
        "schema": {"type": "string", "examples": ['"5-0d1f62c9a3b8e754"']},
    },
    "X-Routelake-Epoch": {"description": "The epoch that this answer shows.", "schema": {"type": "integer"}},
    "X-Routelake-Offset": {
        "description": "The answer includes all events up to this offset.",
        "schema": {"type": "integer"},
    },
}


DESCRIPTION: Final = """\
Every function of a RocketMQ NameServer for brokers, operators and dashboards, and the history: the routes at any point
in time, and the sender of each change.

**Writes** append an event to the event log. The answer has its `offset`. 200 has the outcome. 202 means that the event
is durable, but this gateway cannot follow the event log at present. You can safely send a write twice.

**Reads** come from the live view: the latest *epoch*, which is a consistent commit of all tables, and the newer events
of the event log. With `reads=committed` they come from the epoch alone. `X-Routelake-Offset` and `X-Routelake-Epoch`
name the state that an answer shows. If-None-Match gives 304 while the content is the same. With `wait_for=<offset>` a
read waits for a write.

**Errors** are RFC 9457 problem details with RocketMQ's ResponseCode as `code`.

**HEAD** is available wherever GET is, with the same headers. **OPTIONS** returns the methods of a path in `Allow`.

**Permission to write**: if tokens are configured, send one (`Authorization: Bearer`). Without tokens, only this machine
may write.
"""

TAGS: Final = [
    {"name": "ingest", "description": "Requests of brokers. Field names are RocketMQ's."},
    {"name": "topics", "description": "Topics and their routes, now and in the past. Long polls."},
    {"name": "clusters", "description": "Clusters, broker groups, live brokers."},
    {
        "name": "admin",
        "description": "Commands for topics, write permission of brokers, and self-preservation.",
    },
    {"name": "kv", "description": "KV configuration, for example order configuration."},
    {"name": "history", "description": "Changes with sender and time, and the epochs."},
    {"name": "health", "description": "Liveness, readiness, metrics."},
]


_camel: Final = cache(to_camel)  # each request asks for the name of its operation


def operation_id(route: APIRoute) -> str:
    """Return the operationId of an endpoint: its function's name in camelCase."""
    return _camel(route.name)


def operation_of(scope: Scope) -> str:
    """Return the operationId of a request, or `UNDESCRIBED`."""
    route = scope.get("route")
    return operation_id(route) if isinstance(route, APIRoute) and route.include_in_schema else UNDESCRIBED


def describe_read(shape: type[msgspec.Struct], *problems: Kind, formats: Iterable[str] = ()) -> dict[str, Any]:
    """Describe a read with entity tags.

    Args:
        shape: Type of the answer.
        problems: Problems in addition to those of every read.
        formats: Media types of the answer in addition to JSON.

    Returns:
        Arguments of the router's method.
    """
    answer = json_response(shape, "The answer.")
    for media in formats:
        answer["content"] |= text_response(media, "")["content"]
    found = {200: {**answer, "headers": _READ_HEADERS}, 304: _NOT_MODIFIED}
    return {"responses": found | problem_responses(*READ_PROBLEMS, *problems)}


def describe_write(shape: type[msgspec.Struct], *problems: Kind, body: type[BaseModel] | None = None) -> dict[str, Any]:
    """Describe a write. Its answer has the outcome, or says that the write is only durable.

    Args:
        shape: Type of the answer.
        problems: Problems in addition to those of every write and of every body.
        body: Type of the request's body. None without one.

    Returns:
        Arguments of the router's method.
    """
    durable = "Durable, but this gateway cannot follow the event log at present. Pass `offset` as `wait_for` to a read."
    found = {200: json_response(shape, "Durable, and in the live view."), 202: json_response(shape, durable)}
    if body is None:
        return {"responses": found | problem_responses(*WRITE_PROBLEMS, *problems)}
    _BODY_TYPES[body.__name__] = body
    content = {"application/json": {"schema": {"$ref": _REFS + body.__name__}}}
    return {
        "responses": found | problem_responses(*WRITE_PROBLEMS, *BODY_PROBLEMS, *problems),
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }


def json_response(shape: type[msgspec.Struct], description: str) -> dict[str, Any]:
    """Describe one JSON answer."""
    ANSWER_TYPES[shape.__name__] = shape
    return {
        "description": description,
        "content": {"application/json": {"schema": {"$ref": _REFS + shape.__name__}}},
    }


def text_response(media: str, description: str) -> dict[str, Any]:
    """Describe one answer in a text format."""
    return {"description": description, "content": {media: {"schema": {"type": "string"}}}}


def problem_responses(*kinds: Kind) -> Responses:
    """Describe answers that are problems, each kind with an example."""
    found: Responses = {}
    for kind in dict.fromkeys(kinds):
        entry = found.setdefault(
            kind.status,
            {
                "description": kind.title,
                "content": {MEDIA_TYPE: {"schema": {"$ref": _REFS + "ProblemDetails"}, "examples": {}}},
            },
        )
        if kind.title not in entry["description"]:
            entry["description"] += f"; {kind.title[0].lower()}{kind.title[1:]}"
        entry["content"][MEDIA_TYPE]["examples"][kind.slug] = {
            "summary": kind.title,
            "value": kind.body(**EXAMPLES["problems"][kind.slug]),
        }
    return found


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the application."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
        servers=[{"url": ".", "description": "Where this document is from."}],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    _, bodies = models_json_schema(
        [(model, "validation") for model in _BODY_TYPES.values()], ref_template=_REFS + "{model}"
    )
    _, answers = msgspec.json.schema_components([*ANSWER_TYPES.values(), ProblemDetails], ref_template=_REFS + "{name}")
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(bodies["$defs"])
    for name, schema in answers.items():
        schemas[name] = {**schema, "description": cleandoc(schema["description"])}
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "One of the gateway's tokens, if it has any."}
    }
    for item in document["paths"].values():
        for method, operation in item.items():
            responses = operation["responses"]
            if _is_fastapis(responses.get("422")):
                del responses["422"]
            if "304" in responses:
                operation.setdefault("parameters", []).append(_IF_NONE_MATCH)
            for status, answer in problem_responses(INTERNAL).items():
                responses[str(status)] = answer
            if method != "get":
                operation["security"] = [{"bearer": []}, {}]
            _add_examples(operation, EXAMPLES["operations"][operation["operationId"]])
    _drop_titles(schemas)
    return document


def _add_examples(operation: dict[str, Any], examples: dict[str, dict[str, Any]]) -> None:
    for where, found in examples.items():
        if where == "body":
            operation["requestBody"]["content"]["application/json"]["examples"] = found
        else:
            content = operation["responses"][where]["content"]
            for media, example in found.items():
                content[media]["example"] = example


def _is_fastapis(response: dict[str, Any] | None) -> bool:
    return response is not None and "application/json" in response.get("content", {})


def _drop_titles(schemas: dict[str, Any]) -> None:
    """Remove Pydantic's titles of members, which repeat their names."""
    for schema in schemas.values():
        for member in schema.get("properties", {}).values():
            member.pop("title", None)
