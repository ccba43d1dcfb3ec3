# SPDX-License-Identifier: Apache-2.0
"""Objects of a lake in an object store: S3, Google Cloud Storage, Azure, or a store with one of their protocols.

A thin layer over obstore. The lake needs only whole objects, lists in order of names, and conditional PUTs. A PUT must
be able to fail if the object exists (``If-None-Match: *``), or if it is not the one that was read (``If-Match``). The
first condition alone ensures one writer; see `lake.publisher`.

A PUT with a lost answer is repeated. If the first one succeeded, the store refuses the repetition. So after a refusal,
`Store` compares the object in the store with its own bytes. Credentials, region and endpoint come from the usual
environment (``AWS_...``, ``GOOGLE_...``, ``AZURE_...``), from files that it names, or from the machine's role.

delta-rs reads the keys of a named profile in AWS's shared credentials file, and obstore does not. So this module reads
the keys from the file once and sets them in the environment, and both libraries use the same keys. If the keys come
from elsewhere (SSO, a role, a program), AWS's own tool exports them.

Source: AWS SDKs and Tools Reference Guide, "Shared config and credentials files".
"""

from __future__ import annotations

import configparser
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from schemas.errors import SetupError, UnavailableError, one_line

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore


_KEYS: Final = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
}


def profile_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with the keys and region of an AWS profile.

    Args:
        environ: Present environment. The result is empty if it has keys already, or names neither AWS_PROFILE nor
            AWS_SHARED_CREDENTIALS_FILE.

    Raises:
        SetupError: The profile is missing or has no keys.
    """
    named = "AWS_PROFILE" in environ or "AWS_SHARED_CREDENTIALS_FILE" in environ
    if "AWS_ACCESS_KEY_ID" in environ or not named:
        return {}
    profile = environ.get("AWS_PROFILE", "default")
    file = Path(environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    config = Path(environ.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser()
    says = _section(file, profile) | _section(config, profile if profile == "default" else f"profile {profile}")
    found = {variable: says[key] for key, variable in _KEYS.items() if key in says}
    if not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= found.keys():
        raise SetupError(
            f"{file} has no keys of AWS's profile {profile}. If the keys come from SSO or a role, run: "
            f'eval "$(aws configure export-credentials --profile {profile} --format env)"'
        )
    if "region" in says and "AWS_REGION" not in environ and "AWS_DEFAULT_REGION" not in environ:
        found["AWS_REGION"] = says["region"]
    return found


def _section(file: Path, name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, OSError, ValueError) as error:
        raise SetupError(f"{file} cannot be read: {type(error).__name__}.") from error
    return dict(parser[name]) if parser.has_section(name) else {}


SCHEMES: Final = ("s3://", "gs://", "az://")

PART: Final = ".part"
"""Suffix of the name of a file during its download."""

AT_ONCE: Final = 16
"""Maximum number of parallel requests. Round trips take most of the time."""

_TIMEOUT: Final = timedelta(seconds=20)
_CONNECT_TIMEOUT: Final = timedelta(seconds=5)
_RETRY_FOR: Final = timedelta(seconds=15)
"""A failed batch is repeated, and a gateway continues with its present view, so longer waits are of no use."""
_TRIES: Final = 5

_ALLOW_HTTP: Final = ("AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP", "AZURE_ALLOW_HTTP")
"""Variables that allow plain HTTP. delta-rs reads them, too."""

T = TypeVar("T")
R = TypeVar("R")


class StoreError(OSError):
    """A request to the store failed. A later try may succeed."""


class StoreRefusedError(StoreError):
    """The store refused a request: authentication or permission failed."""


class TakenError(Exception):
    """The store has another object at this path."""


class Found(NamedTuple):
    """One object of a list. ``modified`` is a time of the store's clock."""

    path: str
    size_bytes: int
    modified: datetime


class Tag(NamedTuple):
    """Version identifier of an object: ETag on S3 and Azure, generation on Google Cloud Storage."""

    e_tag: str | None
    version: str | None


class Tagged(NamedTuple):
    """An object's bytes and tag."""

    data: bytes
    tag: Tag


class Store:
    """The objects below one URL. Paths are relative to it. Thread-safe.

    Args:
        url: URL, for messages.
        store: Store of obstore with the prefix of the URL.
    """

    def __init__(self, url: str, store: ObjectStore) -> None:
        self.url = url.rstrip("/")
        self._store = store
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="store")

    def get(self, path: str) -> bytes:
        """Read a whole object. Raises FileNotFoundError, StoreError."""
        return self._get(path).data

    def find(self, path: str) -> Tagged | None:
        """Read a whole object and its tag. None without such an object. Raises StoreError."""
        try:
            return self._get(path)
        except FileNotFoundError:
            return None

    def _get(self, path: str) -> Tagged:
        import obstore

        with self._errors("GET", path):
            found = obstore.get(self._store, path)
            return Tagged(bytes(found.bytes()), Tag(found.meta["e_tag"], found.meta["version"]))

    def fetch(self, path: str, target: Path) -> None:
        """Download an object to a file, whole or not at all. Raises FileNotFoundError, StoreError, OSError."""
        import obstore

        temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}{PART}")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._errors("GET", path), temporary.open("wb") as file:
                for part in obstore.get(self._store, path):
                    file.write(part)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def put(self, path: str, data: bytes | Path) -> None:
        """Put an object without a condition. Raises StoreError, or OSError for a file that cannot be read."""
        import obstore

        with self._errors("PUT", path):
            obstore.put(self._store, path, data)

    def put_new(self, path: str, data: bytes | Path) -> Tag:
        """Put an object if the path is free or has the same bytes. Returns the tag of the object.

        Raises:
            TakenError: The store has other bytes at this path.
            StoreError: The request failed. The store may have the object.
            OSError: The file cannot be read.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        data = data.read_bytes() if isinstance(data, Path) else data
        for _ in range(_TRIES):
            try:
                with self._errors("PUT", path):
                    done = obstore.put(self._store, path, data, mode="create")
                return Tag(done["e_tag"], done["version"])
            except (AlreadyExistsError, PreconditionError):
                there = self.find(path)
            if there is not None and there.data == data:
                return there.tag
            if there is not None:
                raise TakenError(f"{self.url}/{path}")
            # Two conflicting requests, and the store refused both (409): try again
        raise StoreError(f"{self.url}/{path} can be neither written nor read")

    def replace(self, path: str, data: bytes, tag: Tag) -> Tag:
        """Replace the object with this tag. Returns the new tag.

        Raises:
            TakenError: The object has another tag, or is gone.
            StoreError: The request failed. The store may have the new object.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        known: UpdateVersion = {}
        if tag.e_tag is not None:
            known["e_tag"] = tag.e_tag
        if tag.version is not None:
            known["version"] = tag.version
        try:
            with self._errors("PUT", path):
                done = obstore.put(self._store, path, data, mode=known)
            return Tag(done["e_tag"], done["version"])
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            there = self.find(path)
        if there is not None and there.data == data:
            return there.tag  # the first try succeeded, and its answer was lost
        raise TakenError(f"{self.url}/{path}")

    def listed(self, folder: str, after: str | None = None) -> Iterator[Found]:
        """List objects below a folder in order of their names, only those after a path. Raises StoreError."""
        import obstore

        with self._errors("LIST", folder):
            for chunk in obstore.list(self._store, folder, offset=after, chunk_size=1000):
                for one in chunk:
                    yield Found(one["path"], one["size"], one["last_modified"])

    def delete(self, paths: list[str]) -> None:
        """Delete objects. Missing objects are no error. Raises StoreError."""
        import obstore

        if paths:
            with self._errors("DELETE", paths[0]):
                obstore.delete(self._store, paths)

    def side_by_side(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Call `work` for each item, in parallel. The first error is raised after all calls have ended."""
        started = [self._threads.submit(work, item) for item in items]
        for one in started:
            one.exception()
        return [one.result() for one in started]

    @contextmanager
    def _errors(self, what: str, path: str) -> Iterator[None]:
        """Convert errors of obstore to StoreError, as one line without obstore's debug output."""
        from obstore.exceptions import (
            AlreadyExistsError,
            BaseError,
            PermissionDeniedError,
            PreconditionError,
            UnauthenticatedError,
        )

        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise
        except BaseError as error:
            refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
            said = str(error).partition("\n\nDebug source")[0]
            kind = StoreRefusedError if refused else StoreError
            raise kind(f"{what} {self.url}/{path}: {' '.join(said.split())}") from error


@lru_cache
def store_of(url: str) -> Store:
    """The one store of this process for a URL. Also accepts ``file://``, which only readers use."""
    if url.startswith("file://"):
        from obstore.store import LocalStore

        return Store(url, LocalStore(url.removeprefix("file://")))
    return open_store(url)


def open_store(url: str) -> Store:
    """Open the store at a URL, without a request.

    Raises:
        SetupError: The URL or the environment variables are unusable, or obstore is not installed.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise SetupError("a lake at a URL needs obstore: pip install 'routelake[object-store]'.") from error
    if not url.startswith(SCHEMES) or not url.partition("://")[2].strip("/"):
        raise SetupError(f"--lake {url}: a folder, or a URL that begins with {', '.join(SCHEMES)} and names a bucket.")
    if url.startswith("s3://"):
        os.environ.update(profile_keys(os.environ))
    if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://") and "AWS_ALLOW_HTTP" not in os.environ:
        raise SetupError(f"--lake {url}: AWS_ENDPOINT_URL is plain HTTP. If that is intended, set AWS_ALLOW_HTTP=true.")
    plain_http = any(os.environ.get(name, "").lower() in ("true", "1") for name in _ALLOW_HTTP)
    try:
        store = from_url(
            url.rstrip("/"),
            client_options={"timeout": _TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT, "allow_http": plain_http},
            retry_config={"max_retries": _TRIES, "retry_timeout": _RETRY_FOR},
        )
    except (BaseError, ValueError) as error:
        said = " ".join(str(error).partition("\n\nDebug source")[0].split())
        raise SetupError(
            f"--lake {url}: {said}. See docs/how-to/operate/object-store.md for the environment variables."
        ) from error
    return Store(url, store)


def probe(store: Store) -> None:
    """Check that the store can be written and obeys the conditions of a PUT.

    Raises:
        SetupError: The store ignores a condition, so that two folds could write one version of a table unnoticed. Or
            the store refuses writes, or the bucket is missing.
        UnavailableError: The store cannot be reached. A later try may succeed.
    """
    path = f".probe-{uuid.uuid4().hex}"
    try:
        tag = store.put_new(path, b"1")
        try:
            with_condition = _is_refused(store, path, tag)
        finally:
            store.delete([path])
    except (FileNotFoundError, StoreRefusedError) as error:
        raise SetupError(
            f"{store.url} cannot be written: {one_line(error)}. Check that the bucket exists and that the environment "
            "variables are right (docs/how-to/operate/object-store.md)."
        ) from error
    except (OSError, TakenError) as error:
        raise UnavailableError(f"{store.url} cannot be written: {one_line(error)}") from error
    if not with_condition:
        raise SetupError(
            f"{store.url}: this object store ignores If-None-Match or If-Match. routelake needs conditional PUT, so "
            "that two folds cannot commit the same version. Choose a store that has it "
            "(docs/how-to/operate/object-store.md)."
        )


def _is_refused(store: Store, path: str, tag: Tag) -> bool:
    """Return True if the store checks both conditions. The object at ``path`` has the bytes ``1`` and this tag."""
    try:
        store.put_new(path, b"2")
    except TakenError:
        pass
    else:
        return False
    newer = store.replace(path, b"3", tag)
    try:
        store.replace(path, b"4", tag)
    except TakenError:
        return newer != tag and store.get(path) == b"3"
    return False
