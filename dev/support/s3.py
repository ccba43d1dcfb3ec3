# SPDX-License-Identifier: Apache-2.0
"""An S3 server in a process of its own, as far as obstore and delta-rs ask: counts requests, may be slow, or a bad one.

`tests/e2e/test_object_store.py` tests a real server, versitygw.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

_PAGE: Final = 100
_COUNTS: Final = "-/requests"
_ROOT: Final = Path(__file__).parents[2]


class FakeS3:
    """Any bucket, by path. A process of its own: delta-rs asks while it keeps this interpreter's lock.

    Args:
        conditional: Whether it looks at the conditions of a PUT.
        delay_s: Before each answer: a round trip to a store that is far away.
    """

    def __init__(self, *, conditional: bool = True, delay_s: float = 0.0) -> None:
        self._options = [str(delay_s), str(int(conditional))]

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "dev.support.s3", *self._options]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the S3 server did not start"
        self.environment = environment(self.url)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()  # its end
        self._process.wait(30)
        self._process.stdout.close()

    def requests(self) -> Counter[str]:
        """Return the number of requests since the last call, by method; LIST for lists."""
        with urllib.request.urlopen(f"{self.url}/{_COUNTS}", timeout=30) as answer:
            return Counter(json.load(answer))


class _Objects:
    """Objects that the server holds: ``bucket/key`` to bytes and time of writing."""

    def __init__(self, delay_s: float, conditional: bool) -> None:
        self.delay_s, self.conditional = delay_s, conditional
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()

    def keys(self, prefix: str) -> list[str]:
        with self.lock:
            return sorted(key for key in self.objects if key.startswith(prefix))


def environment(url: str, access_key: str = "test", secret_key: str = "testtest") -> dict[str, str]:
    """Return the variables that name an S3 server."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@contextmanager
def fake_s3(monkeypatch: pytest.MonkeyPatch, *, conditional: bool = True, delay_s: float = 0.0) -> Iterator[FakeS3]:
    """One that this process finds."""
    with FakeS3(conditional=conditional, delay_s=delay_s) as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        yield s3


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    s3: _Objects

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _begin(self, method: str) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        path, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)
        with self.s3.lock:
            self.s3.requests[method] += 1
        if self.s3.delay_s:
            time.sleep(self.s3.delay_s)
        return path, query

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def do_PUT(self) -> None:
        body = self._body()
        path, _ = self._begin("PUT")
        with self.s3.lock:
            there = self.s3.objects.get(path)
            if self.s3.conditional:
                match = self.headers.get("If-Match")
                if self.headers.get("If-None-Match") == "*" and there is not None:
                    return self._refuse(412, "PreconditionFailed")
                if match is not None and there is None:
                    return self._refuse(404, "NoSuchKey")
                if match is not None and there is not None and _tag(there[0]) != match:
                    return self._refuse(412, "PreconditionFailed")
            self.s3.objects[path] = (body, time.time())
        self._answer(200, headers={"ETag": _tag(body)})
        return None

    def do_HEAD(self) -> None:
        self._get("HEAD")

    def do_GET(self) -> None:
        if self.path == f"/{_COUNTS}":
            with self.s3.lock:
                counts = json.dumps(self.s3.requests).encode()
                self.s3.requests.clear()
            return self._answer(200, counts)
        if "list-type" in self.path:
            return self._list()
        self._get("GET")
        return None

    def _get(self, method: str) -> None:
        path, _ = self._begin(method)
        with self.s3.lock:
            found = self.s3.objects.get(path)
        if found is None:
            return self._refuse(404, "NoSuchKey")
        data, written = found
        about = {"ETag": _tag(data), "Last-Modified": formatdate(written, usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if method == "HEAD":
            return self._answer(200, headers={"Content-Length": str(len(data)), **about})
        if asked is None:
            return self._answer(200, data, about)
        first = int(asked[1]) if asked[1] else max(0, len(data) - int(asked[2]))
        last = min(int(asked[2]) if asked[1] and asked[2] else len(data) - 1, len(data) - 1)
        span = f"bytes {first}-{last}/{len(data)}"
        return self._answer(206, data[first : last + 1], {"Content-Range": span, **about})

    def _list(self) -> None:
        path, query = self._begin("LIST")
        bucket = path.strip("/")
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        entries: list[str] = []
        folders: set[str] = set()
        next_token = last = ""
        for full in self.s3.keys(f"{bucket}/{prefix}"):
            key = full[len(bucket) + 1 :]
            if key <= after:
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            if len(entries) == _PAGE:
                next_token = last
                break
            with self.s3.lock:
                data, written = self.s3.objects.get(full, (b"", 0.0))
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(written))
            entries.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified><ETag>{escape(_tag(data))}</ETag>"
                f"<Size>{len(data)}</Size></Contents>"
            )
            last = key
        common = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders))
        token = f"<NextContinuationToken>{escape(next_token)}</NextContinuationToken>" if next_token else ""
        truncated = "true" if next_token else "false"
        body = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{token}{''.join(entries)}{common}</ListBucketResult>"
        self._answer(200, body.encode(), {"Content-Type": "application/xml"})

    def do_DELETE(self) -> None:
        path, _ = self._begin("DELETE")
        with self.s3.lock:
            self.s3.objects.pop(path, None)
        self._answer(204)

    def do_POST(self) -> None:
        body = self._body().decode()
        path, query = self._begin("POST")
        if "delete" not in query:
            return self._refuse(501, "NotImplemented")
        from xml.etree import ElementTree

        keys = [one.text or "" for one in ElementTree.fromstring(body).iter() if one.tag.endswith("Key")]
        with self.s3.lock:
            for key in keys:
                self.s3.objects.pop(f"{path.strip('/')}/{key}", None)
        gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode(), {"Content-Type": "application/xml"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def _serve(delay_s: float, conditional: bool) -> None:
    class Handler(_Handler):
        s3 = _Objects(delay_s, conditional)

    server = _Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()  # until who started it ends


if __name__ == "__main__":
    _serve(float(sys.argv[1]), sys.argv[2] == "1")
