# SPDX-License-Identifier: Apache-2.0
"""The memory of known requests: what may become known, and that it neither grows nor is emptied by strangers."""

from __future__ import annotations

from typing import Any

import pytest

from api.http.known import MAX_REQUEST_BYTES, KnownRequests, Question, is_whole, question_of


def scope(*headers: tuple[bytes, bytes], **more: Any) -> dict[str, Any]:
    return {"http_version": "1.1", "raw_path": b"/v1/topics/t/route", "headers": [(b"host", b"a"), *headers], **more}


def request(number: int) -> bytes:
    return b"GET /v1/topics/t%06d/route HTTP/1.1\r\n\r\n" % number


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nA: b\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\n\r\n" * 2, False),
        (b"GET / HTTP/1.1\r\n\r\nG", False),
        (b"GET / HTTP/1.1\r\n\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\n", False),
        (b"\r\nGET / HTTP/1.1\r\n\r\n", False),
        (b"HEAD / HTTP/1.1\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\n\r\n", False),
        (b"", False),
        (b"GET", False),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * MAX_REQUEST_BYTES + b"\r\n\r\n", False),
    ],
)
def test_what_is_a_whole_request(data: bytes, whole: bool) -> None:
    assert is_whole(data) is whole


@pytest.mark.parametrize(
    "header",
    [
        (b"connection", b"close"),
        (b"connection", b"keep-alive, upgrade"),
        (b"upgrade", b"h2c"),
        (b"expect", b"100-continue"),
        (b"content-length", b"0"),
        (b"transfer-encoding", b"chunked"),
        (b"authorization", b"Bearer secret"),
        (b"proxy-authorization", b"Basic secret"),
        (b"cookie", b"session=secret"),
    ],
)
def test_what_never_becomes_known(header: tuple[bytes, bytes]) -> None:
    assert question_of(scope(header)) is None


def test_what_is_asked() -> None:
    assert question_of(scope(http_version="1.0")) is None
    plain = question_of(scope((b"connection", b"Keep-Alive"), (b"user-agent", b"x")))
    assert plain is not None
    assert (plain.path, plain.if_none_match) == (b"/v1/topics/t/route", None)
    assert not plain.has("p")
    two = question_of(scope((b"if-none-match", b'"1-p"'), (b"if-none-match", b'"2-q"')))
    assert two is not None
    assert two.if_none_match == '"1-p", "2-q"'
    for print_, has in (("p", True), ("q", True), ("r", False), ("p", True)):
        assert two.has(print_) is has


def test_it_is_bounded_in_number_and_bytes() -> None:
    few = KnownRequests(max_requests=10)
    for number in range(100):
        few.learn(request(number), Question(b"/", None), 0.0)
    assert len(few) == 10
    small = KnownRequests(max_bytes=10_000)
    for number in range(100):
        small.learn(request(number), Question(b"/", None), 0.0)
    assert 10 < len(small) < 25
    assert small.bytes <= 10_000
    small.learn(b"GET " + b"a" * MAX_REQUEST_BYTES, Question(b"/", None), 0.0)
    assert small.bytes <= 10_000


def test_known_twice_is_counted_once() -> None:
    known = KnownRequests()
    known.learn(request(1), Question(b"/1", None), 0.0)
    size = known.bytes
    known.learn(request(1), Question(b"/2", None), 0.0)
    assert (len(known), known.bytes) == (1, size)
    found = known.get(request(1))
    assert found is not None
    assert found.path == b"/1"


def test_strangers_drive_nobody_out() -> None:
    known = KnownRequests(max_requests=10, idle_s=60.0)
    mine = [request(number) for number in range(4)]
    for each in mine:
        known.learn(each, Question(b"/", None), 0.0)

    def ask() -> None:
        for each in mine:
            question = known.get(each)
            assert question is not None
            question.used = True

    strange = 1000
    for second in range(600):
        ask()
        for _ in range(50):
            strange += 1
            known.learn(request(strange), Question(b"/", None), float(second))
        assert len(known) == 10
    ask()
    assert known.get(request(strange)) is None  # there was no room
    # When the stranger is gone, what he left makes room for others.
    known.learn(request(5), Question(b"/", None), 700.0)
    assert known.get(request(5)) is not None
    assert len(known) == 5
    assert known.bytes == sum(len(each) + 400 + len(b"/") for each in [*mine, request(5)])


def test_room_is_looked_for_once_in_a_while() -> None:
    known = KnownRequests(max_requests=2, idle_s=60.0)
    for number, now_s in enumerate((0.0, 0.0, 1.0, 2.0, 30.0)):
        known.learn(request(number), Question(b"/", None), now_s)
    assert known.get(request(2)) is not None  # the first that found no room made some
    assert [known.get(request(number)) is None for number in (0, 1)] == [True, True]
    assert known.get(request(3)) is not None
    assert known.get(request(4)) is None  # full again, and looked a moment ago
    known.learn(request(4), Question(b"/", None), 61.0)
    assert known.get(request(4)) is not None
