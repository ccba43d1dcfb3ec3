# SPDX-License-Identifier: Apache-2.0
"""The API description: FastAPI's, with the request bodies, answers and problems it does not know of."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.http.answers import ProblemDetails
from api.http.describe import ANSWER_TYPES, errors
from api.http.models import (
    BrokerHeartbeatBody,
    PutKvConfigBody,
    RegisterBrokerBody,
    SelfPreservationBody,
    UnregisterBrokerBody,
)
from api.http.problems import INTERNAL

DESCRIPTION: Final = """\
Everything a broker, an operator or a dashboard does with a RocketMQ NameServer, and what only this one can: the routes
of any earlier moment, and who changed them.

**Writes** are facts on one event log. The answer carries the log `offset`: 200 with what the rules made of it, 202 when
it is durable and this gateway cannot follow the log at the moment. Sending a fact twice is harmless.

**Reads** come from the head of the log: the latest consistent cut of all tables, an *epoch*, and what the log holds
beyond it; with `reads=committed` from the epoch alone. `X-Routelake-Offset` and `X-Routelake-Epoch` tell what an answer
shows; If-None-Match gives 304 while the content is the same. `wait_for=<offset>` makes a read wait for a write.

**Errors** are RFC 9457 problem details with RocketMQ's ResponseCode as `code`.

**HEAD** is answered wherever GET is, with the same headers; **OPTIONS** names the methods of any path in `Allow`.

**Who may write**: with tokens configured, whoever sends one (`Authorization: Bearer`); without, this machine only.
"""

TAGS: Final = [
    {"name": "ingest", "description": "What a broker tells a NameServer. Field names are RocketMQ's."},
    {"name": "topics", "description": "Topics and their routes, now and in the past; long polls."},
    {"name": "clusters", "description": "Clusters, broker groups, live brokers."},
    {
        "name": "admin",
        "description": "Commands: delete a topic, take a broker out of writing and put it back; self-preservation.",
    },
    {"name": "kv", "description": "KV configuration, above all order configuration."},
    {"name": "history", "description": "Who changed what, when; the epochs."},
    {"name": "health", "description": "Liveness, readiness, metrics."},
]

_REQUEST_BODIES: Final = (
    RegisterBrokerBody,
    BrokerHeartbeatBody,
    UnregisterBrokerBody,
    PutKvConfigBody,
    SelfPreservationBody,
)
_REFS: Final = "#/components/schemas/"


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the application."""
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
    _, bodies = models_json_schema([(model, "validation") for model in _REQUEST_BODIES], ref_template=_REFS + "{model}")
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
            for status, answer in errors(INTERNAL).items():
                responses[str(status)] = answer
            if method != "get":
                operation["security"] = [{"bearer": []}, {}]
    _drop_titles(schemas)
    return document


def _is_fastapis(response: dict[str, Any] | None) -> bool:
    return response is not None and "application/json" in response.get("content", {})


def _drop_titles(schemas: dict[str, Any]) -> None:
    """Pydantic's titles of members repeat their names."""
    for schema in schemas.values():
        for member in schema.get("properties", {}).values():
            member.pop("title", None)
