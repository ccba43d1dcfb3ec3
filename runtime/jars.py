# SPDX-License-Identifier: Apache-2.0
"""The JVM jars: pinned in jars.lock, downloaded once, checked, and kept in a cache.

Python packages come from requirements.lock, and JVM jars from here. ``jars.lock`` lists every jar with its SHA-256 and
size, grouped into sets:

=============  =======================================================================================
local-fs       the fold: Hadoop's local file system without a process for every chmod
delta          Spark SQL over Delta tables, without the jars that PySpark ships
s3a            Spark's access to S3, likewise: hadoop-aws and the parts of the AWS SDK that it uses
rocketmq       tests: a RocketMQ 5 broker, NameServer and mqadmin
rocketmq-test  tests: RocketMQ's own integration tests and their dependencies
rocketmq-4     tests: a RocketMQ 4.9 broker, NameServer and mqadmin
kafka          tests: Apache Kafka in KRaft mode
kafka-tools    tests: the administration commands of Apache Kafka, in addition to `kafka`
=============  =======================================================================================

The cache has the layout of a Maven repository, so a copy of the cache works on a machine without network. A file gets
its final name only after its checksum was verified, so a later start checks only names and sizes. The address of Maven
Central is in the Ivy jar inside PySpark. ``ROUTELAKE_MAVEN_URL`` (http, https or file) sets a mirror instead.

Commands::

    python -m runtime.jars ensure SET...   download missing jars, print the paths
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import http.client
import importlib.util
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from schemas.errors import SetupError

LOCK_FILE: Final = Path(__file__).with_name("jars.lock")
THREADS: Final = 8
TRIES: Final = 4
TIMEOUT_S: Final = 60
BACKOFF_S: Final = 1.0
CHUNK_BYTES: Final = 1 << 18

_IVY_RESOURCE: Final = "org/apache/ivy/core/settings/repository.properties"
_IVY_KEY: Final = "ivy.ibiblio.default.artifact.root"


class JarError(SetupError):
    """A set of jars cannot be provided. The message has the remedy."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of jars.lock.

    Attributes:
        coordinates: ``group:artifact:version`` or ``group:artifact:version:classifier``.
        sha256: Digest of the file, in hexadecimal.
        size_bytes: Size of the file, in bytes.
    """

    coordinates: str
    sha256: str
    size_bytes: int

    @property
    def path(self) -> str:
        """Path of the file in a Maven repository, relative to its root."""
        group, artifact, version, *classifier = self.coordinates.split(":")
        return "/".join([*group.split("."), artifact, version, "-".join([artifact, version, *classifier]) + ".jar"])

    @property
    def name(self) -> str:
        """Name of the file without its folder."""
        return self.path.rpartition("/")[2]


def read_lock(text: str) -> dict[str, list[Jar]]:
    """Parse the text of jars.lock into ``{set: [jar, ...]}``, in the file's order.

    Raises:
        JarError: A line is not ``set coordinates sha256 size_bytes``.
    """
    line_format = re.compile(r"(\S+) ([\w.-]+(?::[\w.-]+){2,3}) ([0-9a-f]{64}) ([0-9]+)")
    sets: dict[str, list[Jar]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        match = line_format.fullmatch(line)
        if match is None:
            raise JarError(
                f"{LOCK_FILE.name} line {number} is not 'set group:artifact:version sha256 size_bytes': {line!r}. "
                "Restore the file from git, or create it with 'python -m dev.jars_lock'."
            )
        set_name, coordinates, sha256, size = match.groups()
        sets.setdefault(set_name, []).append(Jar(coordinates, sha256, int(size)))
    return sets


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the jars. It may not exist yet."""
    if own := environ.get("ROUTELAKE_CACHE"):
        return Path(own) / "jars"
    xdg = environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "routelake" / "jars"


def maven_url(environ: Mapping[str, str] = os.environ) -> str:
    """The root of the Maven repository to download from, ending in a slash.

    Raises:
        JarError: The mirror's address has another scheme, or PySpark's Ivy jar has no address.
    """
    url = environ.get("ROUTELAKE_MAVEN_URL", "").strip()
    if not url:
        url = _central_from_pyspark()
    if urllib.parse.urlsplit(url).scheme not in {"http", "https", "file"}:
        raise JarError(f"ROUTELAKE_MAVEN_URL must be an http, https or file URL, not {url!r}.")
    return url.rstrip("/") + "/"


def _central_from_pyspark() -> str:
    home = pyspark_jars()
    for ivy in sorted(home.glob("ivy-*.jar")) if home else []:
        with zipfile.ZipFile(ivy) as archive:
            properties = archive.read(_IVY_RESOURCE).decode("latin-1")
        for line in properties.splitlines():
            key, _, value = line.partition("=")
            if key.strip() == _IVY_KEY:
                return value.strip()
    raise JarError(
        "No address of a Maven repository: the installed PySpark has no Ivy settings. "
        "Set ROUTELAKE_MAVEN_URL to the root of one."
    )


def pyspark_jars() -> Path | None:
    """The folder of jars inside the installed PySpark, or None if PySpark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "jars"


def ensure(set_name: str) -> list[Path]:
    """Return the paths of a set's jars. Download the missing ones first.

    Several processes may call this at once, also after one of them was killed. Progress goes to standard error.

    Args:
        set_name: Name of a set in jars.lock, such as ``local-fs``.

    Raises:
        JarError: A jar cannot be provided.
    """
    sets = read_lock(LOCK_FILE.read_text(encoding="utf-8"))
    if set_name not in sets:
        raise JarError(f"{LOCK_FILE.name} has no set {set_name!r}; it has: {', '.join(sets)}.")
    jars = sets[set_name]
    cache = cache_dir()
    if _missing(jars, cache):
        url = maven_url()
        with _cache_lock(cache):
            if missing := _missing(jars, cache):  # another process may have been faster
                _download_all(missing, cache, url, _Progress(set_name, missing))
    return [cache / jar.path for jar in jars]


def _missing(jars: list[Jar], cache: Path) -> list[Jar]:
    return [jar for jar in jars if _size(cache / jar.path) != jar.size_bytes]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


@contextmanager
def _cache_lock(cache: Path) -> Iterator[None]:
    """Hold the lock for writing into the cache. The system releases it if the process ends."""
    with _writing(cache):
        cache.mkdir(parents=True, exist_ok=True)
        handle = (cache / ".lock").open("a")
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """If a file operation on the cache fails, raise an error with the folder and the remedy."""
    try:
        yield
    except OSError as error:
        raise JarError(
            f"Cannot write {path}: {error.strerror or error}. "
            "Free some space, or set ROUTELAKE_CACHE to a folder that can be written."
        ) from error


def _download_all(jars: list[Jar], cache: Path, url: str, progress: _Progress) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(THREADS) as pool:
        largest_first = sorted(jars, key=lambda jar: -jar.size_bytes)
        tasks = [pool.submit(_download, jar, cache, url, progress, stop) for jar in largest_first]
        try:
            for task in tasks:
                task.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    progress.close()


def _download(jar: Jar, cache: Path, url: str, progress: _Progress, stop: threading.Event) -> None:
    """Download one jar into the cache: into NAME.part, then check, sync and rename."""
    target = cache / jar.path
    part = target.with_name(target.name + ".part")
    with _writing(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    while True:
        resumed = bool(_size(part))
        _fetch_with_retries(jar, part, url, progress, stop)
        if stop.is_set():
            return
        digest, size = digest_of(part), _size(part)
        if digest == jar.sha256:
            with _writing(target):
                part.replace(target)
            return
        part.unlink()
        if not resumed:  # a resumed file may have a wrong beginning: download it again from the start
            break
    raise JarError(
        f"{url}{jar.path} differs from the file in {LOCK_FILE.name}: sha256 {digest} of {size} bytes, expected "
        f"{jar.sha256} of {jar.size_bytes}. It was deleted. A proxy or mirror may answer with its own page. Open that "
        "address, then try again, or set ROUTELAKE_MAVEN_URL to another repository."
    )


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch_with_retries(jar: Jar, part: Path, url: str, progress: _Progress, stop: threading.Event) -> None:
    for attempt in range(1, TRIES + 1):
        try:
            _fetch(jar, part, url, progress, stop)
        except urllib.error.HTTPError as error:
            problem = f"{error.code} {error.reason}"
            final = error.code < 500 and error.code not in {408, 429}
        except (OSError, http.client.HTTPException) as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
            final = "CERTIFICATE_VERIFY_FAILED" in problem
        else:
            return
        if final or attempt == TRIES:
            raise JarError(
                f"Cannot download {url}{jar.path}: {problem}. The downloaded part is kept. Check the network, proxy "
                "variables (https_proxy, no_proxy) and the CA certificates (SSL_CERT_FILE), or set ROUTELAKE_MAVEN_URL "
                "to a mirror that this machine reaches; then try again."
            )
        stop.wait(BACKOFF_S * 2 ** (attempt - 1))
        if stop.is_set():
            return


def _fetch(jar: Jar, part: Path, url: str, progress: _Progress, stop: threading.Event) -> None:
    """Download the rest of the partial file, up to the pinned size."""
    have = _size(part) or 0
    if have > jar.size_bytes:
        part.unlink()
        have = 0
    if have == jar.size_bytes:
        progress.at(jar, have)
        return
    request = urllib.request.Request(url + jar.path)  # noqa: S310 - maven_url() admits http, https and file only
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
        if getattr(response, "status", None) != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0
        with _writing(part):
            file = part.open("ab" if have else "wb")
        with file:
            while have <= jar.size_bytes and not stop.is_set():
                chunk = response.read(CHUNK_BYTES)
                if not chunk:
                    break
                with _writing(part):
                    file.write(chunk)
                have += len(chunk)
                progress.at(jar, have)
            with _writing(part):
                file.flush()
                os.fsync(file.fileno())
    if have < jar.size_bytes and not stop.is_set():
        raise http.client.IncompleteRead(b"", jar.size_bytes - have)


class _Progress:
    """Progress on standard error: a bar on a terminal, otherwise a line for every quarter."""

    def __init__(self, set_name: str, jars: list[Jar], stream: IO[str] | None = None) -> None:
        self._label = f"jars {set_name}"
        self._total_bytes = sum(jar.size_bytes for jar in jars)
        self._done: dict[str, int] = {}
        self._stream = stream or sys.stderr
        self._tty = self._stream.isatty()
        self._lock = threading.Lock()
        self._started = self._drawn = time.monotonic()
        self._quarter = 0
        if not self._tty:
            self._write(f"{self._label}: downloading {len(jars)} files, {self._total_bytes / 1e6:.0f} MB\n")

    def at(self, jar: Jar, done_bytes: int) -> None:
        """Set the number of downloaded bytes of a jar."""
        with self._lock:
            self._done[jar.coordinates] = done_bytes
            done = sum(self._done.values())
            share = min(1.0, done / max(1, self._total_bytes))
            now = time.monotonic()
            if self._tty and now - self._drawn > 0.1:
                self._drawn = now
                bar = "#" * round(30 * share)
                self._write(f"\r{self._label} [{bar:<30}] {done / 1e6:.0f}/{self._total_bytes / 1e6:.0f} MB ")
            elif not self._tty and int(4 * share) > self._quarter and share < 1:
                self._quarter = int(4 * share)
                self._write(f"{self._label}: {100 * share:.0f} %\n")

    def close(self) -> None:
        """Report the end of the download."""
        took = f"{self._total_bytes / 1e6:.0f} MB in {time.monotonic() - self._started:.0f} s"
        self._write(f"\r{self._label}: {took}\033[K\n" if self._tty else f"{self._label}: {took}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def main(argv: list[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m runtime.jars", description="The JVM jars pinned in jars.lock.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("ensure", help="download what is missing, print the paths").add_argument("set", nargs="+")
    arguments = parser.parse_args(argv)
    try:
        for set_name in arguments.set:
            for path in ensure(set_name):
                sys.stdout.write(f"{path}\n")
    except JarError as error:
        sys.stderr.write(f"routelake: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
