# SPDX-License-Identifier: Apache-2.0
"""Encoded route answers: bounded by what they really hold, and nobody drives out what another uses."""

from __future__ import annotations

import tracemalloc

from api.remoting.templates import Templates
from remoting.frame import RemotingCommand
from remoting.reply import ReplyTemplate, response
from remoting.route_query import RouteQuery, route_query
from tests.support.alone import alone


def query(number: int) -> RouteQuery:
    return route_query(RemotingCommand(105, {"topic": f"topic-{number}"}), is_kept=True)


def template(body: bytes) -> ReplyTemplate:
    return ReplyTemplate(response(body=body))


def test_an_answer_is_found_as_long_as_its_body_is_the_same() -> None:
    templates, asked, body = Templates(), query(1), b"body"
    made = template(body)
    assert templates.put(asked, made) == []
    assert templates.get(asked, body) is made
    assert templates.get(asked, bytes(bytearray(body))) is None
    assert templates.get(query(1), body) is None


def test_a_shared_body_counts_once() -> None:
    templates, body = Templates(max_bytes=1_000_000), bytes(400_000)
    for number in range(100):
        assert templates.put(query(number), template(body)) == []
    assert templates.bytes < 1_000_000
    forgotten = templates.put(query(101), template(bytes(700_000)))
    assert len(forgotten) == 100, "a body is let go with the last that sends it"
    assert len(templates) == 1
    assert templates.bytes < 710_000


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    templates, used = Templates(max_bytes=50_000), query(0)
    body = b"body"
    templates.put(used, template(body))
    forgotten = set()
    for number in range(1, 1_000):
        forgotten.update(templates.put(query(number), template(body)))
        assert templates.get(used, body) is not None
    assert used not in forgotten
    assert len(forgotten) + len(templates) == 1_000


def held_by_many(max_bytes: int) -> int:
    templates = Templates(max_bytes=max_bytes)
    tracemalloc.start()
    for number in range(10_000):
        made = template(bytes(300))
        for digits in range(1, 10):
            made.start(digits)
        templates.put(query(number), made)
    return tracemalloc.get_traced_memory()[0]


def test_the_bound_is_real() -> None:
    limit = 2_000_000
    assert alone(held_by_many, limit) < 1.2 * limit
