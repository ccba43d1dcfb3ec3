# SPDX-License-Identifier: Apache-2.0
"""The console's files, read once, and the headers they go out with.

The policy lets a page load scripts, styles and data from its own origin and from nowhere else, write no HTML from text
(Trusted Types without a policy), and be shown in no frame. Nothing in it is unsafe-*. (ADR 16)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

STATIC_DIR: Final = Path(__file__).parent / "static"
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


class StaticFile(NamedTuple):
    """A file as it goes out. ``digest`` is of its body, for ETags."""

    body: bytes
    media: str
    digest: str


def read_files(folder: Path = STATIC_DIR) -> dict[str, StaticFile]:
    """Every file of the console by its name.

    Raises:
        KeyError: a file is of no known kind.
        OSError: one cannot be read.
    """
    found = {}
    for path in sorted(folder.iterdir()):
        body = path.read_bytes()
        found[path.name] = StaticFile(body, _MEDIA[path.suffix], hashlib.sha256(body).hexdigest()[:16])
    return found
