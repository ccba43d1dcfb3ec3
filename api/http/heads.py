# SPDX-License-Identifier: Apache-2.0
"""The rules of RFC 9112 for the head of a request that the parser leaves to its caller.

llhttp refuses most ambiguous heads: bare CR and LF, folded lines, white space before a colon, and a length that is not
a number. It also refuses Content-Length together with Transfer-Encoding. But llhttp accepts HTTP/0.9 and 2.0, any
number of Host headers, and any target. It finds no body after ``Transfer-Encoding: gzip, chunked``, nor after
``chunked`` in HTTP/1.0. It would read that body as the next request. This module is pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

Headers = Sequence[tuple[bytes, bytes]]

_REG_NAME: Final = rb"(?:[A-Za-z0-9._~!$&'()*+;=-]|%[0-9A-Fa-f]{2})*"
_HOST: Final = re.compile(rb"(?:\[[A-Za-z0-9:.%_~-]+\]|" + _REG_NAME + rb")(?::[0-9]{0,5})?")
"""RFC 3986 ``host[:port]``. A comma is not allowed, because a proxy may have joined two Host headers."""
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)(/[^?#]*)?(\?[^#]*)?", re.IGNORECASE)
_LONGEST_HOST: Final = 300


class HeadError(Exception):
    """Error for a request head that breaks a rule. The text names the rule."""


class Target(NamedTuple):
    """Target of a request.

    Attributes:
        path: Path as sent, with its escapes.
        query: Query without the question mark.
        host: Authority of a target in absolute form. It replaces the Host header.
    """

    path: bytes
    query: bytes
    host: bytes | None


def read_head(method: bytes, version: str, target: bytes, headers: Headers) -> Target:
    """Read the target of a request. Refuse a head that leaves the request's end or its host ambiguous.

    Args:
        method: Method as sent.
        version: Version of HTTP, such as "1.1".
        target: Target as sent: in origin, absolute or asterisk form.
        headers: Headers with names in lower case.

    Raises:
        HeadError: The head is ambiguous.
    """
    if version not in ("1.1", "1.0"):
        raise HeadError(f"HTTP/{version} is not supported: use HTTP/1.1")
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1:
        raise HeadError("there are several Host headers: send one")
    if not hosts and version == "1.1":
        raise HeadError("HTTP/1.1 needs a Host header")
    if hosts and not is_host(hosts[0]):
        raise HeadError("the Host header is not HOST or HOST:PORT")
    codings = [value.strip(b" \t").lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and (codings != [b"chunked"] or version == "1.0"):
        raise HeadError("the only supported Transfer-Encoding is chunked, in HTTP/1.1")
    if method == b"CONNECT":
        raise HeadError("CONNECT is not supported: this is not a proxy")
    if target.startswith(b"/") and b"#" not in target:
        path, _, query = target.partition(b"?")
        return Target(path, query, None)
    if target == b"*" and method == b"OPTIONS":
        return Target(b"/", b"", None)
    found = _ABSOLUTE.fullmatch(target)
    if found is None or not is_host(found[1]):
        raise HeadError("the target of the request is neither a path nor an http URL")
    return Target(found[2] or b"/", (found[3] or b"?")[1:], found[1])


@lru_cache(256)
def is_host(value: bytes) -> bool:
    """Return whether a Host header has a valid form. An empty one is valid."""
    return len(value) <= _LONGEST_HOST and _HOST.fullmatch(value.strip(b" \t")) is not None
