# SPDX-License-Identifier: Apache-2.0
"""An independent, strict reading of HTTP/1.1: which requests a stream of bytes holds, and where doubt begins.

Written from the grammar of RFC 9112 and RFC 9110, with nothing of the product and none of its parser. It is as lenient
as the RFC allows in two places alone: line ends before a request (2.2) and more than one space between the words of
a request line (3); and it takes no white space around chunk extensions. An unwanted upgrade changes nothing (RFC 9110,
7.8).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LINE: Final = re.compile(rb"(" + _TOKEN + rb") +([!-~]+) +HTTP/([0-9]\.[0-9])")
_HEADER: Final = re.compile(
    rb"(" + _TOKEN + rb"):[ \t]*((?:[!-~\x80-\xff](?:[ \t!-~\x80-\xff]*[!-~\x80-\xff])?)?)[ \t]*"
)
_HOST: Final = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[A-Za-z0-9._~!$&'()*+;=%-]*)(?::[0-9]*)?")
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/?#@]+)(/[^?#]*)?(\?[^#]*)?")
_QUOTED: Final = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t !-~\x80-\xff])*"'
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]+)(?:;" + _TOKEN + rb"(?:=(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?)*")
_METHODS: Final = (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE")
_MOST_BYTES: Final = 2**63


class End(Enum):
    """End of a stream after the last whole request."""

    OPEN = "nothing, or a part of the next"
    CLOSED = "what nobody may read: the request before was the last"
    REFUSED = "something in doubt"


@dataclass(frozen=True)
class Asked:
    """A request. The body of one that breaks off, or breaks a rule, is what came of it before."""

    method: bytes
    target: bytes
    body: bytes


@dataclass(frozen=True)
class Reading:
    """Contents of a stream.

    Attributes:
        whole: The requests that are complete.
        begun: Request with a valid head and an invalid body.
        end: End of the stream after them.
    """

    whole: list[Asked]
    begun: Asked | None
    end: End


class _DoubtError(Exception):
    pass


class _ShortError(Exception):
    """The stream ends within."""


class _Stream:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def line(self) -> bytes:
        end = self.data.find(b"\r\n", self.at)
        found = self.data[self.at :] if end < 0 else self.data[self.at : end]
        if b"\n" in found or b"\r" in found.removesuffix(b"\r" if end < 0 else b""):
            raise _DoubtError  # a bare CR or LF
        if end < 0:
            raise _ShortError
        self.at = end + 2
        return found

    def take(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        self.at += len(found)
        return found


def read_stream(data: bytes) -> Reading:
    """Everything that a stream asks for."""
    stream, whole = _Stream(data), list[Asked]()
    while True:
        while data[stream.at : stream.at + 1] in (b"\r", b"\n"):
            stream.at += 1
        body = bytearray()
        begun: Asked | None = None
        try:
            method, target, version, headers = _head(stream)
            length = _length(version, headers)
            begun = Asked(method, target, b"")
            if length is None:
                _chunks(stream, body)
            else:
                body += stream.take(length)
                if len(body) < length:
                    raise _ShortError
        except _ShortError:
            return Reading(whole, begun and Asked(begun.method, begun.target, bytes(body)), End.OPEN)
        except _DoubtError:
            return Reading(whole, begun and Asked(begun.method, begun.target, bytes(body)), End.REFUSED)
        whole.append(Asked(method, target, bytes(body)))
        options = b",".join(value for name, value in headers if name == b"connection").lower().split(b",")
        if version == b"1.0" or b"close" in [option.strip(b" \t") for option in options]:
            return Reading(whole, None, End.CLOSED)


def _head(stream: _Stream) -> tuple[bytes, bytes, bytes, list[tuple[bytes, bytes]]]:
    found = _LINE.fullmatch(stream.line())
    if found is None:
        raise _DoubtError
    method, target, version = found.groups()
    headers = _fields(stream)
    hosts = [value for name, value in headers if name == b"host"]
    if version not in (b"1.0", b"1.1") or len(hosts) > 1 or (version == b"1.1" and not hosts):
        raise _DoubtError
    if not all(_HOST.fullmatch(host) for host in hosts):
        raise _DoubtError
    return method, _origin(method, target), version, headers


def _origin(method: bytes, target: bytes) -> bytes:
    """The path and query of a target, whatever its form."""
    if method not in _METHODS:
        raise _DoubtError
    if target.startswith(b"/") and b"#" not in target:
        return _without_empty_query(target)
    if target == b"*" and method == b"OPTIONS":
        return b"/"
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None or not _HOST.fullmatch(absolute[1]):
        raise _DoubtError
    return _without_empty_query((absolute[2] or b"/") + (absolute[3] or b""))


def _without_empty_query(target: bytes) -> bytes:
    path, _, query = target.partition(b"?")
    return target if query else path


def _fields(stream: _Stream) -> list[tuple[bytes, bytes]]:
    found = []
    while line := stream.line():
        field = _HEADER.fullmatch(line)
        if field is None:
            raise _DoubtError
        found.append((field[1].lower(), field[2]))
    return found


def _length(version: bytes, headers: list[tuple[bytes, bytes]]) -> int | None:
    """Return the length of the body; None: in chunks."""
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if codings:
        if lengths or codings != [b"chunked"] or version == b"1.0":
            raise _DoubtError
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not re.fullmatch(rb"[0-9]+", lengths[0]) or int(lengths[0]) >= _MOST_BYTES:
        raise _DoubtError
    return int(lengths[0])


def _chunks(stream: _Stream, body: bytearray) -> None:
    while True:
        found = _CHUNK.fullmatch(stream.line())
        if found is None or int(found[1], 16) >= _MOST_BYTES:
            raise _DoubtError
        size = int(found[1], 16)
        if not size:
            break
        part = stream.take(size)
        body += part
        if len(part) < size:
            raise _ShortError
        if not b"\r\n".startswith(stream.data[stream.at : stream.at + 2]):
            raise _DoubtError
        if stream.take(2) != b"\r\n":
            raise _ShortError
    if any(name in (b"content-length", b"transfer-encoding") for name, _ in _fields(stream)):
        raise _DoubtError  # trailers that would say where the message ends
