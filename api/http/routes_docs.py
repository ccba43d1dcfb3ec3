# SPDX-License-Identifier: Apache-2.0
"""/openapi.json, and /docs: the API description as one plain page, without files from other sites."""

from __future__ import annotations

import json
from html import escape
from typing import Any, Final

from fastapi import Request
from starlette.responses import Response

from api.http.context import Router, context_of
from api.http.etag import JSON
from api.http.problems import KINDS

router = Router(include_in_schema=False)

_HTML: Final = "text/html; charset=utf-8"
_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}
_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #ccd}summary{cursor:pointer;padding:.3rem 0}
pre{background:#f4f5f8;padding:.7rem;overflow:auto;font-size:.85rem}code{font-size:.92em}
table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}
.m{display:inline-block;min-width:4.2rem;font:600 .85rem monospace}.p{font-family:monospace}
details>div{margin:0 0 1rem 1.2rem}
@media(prefers-color-scheme:dark){body{background:#14171c;color:#dde3ea}pre{background:#1e232b}a{color:#8ab4f8}}
"""


@router.get("/openapi.json")
async def openapi_json(request: Request) -> Response:
    """Return the document."""
    context_of(request).guard.reader(request)
    return Response(request.app.openapi_json, 200, {"cache-control": "no-cache"}, JSON)


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Return the page."""
    context_of(request).guard.reader(request)
    return Response(request.app.docs_page, 200, _HEADERS, _HTML)


@router.get("/")
async def root() -> Response:
    """Redirect to the documentation. The link is relative, because a proxy may put a path before it."""
    return Response(status_code=307, headers={"location": "docs", "cache-control": "no-store"})


def page(document: dict[str, Any]) -> str:
    """Return an OpenAPI document as HTML."""
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>{escape(info['title'])} HTTP API</title><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>",
        _prose(info["description"]),
        "<p>The same for programs: <a href=openapi.json>/openapi.json</a>.</p>",
    ]
    for tag in document["tags"]:
        parts.append(f"<h2 id={tag['name']}>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>")
        parts += [
            _operation(path, method, operation)
            for path, item in document["paths"].items()
            for method, operation in item.items()
            if tag["name"] in operation.get("tags", ())
        ]
    parts.append("<h2 id=problems>problems</h2><table><tr><th>status<th>type<th>code<th>title")
    parts += [
        f"<tr id={kind.slug}><td>{kind.status}<td><code>{kind.type}</code><td>{int(kind.code)}<td>{escape(kind.title)}"
        for kind in KINDS
    ]
    parts.append("</table></html>")
    return "\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<details id={operation['operationId']}><summary><span class=m>{method.upper()}</span>"
        f"<span class=p>{escape(path)}</span> &ndash; {escape(operation['summary'])}</summary><div>",
        _prose(operation.get("description", "")),
    ]
    parameters = operation.get("parameters", [])
    if parameters:
        parts.append("<table>")
        parts += [
            f"<tr><td><code>{escape(found['name'])}</code><td>{found['in']}<td>{_inline(found.get('description', ''))}"
            for found in parameters
        ]
        parts.append("</table>")
    for example in _examples(operation.get("requestBody", {})):
        parts.append(f"<p>Body: {escape(example[0])}</p>{_json(example[1])}")
    for status, response in operation["responses"].items():
        parts.append(f"<p><b>{status}</b> {escape(response['description'])}</p>")
        parts += [_json(example) for _, example in _examples(response)[:1] if status[0] == "2"]
    parts.append("</div></details>")
    return "\n".join(parts)


def _examples(holder: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for media in holder.get("content", {}).values():
        found += [(example["summary"], example["value"]) for example in media.get("examples", {}).values()]
        if "example" in media:
            found.append(("", media["example"]))
    return found


def _json(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return f"<pre>{escape(text)}</pre>"


def _prose(text: str) -> str:
    return "".join(f"<p>{_inline(paragraph)}</p>" for paragraph in text.strip().split("\n\n") if paragraph.strip())


def _inline(text: str) -> str:
    """Render the markdown that descriptions use: code and bold."""
    parts = escape(text).split("`")
    text = "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
    parts = text.split("**")
    return "".join(f"<b>{part}</b>" if index % 2 else part for index, part in enumerate(parts))
