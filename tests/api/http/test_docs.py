# SPDX-License-Identifier: Apache-2.0
"""Every example of docs/reference/http-api.md is run, in order, and answers what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from api.http.problems import KINDS
from dev.support.http_api import HttpApi
from dev.support.loops import until

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "http-api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```http\n(.*?)```\n```http\n(.*?)```", PAGE, re.DOTALL)

VOLATILE = {
    *("offset", "eventTime", "epoch", "lastUpdateTimestamp", "expireTimestamp", "logOffset", "watermark"),
    *("commitTime", "versions", "cursor", "peer", "oldestTime", "firstTime", "newestEpoch", "gateway"),
    *("routesAgeSeconds", "events", "seconds", "fromEpoch", "toEpoch", "validFrom", "validTo"),
    *("firstEpoch", "lastEpoch", "last", "width", "time", "sql"),
}
"""Members of which only the type must agree."""

PAGING = {"before", "after", "from", "to", "nextCursor"}


def parts(text: str) -> tuple[str, dict[str, str], str]:
    head, _, body = text.partition("\n\n")
    first, *lines = head.strip().splitlines()
    return first, dict(line.split(": ", 1) for line in lines), body


def agree(shown: Any, found: Any, where: str = "") -> None:
    name = where.rpartition(".")[2]
    if name in VOLATILE or where == ".lag.epochs" or (name in PAGING and isinstance(shown, str)):
        assert type(shown) is type(found), where
    elif isinstance(shown, dict):
        assert shown.keys() == found.keys(), where
        for key, value in shown.items():
            agree(value, found[key], f"{where}.{key}")
    elif isinstance(shown, list):
        assert len(shown) == len(found), where
        for index, value in enumerate(shown):
            agree(value, found[index], f"{where}.{index}")
    elif where == ".detail":
        assert re.sub(r"\d[\d:.TZ-]*", "N", shown) == re.sub(r"\d[\d:.TZ-]*", "N", found)
    else:
        assert shown == found, where


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Any:
    api = HttpApi(tmp_path_factory.mktemp("docs"), liveness_interval_s=600.0)
    until(lambda: api.get("/readyz?strict").status_code == 200)
    yield api
    api.close()


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 15
    assert PAGE.count("```http") == 2 * len(EXAMPLES)


@pytest.mark.parametrize(("request_text", "answer_text"), EXAMPLES, ids=[text.splitlines()[0] for text, _ in EXAMPLES])
def test_example(fresh: HttpApi, request_text: str, answer_text: str) -> None:
    line, headers, body = parts(request_text)
    method, url = line.split(" ", 1)
    answer = fresh.send(method, url, headers=headers, content=body.encode() or None)
    if method != "GET":
        fresh.settled()  # one epoch a write, for the examples of the past
    status, shown_headers, shown = parts(answer_text)
    assert status == f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}", answer.text
    for name, value in shown_headers.items():
        found = answer.headers[name]
        if name == "ETag":
            assert all(re.fullmatch(r'"\d+-(none|[0-9a-f]{16})"', tag) for tag in (value, found))
        elif name in ("Content-Type", "Cache-Control"):
            assert value == found
        else:
            assert bool(value) == bool(found)
    if shown.strip():
        agree(json.loads(shown), answer.json())
    else:
        assert answer.content == b""


def test_the_page_lists_every_kind_of_problem() -> None:
    lines = PAGE[PAGE.index("| status | type") :].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    shown = {slug: (statuses, code) for statuses, slugs, code, _ in rows for slug in slugs.split(", ")}
    assert shown.keys() == {kind.slug for kind in KINDS}
    for kind in KINDS:
        statuses, code = shown[kind.slug]
        assert str(kind.status) in statuses
        assert code == str(int(kind.code))
