# SPDX-License-Identifier: Apache-2.0
"""Unknown topics: asked for again and again, without end, and of any length."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from api.remoting.route_requests import RECENT_S, UnknownTopics
from dev.model import codes
from dev.model.wire import Request
from dev.support.local import local_client
from remoting.codec.frame import RemotingCommand
from remoting.server.channel import size_of
from schemas.limits import MAX_HEADER_FIELDS, MAX_NAME_BYTES


def test_who_asks_again_at_once_may_have_made_it() -> None:
    unknown = UnknownTopics()
    assert [unknown.was_asked("T", now) for now in (1.0, 1.5, 2.0 + RECENT_S)] == [False, True, False]


def test_they_are_kept_by_their_bytes() -> None:
    unknown = UnknownTopics()
    tracemalloc.start()
    try:
        for number in range(5_000):
            unknown.was_asked(f"\N{GRINNING FACE}{number:06}{'a' * (MAX_NAME_BYTES - 10)}", 1.0)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 2_000_000


def test_a_topic_that_cannot_exist_is_answered_and_kept_nowhere(tmp_path: Path) -> None:
    with local_client(tmp_path) as client:
        for name in ("a" * (MAX_NAME_BYTES + 1), "\N{GRINNING FACE}" + "a" * 20_000, "a\u0085b"):
            answer = client.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": name}))
            assert answer.code == codes.TOPIC_NOT_EXIST


def test_header_fields_are_bounded_for_every_request(tmp_path: Path) -> None:
    """Reads as writes, known codes and others: 1 with the bound, before anything is kept."""
    everyone = [
        value for name, value in vars(codes).items() if name.isupper() and isinstance(value, int) and value > 99
    ]
    with local_client(tmp_path) as client:
        for code in {*everyone, 31999}:
            for junk in ({"junk": "j" * 40_000}, {f"n{number}": "" for number in range(MAX_HEADER_FIELDS + 1)}):
                answer = client.call(Request(code, {"topic": "T", **junk}))
                assert answer.code == codes.SYSTEM_ERROR, code
                assert "send at most" in (answer.remark or ""), code


def test_what_a_request_holds_counts_names_and_wide_characters() -> None:
    names = RemotingCommand(105, {f"n{number}": "" for number in range(1_000)})
    assert size_of(names) > 100_000
    wide = RemotingCommand(105, {"topic": "\N{GRINNING FACE}" + "a" * 10_000})
    assert size_of(wide) > 40_000
