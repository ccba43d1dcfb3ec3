# SPDX-License-Identifier: Apache-2.0
"""The load generator tells the truth: what it counts, what it refuses, what it calls a latency."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dev.benchmarks.harness import loadgen
from dev.benchmarks.harness.frames import for_generator, http_get, route_query
from dev.benchmarks.harness.loadgen import (
    OPAQUE,
    Load,
    LoadError,
    LoadResult,
    echo,
    run_load,
    running_load,
    write_frames,
)
from dev.benchmarks.harness.tls import certificate
from remoting.codec.frame import RemotingCommand, encode_frame
from schemas.errors import SetupError
from tests.dev.benchmarks.peers import Answer, StallOnce, frame, serving


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = [f"topic-{number}" for number in range(10)]
    path = tmp_path_factory.mktemp("frames") / "requests"
    return write_frames(path, for_generator([route_query(name) for name in names]))


def load(port: int, frames: Path, **changes: object) -> Load:
    return Load(**{"port": port, "frames": frames, "seconds": 0.3, "warmup_s": 0.0, **changes})  # type: ignore[arg-type]


def busy_load(load: Load) -> LoadResult:
    """A run in which more than a hundred were answered: another one, where the machine stood still meanwhile."""
    for _ in range(10):
        found = run_load(load)
        if found.requests > 100:
            break
    return found


def load_of(count: int, answer: Answer, frames: Path, **changes: object) -> LoadResult:
    """What the generator says when so many requests have been answered one after the other, wrong or not."""
    reached = threading.Event()

    def counted(opaque: int, number: int) -> bytes:
        if number >= count:
            reached.set()
        return answer(opaque, number)

    with serving(counted) as port, running_load(load(port, frames, seconds=600, **changes)) as running:
        assert reached.wait(60)
        running.stop()
        return running.result(may_fail=True)


@pytest.mark.parametrize(("connections", "depth"), [(1, 1), (64, 4), (8, 16)])
def test_remoting_against_echo(tmp_path: Path, requests: Path, connections: int, depth: int) -> None:
    answer = write_frames(
        tmp_path / "answer", [encode_frame(RemotingCommand(0, flag=1, opaque=OPAQUE, body=b"x" * 99))]
    )
    with echo(answer, "remoting") as port:
        found = busy_load(load(port, requests, connections=connections, depth=depth))
    assert found.wrong == 0
    assert found.body_bytes == 99
    assert found.requests == sum(count for count, _ in found.windows) > 100
    assert found.sent - found.answered <= connections * depth
    assert 0 < found.p50_us <= found.p90_us <= found.p99_us <= found.p999_us <= found.max_us
    assert found.per_second == pytest.approx(found.requests / found.seconds, rel=0.01)


def test_answers_of_66_kilobytes(tmp_path: Path, requests: Path) -> None:
    body = bytes(range(256)) * 260
    answer = write_frames(tmp_path / "answer", [encode_frame(RemotingCommand(0, flag=1, opaque=OPAQUE, body=body))])
    with echo(answer, "remoting") as port:
        found = busy_load(load(port, requests, connections=16, depth=2))
    assert found.wrong == 0
    assert found.body_bytes == len(body)
    assert found.bytes_in > found.requests * len(body)


@pytest.mark.parametrize("size", [99, 66_560])
def test_tls_against_echo(tmp_path: Path, requests: Path, size: int) -> None:
    """Encrypted answers are read a record at a time, and to the end."""
    try:
        loadgen.program(tls=True)
    except SetupError as error:
        pytest.skip(str(error))
    answer = write_frames(
        tmp_path / "answer", [encode_frame(RemotingCommand(0, flag=1, opaque=OPAQUE, body=bytes(size)))]
    )
    with echo(answer, "remoting", certificate(tmp_path)) as port:
        found = busy_load(load(port, requests, connections=16, depth=4, tls=True))
    assert found.wrong == 0
    assert found.body_bytes == size
    assert found.requests > 100


def test_http_against_echo(tmp_path: Path) -> None:
    answer = write_frames(tmp_path / "answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"])
    frames = write_frames(tmp_path / "requests", [http_get("/a"), http_get("/b")])
    with echo(answer, "http") as port:
        found = busy_load(load(port, frames, protocol="http", connections=8, depth=3))
    assert found.wrong == 0
    assert found.body_bytes == 5
    assert found.requests > 100


def test_http_error_is_noticed(tmp_path: Path) -> None:
    answer = write_frames(tmp_path / "answer", [b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"])
    frames = write_frames(tmp_path / "requests", [http_get("/a")])
    with echo(answer, "http") as port, pytest.raises(LoadError, match="answers were errors"):
        run_load(load(port, frames, protocol="http", once=True))


def test_wrong_code_is_noticed(requests: Path) -> None:
    assert load_of(50, lambda opaque, number: frame(opaque, code=17 if number == 5 else 0), requests).wrong_code == 1


def test_wrong_opaque_is_noticed(requests: Path) -> None:
    found = load_of(50, lambda opaque, number: frame(opaque + (number == 5)), requests, depth=2)
    assert found.wrong_opaque == 1
    assert found.sent - found.answered in (1, 2)  # that one has no answer; another may be under way


def test_other_body_is_noticed(requests: Path) -> None:
    found = load_of(100, lambda opaque, number: frame(opaque, body=b"longer" if number == 50 else b"body"), requests)
    assert found.wrong_body == 1


def test_same_length_other_bytes_are_noticed(requests: Path) -> None:

    def answer(opaque: int, number: int) -> bytes:
        return frame(opaque, body=b"body" if number < 10 else b"BODY")

    assert load_of(2_000, answer, requests, connections=4).wrong_body >= 1
    assert load_of(2_000, answer, requests, check="length").wrong == 0


def test_lost_connection_is_noticed(requests: Path) -> None:
    with serving(lambda opaque, number: frame(opaque) if number < 20 else b"") as port:
        assert run_load(load(port, requests, seconds=60), may_fail=True).lost == 1


def test_latency_counts_from_when_a_request_was_due(requests: Path) -> None:
    """Closed loop: one request suffers from a stall. At a rate: all that were due meanwhile do."""

    def measured() -> tuple[LoadResult, LoadResult]:
        with serving(StallOnce(0.4)) as port:
            closed = run_load(load(port, requests, seconds=1.0))
        with serving(StallOnce(0.4)) as port:
            return closed, run_load(load(port, requests, seconds=1.0, rate=500.0, depth=1))

    def told(closed: LoadResult, paced: LoadResult) -> bool:
        one_suffers, all_do = closed.p99_us < 200_000 < closed.max_us, paced.p90_us > 200_000
        return one_suffers and all_do and paced.requests == pytest.approx(500, abs=60)

    # Once more, where the machine stood still for itself.
    tries = [measured()]
    while not told(*tries[-1]) and len(tries) < 10:
        tries.append(measured())
    assert told(*tries[-1]), tries


def test_once_sends_each_frame_once(tmp_path: Path) -> None:
    seen: list[int] = []
    frames = write_frames(tmp_path / "frames", for_generator([route_query(str(number)) for number in range(25)]))

    def answer(opaque: int, number: int) -> bytes:
        seen.append(number)
        return frame(opaque)

    with serving(answer) as port:
        found = run_load(load(port, frames, connections=4, depth=2, once=True, seconds=30))
    assert (found.answered, found.requests, len(seen)) == (25, 25, 25)
    assert found.seconds < 25


def test_hold_keeps_connections_open(requests: Path) -> None:
    with serving(lambda opaque, number: frame(opaque)) as port:
        with running_load(load(port, requests, once=True, hold=True)) as running:
            assert running.result().answered == 10
            assert running.alive
        assert not running.alive


def test_stopped_early_it_still_reports(requests: Path) -> None:
    answered = threading.Event()

    def answer(opaque: int, number: int) -> bytes:
        if number == 20:
            answered.set()
        return frame(opaque)

    with serving(answer) as port, running_load(load(port, requests, seconds=60)) as running:
        assert answered.wait(30)
        running.stop()
        assert running.result().requests >= 20


def test_nobody_listens(requests: Path) -> None:
    with serving(lambda opaque, number: b"") as port:
        pass
    with pytest.raises(LoadError, match="cannot connect"):
        run_load(load(port, requests))


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="install gcc and libc6-dev"):
        loadgen.compiler()


def test_it_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROUTELAKE_CACHE", str(tmp_path))
    first = loadgen.program()
    made = first.stat().st_mtime_ns
    assert loadgen.program() == first
    assert first.stat().st_mtime_ns == made
    assert list(first.parent.iterdir()) == [first]


def test_large_bodies_are_checked_though_most_are_dropped_unread(requests: Path) -> None:
    body, other = b"x" * 40_000, b"y" * 40_000
    found = load_of(100, lambda opaque, number: frame(opaque, body=body), requests, connections=2, depth=3)
    assert (found.body_bytes, found.wrong) == (len(body), 0)
    found = load_of(100, lambda opaque, number: frame(opaque, body=body[:-1] if number == 50 else body), requests)
    assert found.wrong_body == 1
    found = load_of(100, lambda opaque, number: frame(opaque, code=int(number == 50), body=body), requests)
    assert found.wrong_code == 1
    found = load_of(2_000, lambda opaque, number: frame(opaque, body=body if number < 10 else other), requests)
    assert found.wrong_body >= 1
