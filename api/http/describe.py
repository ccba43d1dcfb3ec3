# SPDX-License-Identifier: Apache-2.0
"""Pieces of the API description (OpenAPI): answers and errors with examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pydantic import BaseModel

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

READ_PROBLEMS: Final = (BAD_PARAMETER, UNAUTHORIZED, UNKNOWN_HOST, OTHER_LAKE, TOO_MANY, BUSY)
PAST_PROBLEMS: Final = (FUTURE_EPOCH, FUTURE_TIME, BEFORE_HISTORY, GONE)
"""Of whatever takes a moment of the past."""
WRITE_PROBLEMS: Final = (BAD_PARAMETER, UNAUTHORIZED, FORBIDDEN, CROSS_SITE, UNKNOWN_HOST, TOO_MANY, BUSY)
BODY_PROBLEMS: Final = (BAD_REQUEST, BAD_BODY, TIMEOUT, TOO_LARGE, UNSUPPORTED_MEDIA)

RECEIPT_EXAMPLE: Final[dict[str, Any]] = {
    "offset": 17,
    "eventTime": "2026-01-01T00:00:00.000Z",
    "visible": True,
    "epoch": 5,
    "outcome": "applied",
}

CHANGE_EXAMPLE: Final[dict[str, Any]] = {
    "epoch": 6,
    "offset": 18,
    "seq": 0,
    "eventTime": "2026-01-01T00:00:00.000Z",
    "command": "WIPE_WRITE_PERM_OF_BROKER",
    "outcome": "applied",
    "actor": {"gateway": "gw-1", "via": "http", "peer": "10.0.0.9:51234", "user": "alice"},
    "tableName": "topicQueueTable",
    "brokerName": "broker-a",
    "topic": "orders",
    "key": {"brokerName": "broker-a", "topic": "orders"},
    "before": {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0},
    "after": {"readQueueNums": 8, "writeQueueNums": 8, "perm": 4, "topicSysFlag": 0},
}

ANSWER_TYPES: Final[dict[str, type[msgspec.Struct]]] = {}
"""The types of the answers that are described here, by their names in the description."""

_NOT_MODIFIED: Final = {"description": "The client's copy (If-None-Match) is still good."}
_READ_HEADERS: Final = {
    "ETag": {
        "description": "Epoch and digest of the body; send it back as If-None-Match.",
        "schema": {"type": "string", "examples": ['"5-0d1f62c9a3b8e754"']},
    },
    "X-Routelake-Epoch": {"description": "The epoch this answer shows.", "schema": {"type": "integer"}},
    "X-Routelake-Offset": {"description": "Everything up to this log offset is in.", "schema": {"type": "integer"}},
}


def read(shape: type[msgspec.Struct], example: object, *problems: Kind) -> Responses:
    """Answers of a read with entity tags."""
    return {
        200: {**plain(shape, example, "The answer."), "headers": _READ_HEADERS},
        304: _NOT_MODIFIED,
        **errors(*READ_PROBLEMS, *problems),
    }


def write(shape: type[msgspec.Struct], example: Mapping[str, Any], *problems: Kind) -> Responses:
    """Answers of a write: what became of it, or durable only."""
    durable = {**{name: example[name] for name in ("offset", "eventTime")}, "visible": False, "epoch": 4}
    return {
        200: plain(shape, example, "Durable, and folded: reads of the head of the log show it."),
        202: plain(
            shape,
            {**durable, "outcome": "accepted", **({"known": True} if "known" in example else {})},
            "Durable; the log cannot be followed at the moment. Pass `offset` as `wait_for` to a read.",
        ),
        **errors(*WRITE_PROBLEMS, *problems),
    }


def plain(shape: type[msgspec.Struct], example: object, description: str) -> dict[str, Any]:
    """One JSON answer."""
    ANSWER_TYPES[shape.__name__] = shape
    schema = {"$ref": f"#/components/schemas/{shape.__name__}"}
    return {"description": description, "content": {"application/json": {"schema": schema, "example": example}}}


def errors(*kinds: Kind) -> Responses:
    """Answers that are problems, each kind with an example."""
    found: Responses = {}
    for kind in dict.fromkeys(kinds):
        entry = found.setdefault(
            kind.status,
            {
                "description": kind.title,
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}, "examples": {}}},
            },
        )
        if kind.title not in entry["description"]:
            entry["description"] += f"; {kind.title[0].lower()}{kind.title[1:]}"
        entry["content"][MEDIA_TYPE]["examples"][kind.slug] = {
            "summary": kind.title,
            "value": kind.body(kind.example, kind.members),
        }
    return found


def body(model: type[BaseModel], **examples: tuple[str, Any]) -> dict[str, Any]:
    """A request body, for ``openapi_extra``: examples are (summary, value)."""
    listed = {name: {"summary": summary, "value": value} for name, (summary, value) in examples.items()}
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": f"#/components/schemas/{model.__name__}"},
                    "examples": listed,
                }
            },
        }
    }
