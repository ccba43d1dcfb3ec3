# SPDX-License-Identifier: Apache-2.0
"""runtime.jars against a small Maven repository on this machine that can be made to misbehave."""

from __future__ import annotations

import hashlib
import http.server
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from runtime import jars


@dataclass
class Repository:
    """What the server has, how it behaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""
    ignores_ranges: bool = False
    drop_after: list[int] = field(default_factory=list)  # bytes after which each next answer breaks off
    stall_after: int | None = None

    def add(self, coordinates: str, content: bytes) -> str:
        """Offer a jar; returns its line for jars.lock."""
        jar = jars.Jar(coordinates, hashlib.sha256(content).hexdigest(), len(content))
        self.files["/" + jar.path] = content
        return f"set {coordinates} {jar.sha256} {jar.size_bytes}\n"


class Handler(http.server.BaseHTTPRequestHandler):
    repository: Repository

    def do_GET(self) -> None:
        here = self.repository
        wanted = self.headers.get("Range")
        here.requests.append((self.path, wanted))
        content = here.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and not here.ignores_ranges else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if here.stall_after is not None:
            self.wfile.write(content[start : here.stall_after])
            time.sleep(30)
        elif here.drop_after:
            self.wfile.write(content[start : start + here.drop_after.pop(0)])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.wfile.write(content[start:])

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    here = Repository()
    handler = type("BoundHandler", (Handler,), {"repository": here})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    here.url = f"http://127.0.0.1:{server.server_port}/"
    monkeypatch.setenv("ROUTELAKE_MAVEN_URL", here.url)
    monkeypatch.setenv("ROUTELAKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(jars, "LOCK_FILE", tmp_path / "jars.lock")
    monkeypatch.setattr(jars, "BACKOFF_S", 0.01)
    yield here
    server.shutdown()
    server.server_close()


def pin(*lines: str) -> None:
    jars.LOCK_FILE.write_text("# comment\n\n" + "".join(lines))


def files_in_cache() -> set[str]:
    return {path.name for path in jars.cache_dir().rglob("*") if path.is_file()} - {".lock"}


CONTENT = bytes(range(256)) * 4096  # 1 MiB


def test_a_set_is_downloaded_once_and_found_again_without_the_network(repository: Repository) -> None:
    pin(repository.add("g.h:a:1.0", CONTENT), repository.add("g.h:b:2.0:linux-x86_64", b"b" * 10))
    first = jars.ensure("set")
    assert [path.name for path in first] == ["a-1.0.jar", "b-2.0-linux-x86_64.jar"]
    assert first[0].read_bytes() == CONTENT
    assert files_in_cache() == {path.name for path in first}
    assert len(repository.requests) == 2
    assert jars.ensure("set") == first
    assert len(repository.requests) == 2


def test_a_download_goes_on_where_an_earlier_one_stopped(repository: Repository) -> None:
    pin(repository.add("g:a:1", CONTENT))
    part = jars.cache_dir() / "g/a/1/a-1.jar.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT[:1000])
    (path,) = jars.ensure("set")
    assert path.read_bytes() == CONTENT
    assert repository.requests == [("/g/a/1/a-1.jar", "bytes=1000-")]
    assert not part.exists()


@pytest.mark.parametrize("ignores_ranges", [False, True])
@pytest.mark.parametrize("old", [b"rubbish", b"rubbish" * 1_000_000, CONTENT[:-1] + b"?", CONTENT[:5]])
def test_whatever_lies_in_the_partial_file_the_result_is_right(
    repository: Repository, old: bytes, ignores_ranges: bool
) -> None:
    repository.ignores_ranges = ignores_ranges
    pin(repository.add("g:a:1", CONTENT))
    part = jars.cache_dir() / "g/a/1/a-1.jar.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(old)
    (path,) = jars.ensure("set")
    assert path.read_bytes() == CONTENT
    assert files_in_cache() == {"a-1.jar"}


def test_a_broken_connection_is_tried_again_from_where_it_broke(repository: Repository) -> None:
    pin(repository.add("g:a:1", CONTENT))
    repository.drop_after = [300_000, 0, 300_000]
    (path,) = jars.ensure("set")
    assert path.read_bytes() == CONTENT
    assert len(repository.requests) == jars.TRIES
    assert repository.requests[0][1] is None
    assert repository.requests[-1][1] == "bytes=600000-"


def test_a_truncated_file_in_the_cache_is_replaced(repository: Repository) -> None:
    pin(repository.add("g:a:1", CONTENT))
    (path,) = jars.ensure("set")
    path.write_bytes(CONTENT[:10])
    assert jars.ensure("set")[0].read_bytes() == CONTENT


@pytest.mark.parametrize("sent", [b"x" * len(CONTENT), b"x" * (2 * len(CONTENT))])
def test_other_content_than_pinned_is_refused_and_removed(repository: Repository, sent: bytes) -> None:
    line = repository.add("g:a:1", CONTENT)
    repository.add("g:a:1", sent)
    pin(line)
    with pytest.raises(jars.JarError, match=r"expected [0-9a-f]{64}.*deleted.*ROUTELAKE_MAVEN_URL"):
        jars.ensure("set")
    assert files_in_cache() == set()


def test_shorter_content_than_pinned_is_a_failed_download(repository: Repository) -> None:
    line = repository.add("g:a:1", CONTENT)
    repository.add("g:a:1", CONTENT[:100])
    pin(line)
    with pytest.raises(jars.JarError, match="Cannot download"):
        jars.ensure("set")
    assert files_in_cache() <= {"a-1.jar.part"}


def test_a_file_that_the_repository_lacks_is_not_asked_for_twice(repository: Repository) -> None:
    pin(repository.add("g:a:1", CONTENT))
    repository.files.clear()
    with pytest.raises(jars.JarError, match=r"a-1\.jar: 404 .*ROUTELAKE_MAVEN_URL"):
        jars.ensure("set")
    assert len(repository.requests) == 1


def test_an_unreachable_repository_says_what_to_look_at(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(repository.add("g:a:1", CONTENT))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ROUTELAKE_MAVEN_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(jars.JarError, match="https_proxy"):
            jars.ensure("set")


def test_a_folder_can_be_the_mirror(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(repository.add("g:a:1", CONTENT))
    jars.ensure("set")
    monkeypatch.setenv("ROUTELAKE_MAVEN_URL", jars.cache_dir().as_uri())
    monkeypatch.setenv("ROUTELAKE_CACHE", str(tmp_path / "other"))
    (path,) = jars.ensure("set")
    assert path.read_bytes() == CONTENT
    assert len(repository.requests) == 1


def test_concurrent_starts_download_each_file_once(repository: Repository) -> None:
    pin(*(repository.add(f"g:a{i}:1", CONTENT[i:]) for i in range(10)))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(jars.ensure, ["set"] * 4))
    assert all(result == results[0] for result in results)
    assert len(repository.requests) == 10


def test_a_killed_download_is_resumed_by_the_next_start(repository: Repository) -> None:
    pin(repository.add("g:a:1", CONTENT))
    repository.stall_after = 600_000
    code = f"from runtime import jars; from pathlib import Path; jars.LOCK_FILE = Path({str(jars.LOCK_FILE)!r}); "
    child = subprocess.Popen([sys.executable, "-c", code + "jars.ensure('set')"], cwd=ROOT, stderr=subprocess.DEVNULL)
    part = jars.cache_dir() / "g/a/1/a-1.jar.part"
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size >= 262_144):
        assert child.poll() is None, "it ended before it had a part of the jar"
        assert time.monotonic() < deadline, f"{part} does not grow"
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    had = part.stat().st_size
    repository.stall_after = None
    assert jars.ensure("set")[0].read_bytes() == CONTENT
    assert repository.requests[1:] == [("/g/a/1/a-1.jar", f"bytes={had}-")]


def test_a_cache_that_cannot_be_written_is_named(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(repository.add("g:a:1", CONTENT))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROUTELAKE_CACHE", str(tmp_path / "file"))
    with pytest.raises(jars.JarError, match="ROUTELAKE_CACHE"):
        jars.ensure("set")


def test_an_unknown_set_is_answered_with_the_known_ones(repository: Repository) -> None:
    pin(repository.add("g:a:1", CONTENT))
    with pytest.raises(jars.JarError, match=r"no set 'nope'; it has: set\."):
        jars.ensure("nope")


@pytest.mark.parametrize(
    "line", ["set g:a:1", "set g:a ab 1", "set g:a:1 " + "a" * 63 + " 1", "set ../g:a:1 " + "a" * 64]
)
def test_a_malformed_line_of_the_lock_is_named(line: str) -> None:
    with pytest.raises(jars.JarError, match="line 2 "):
        jars.read_lock("# one\n" + line)


def test_the_command_prints_paths_or_the_error(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    pin(repository.add("g:a:1", CONTENT))
    assert jars.main(["ensure", "set"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{jars.cache_dir()}/g/a/1/a-1.jar\n"
    assert err.startswith("jars set: downloading 1 files, 1 MB\n")
    assert jars.main(["ensure", "nope"]) == 2
    assert capsys.readouterr().err.startswith("routelake: jars.lock has no set")


def test_the_repository_is_the_one_that_pyspark_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROUTELAKE_MAVEN_URL", raising=False)
    url = jars.maven_url()
    assert url.startswith("https://") and url.endswith("/")
    with pytest.raises(jars.JarError, match="must be an http, https or file URL"):
        jars.maven_url({"ROUTELAKE_MAVEN_URL": "ftp://mirror"})
    assert jars.maven_url({"ROUTELAKE_MAVEN_URL": "http://mirror/maven"}) == "http://mirror/maven/"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ROUTELAKE_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own/jars"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/routelake/jars"),
        ({}, str(Path.home() / ".cache/routelake/jars")),
    ],
)
def test_where_the_cache_is(environ: dict[str, str], expected: str) -> None:
    assert str(jars.cache_dir(environ)) == expected
