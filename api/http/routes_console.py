# SPDX-License-Identifier: Apache-2.0
"""/console: its files, which everybody may read, the list of routelakes, which is a read, and sessions.

The files are read once. They are sent with a policy. It lets a page load scripts, styles and data only from its own
origin, write no HTML from text (Trusted Types without a policy), and be shown in no frame. Nothing in the policy is
unsafe-*. (ADR 16)

The files hold no data. The console gets its data from the HTTP API, with the permissions of its user. So the checks of
reads and writes there protect the console, too.
"""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

import msgspec
from fastapi import Path, Request
from starlette.responses import Response

from api.http.context import Router, context_of
from api.http.etag import JSON, if_none_match, matches
from api.http.models import SessionBody
from api.http.problems import NO_SUCH_ENDPOINT, UNAUTHORIZED, Problem
from api.http.proofs import SESSION_PATH
from api.http.reads import uncached
from api.http.writes import read_body

_CONSOLE: Final = pathlib.Path(__file__).parent.parent / "console"
STATIC_DIR: Final = _CONSOLE / "static"
VENDOR_DIR: Final = _CONSOLE / "vendor"
"""Folder with unchanged third-party libraries and their licences (`VENDOR_DIR / "README.md"`)."""
INDEX: Final = "index.html"
SITES: Final = "sites.json"

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


router = Router(include_in_schema=False)

_MOST_SESSION_BYTES: Final = 32 * 1024
"""Maximum size of a body that begins a session, in bytes. It has only a token."""


class StaticFile(NamedTuple):
    """A file as it is sent. ``digest`` is the digest of its body, for ETags."""

    body: bytes
    media: str
    digest: str


def read_files(folder: pathlib.Path = STATIC_DIR) -> dict[str, StaticFile]:
    """Read the files of a folder, except licences and notes, and return them by their names.

    Raises:
        KeyError: A file has an unknown suffix.
        OSError: A file cannot be read.
    """
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("LICENSE") or path.suffix == ".md":
            continue
        body = path.read_bytes()
        found[path.name] = StaticFile(body, _MEDIA[path.suffix], hashlib.sha256(body).hexdigest()[:16])
    return found


_FILES: Final = read_files() | read_files(VENDOR_DIR)


@router.get("/console")
async def console() -> Response:
    """Redirect to the page. The link is relative, because a proxy may put a path before it."""
    return Response(status_code=307, headers={"location": "console/", "cache-control": "no-store"})


@router.get("/console/")
async def console_page(request: Request) -> Response:
    """Return the one page. The part of the address after # selects its view."""
    return _answer(request, _FILES[INDEX])


@router.get(f"/console/{SITES}")
async def console_sites(request: Request) -> Response:
    """Return name and address of the routelakes that the console offers."""
    context = context_of(request)
    context.guard.reader(request)
    sites = [{"name": site.name, "url": site.url} for site in context.settings.console_sites]
    return Response(msgspec.json.encode({"sites": sites}), 200, {"cache-control": "no-cache"}, JSON)


@router.get(SESSION_PATH)
async def session(request: Request) -> Response:
    """Return the identity and the permissions of the sender (`AuthContext`)."""
    return uncached(context_of(request).guard.standing(request))


@router.post(SESSION_PATH)
async def begin_session(request: Request) -> Response:
    """Begin a session for the user of the token in the body, ``{"token": ...}``."""
    context = context_of(request)
    token, _ = await read_body(request, SessionBody, lambda body: body.token, max_bytes=_MOST_SESSION_BYTES)
    scope = dict(request.scope)
    headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    scope["headers"] = [*headers, (b"authorization", b"Bearer " + token.encode())]
    await context.guard.prepare(scope)
    as_if = Request(scope)
    context.guard.reader(as_if)
    standing = context.guard.standing(as_if)
    if standing.user is None:
        raise Problem(UNAUTHORIZED, "that token is not known here")
    return uncached(standing, headers={"set-cookie": context.sessions.begin(request.scope, token)})


@router.delete(SESSION_PATH)
async def end_session(request: Request) -> Response:
    """End the session, if there is one."""
    cookie = context_of(request).sessions.end(request.scope)
    return Response(status_code=204, headers={"set-cookie": cookie, "cache-control": "no-store"})


@router.get("/console/{file}")
async def console_file(request: Request, file: Annotated[str, Path()]) -> Response:
    """Return a module or a style sheet."""
    found = _FILES.get(file)
    if found is None:
        raise Problem(NO_SUCH_ENDPOINT, f"the console has no file {file!r}")
    return _answer(request, found)


def _answer(request: Request, file: StaticFile) -> Response:
    headers = {**HEADERS, "etag": f'"console-{file.digest}"'}
    if matches(if_none_match(request.headers.raw), file.digest):
        return Response(status_code=304, headers=headers)
    return Response(file.body, 200, headers, file.media)
