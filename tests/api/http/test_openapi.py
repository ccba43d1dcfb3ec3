# SPDX-License-Identifier: Apache-2.0
"""The API description is valid, complete, and true; /docs needs nothing from elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any, Final

import msgspec
import pytest
from fastapi.openapi.models import OpenAPI
from pydantic import BaseModel

from api.http import models
from api.http.answers import ProblemDetails
from api.http.openapi import ANSWER_TYPES, EXAMPLES
from api.http.problems import KINDS
from dev.support.http_api import HttpApi

OPERATIONS = {
    *("registerBroker", "heartbeat", "unregisterBroker"),
    *(
        "listTopics",
        "getTopicRoute",
        "getTopicChanges",
        "listEpochs",
        "listChanges",
        "getDiff",
        "getClusters",
        "listBrokers",
        "getBroker",
    ),
    *("deleteTopic", "wipeWritePerm", "addWritePerm", "listKv", "getKv", "putKv", "deleteKv"),
    *("getSelfPreservation", "setSelfPreservation", "endSelfPreservation", "getConfig"),
    *(
        "getTopicTimeline",
        "getBrokerTimeline",
        "getTopicBlame",
        "getReport",
        "listReports",
        "getActivity",
        "getLifelines",
        "listenEvents",
    ),
    *("health", "ready", "foldHealth", "metrics", "nameServers"),
}


@pytest.fixture(scope="module")
def document(unfolded: HttpApi) -> dict[str, Any]:
    found: dict[str, Any] = unfolded.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, found) for path, item in document["paths"].items() for method, found in item.items()]


def refs(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [ref for value in node.values() for ref in refs(value)]
    return [ref for value in node for ref in refs(value)] if isinstance(node, list) else []


def test_the_description_is_valid_openapi(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    OpenAPI.model_validate(document)
    schemas = document["components"]["schemas"]
    for ref in refs(document):
        assert ref.startswith("#/components/schemas/"), ref
        assert ref.rpartition("/")[2] in schemas, ref
    names = [found["operationId"] for _, _, found in operations(document)]
    assert sorted(names) == sorted(OPERATIONS)
    assert sorted(EXAMPLES["operations"]) == sorted(OPERATIONS)
    for path, _, found in operations(document):
        declared = {parameter["name"] for parameter in found.get("parameters", []) if parameter["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path)), path


def check(schema: dict[str, Any], example: object) -> None:
    """Hold an example against the type that the schema is of."""
    name = schema["$ref"].rpartition("/")[2]
    answer = {**ANSWER_TYPES, "ProblemDetails": ProblemDetails}.get(name)
    if answer is not None:
        msgspec.json.decode(msgspec.json.encode(example), type=answer)
    else:
        body = vars(models)[name]
        assert issubclass(body, BaseModel)
        body.model_validate(example)


def examples(media: dict[str, Any]) -> list[Any]:
    return [entry["value"] for entry in media.get("examples", {}).values()] + (
        [media["example"]] if "example" in media else []
    )


def test_everything_is_described_with_examples_that_are_true(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for path, method, found in operations(document):
        where = f"{method} {path}"
        assert found["summary"], where
        assert found["description"], where
        assert set(found["tags"]) <= tags, where
        assert all(parameter.get("description") for parameter in found.get("parameters", [])), where
        bodies = [found["requestBody"]] if "requestBody" in found else []
        assert bool(bodies) == (method == "put" or path.endswith(("register", "heartbeat"))), where
        for holder in (*bodies, *found["responses"].values()):
            for kind, media in holder.get("content", {}).items():
                assert examples(media), where
                if kind.startswith("text/") or kind == "application/x-ndjson":
                    continue
                for example in examples(media):
                    check(media["schema"], example)
        assert "422" not in found["responses"] or bodies, where
        assert "500" in found["responses"], where


_PATH_PARAMETERS: Final = {
    "{topic}": "orders",
    "{name}": "alive",
    "{brokerName}": "broker-a",
    "{namespace}": "a",
    "{key}": "b",
}


@pytest.mark.parametrize("accept", ["text/csv", "application/x-ndjson"])
def test_every_format_of_an_answer_is_described(document: dict[str, Any], quiet: HttpApi, accept: str) -> None:
    formats = Counter[str]()
    for path, method, found in operations(document):
        if method != "get" or found["operationId"] == "listenEvents":
            continue
        for name, value in _PATH_PARAMETERS.items():
            path = path.replace(name, value)
        answer = quiet.get(path, headers={"accept": accept})
        media = answer.headers["content-type"].partition(";")[0]
        assert media in found["responses"][str(answer.status_code)]["content"], path
        formats[media] += 1
    assert formats[accept] >= 2


def test_every_kind_of_problem_is_described(document: dict[str, Any]) -> None:
    shown = {
        slug
        for _, _, found in operations(document)
        for answer in found["responses"].values()
        for slug in answer.get("content", {}).get("application/problem+json", {}).get("examples", {})
    }
    assert {kind.slug for kind in KINDS} - shown == {"no-such-endpoint", "method-not-allowed"}


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "link", "iframe")
        self.links += [value for name, value in attrs if name in ("href", "src") and value]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_docs_is_one_page_for_a_person(unfolded: HttpApi, document: dict[str, Any]) -> None:
    answer = unfolded.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    page = _Links()
    page.feed(answer.text)
    assert page.links == ["openapi.json"]
    text = " ".join(page.text)
    for path, _, found in operations(document):
        assert path in text
        assert found["summary"] in text
    for kind in KINDS:
        assert kind.type in text
    assert unfolded.get("/").headers["location"] == "docs"
