# SPDX-License-Identifier: Apache-2.0
"""Client for ``GET /v1/...`` at a gateway or from tables, for `routelake history`.

For tables, the functions behind those paths are called in this process. The routes of `api.http` are not used, because
the import of FastAPI takes as long as the rest of a command.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from cli.data_options import LakePlace
from remoting.codec.frame import HTTP_IS_ELSEWHERE
from schemas.errors import RoutelakeError, SetupError

if TYPE_CHECKING:
    import httpx

    from lake.history.changelog import ChangesAsked
    from lake.history.history import History

Asked = Mapping[str, str]
"""Parameters of a request, as in a URL."""
Answer = dict[str, Any]
"""Decoded JSON of an answer."""
Get = Callable[[tuple[str, ...], Asked], Answer]
"""Function that returns the answer to a GET. The path is in parts, without ``/v1``. Raises RoutelakeError."""

_PAGE: Final = 1000
_TIMEOUT_S: Final = 120.0
_FOLD_HEALTH: Final = ("healthz", "fold")
_KINDS: Final = {"topics": "topic", "brokers": "broker group"}


class DiffPage(NamedTuple):
    """A page of differences, and the points in time that were compared."""

    before: dict[str, Any]
    after: dict[str, Any]
    differences: list[dict[str, Any]]


class Source:
    """Source of the history. All methods raise RoutelakeError.

    Args:
        connect: Function that returns a context for requests.
    """

    def __init__(self, connect: Callable[[], AbstractContextManager[Get]]) -> None:
        """Create a source. It sends no request yet."""
        self._connect = connect

    def changes(self, asked: Asked, page: int = _PAGE) -> Iterator[list[dict[str, Any]]]:
        """Return pages of changes, newest first."""
        return (found["changes"] for found in self._pages(("changes",), asked, page))

    def diff(self, asked: Asked, page: int = _PAGE) -> Iterator[DiffPage]:
        """Return pages of differences, at least one."""
        pages = self._pages(("diff",), asked, page)
        return (DiffPage(found["from"], found["to"], found["differences"]) for found in pages)

    def timeline(self, kind: str, name: str, asked: Asked) -> Iterator[list[dict[str, Any]]]:
        """Return pages of intervals of one topic (``topics``) or broker group (``brokers``), newest first.

        ``asked`` may have ``from`` and ``to``.
        """
        return (found["intervals"] for found in self._pages((kind, name, "timeline"), asked))

    def blame(self, topic: str, as_of: str) -> Answer:
        """Return the origin of each field of a topic's route."""
        with self._connect() as get:
            return get(("topics", topic, "blame"), {"as_of": as_of})

    def events_not_in_tables(self) -> int:
        """Return the number of events that are not in the tables yet. If only the tables are read, it is 0."""
        with self._connect() as get:
            return int(get(_FOLD_HEALTH, {})["lag"]["events"])

    def report(self, name: str, asked: Asked) -> Iterator[Answer]:
        """Return pages of a gateway's report, at least one."""
        return self._pages(("reports", name), asked)

    def _pages(self, path: tuple[str, ...], asked: Asked, page: int = _PAGE) -> Iterator[Answer]:
        with self._connect() as get:
            cursor: dict[str, str] = {}
            while True:
                found = get(path, {**asked, "limit": str(page), **cursor})
                yield found
                if found.get("nextCursor") is None:
                    return
                cursor = {"cursor": found["nextCursor"]}


def of_tables(place: LakePlace) -> Source:
    """Return a source for the tables in a folder or at a URL. routelake may run or not.

    Raises:
        SetupError: There are no tables, or the URL is unusable.
    """
    from lake.history.history import History

    if place.url:
        from lake.store import store_of

        store_of(place.url)
    elif not place.folder.is_dir():
        raise SetupError(f"there are no tables in {place.folder.parent}: the folder {place.folder} does not exist")
    get = partial(_from_tables, History(place.url or place.folder))
    return Source(lambda: nullcontext(get))


def of_gateway(address: str, token: str = "") -> Source:
    """Return a source for a running gateway.

    Args:
        address: Address as host:port, or a URL.
        token: Bearer token, or empty.
    """
    url = (address if "://" in address else f"http://{address}").rstrip("/")
    return Source(partial(_connected, url, {"authorization": f"Bearer {token}"} if token else {}))


def _from_tables(history: History, path: tuple[str, ...], asked: Asked) -> Answer:
    """Return the same answer as `api.http.routes_history`, from the same functions."""
    from lake.history import change_json as shown
    from lake.history.changelog import list_changes
    from lake.history.diff import diff
    from lake.history.provenance import topic_blame
    from lake.history.timeline import Window, broker_timeline, topic_timeline

    limit, cursor = int(asked.get("limit", _PAGE)), asked.get("cursor")
    match path:
        case ("healthz", "fold"):
            return {"lag": {"events": 0}}
        case ("changes",):
            changes = list_changes(history, _question(asked), limit=limit, cursor=cursor)
            return {"changes": list(map(shown.change_members, changes.changes)), "nextCursor": changes.next_cursor}
        case ("diff",):
            page = diff(history, _question(asked), limit=limit, cursor=cursor)
            return {
                "from": shown.point_members(page.before),
                "to": shown.point_members(page.after),
                "differences": list(map(shown.difference_members, page.differences)),
                "nextCursor": page.next_cursor,
            }
        case (kind, name, "timeline"):
            window = Window(asked.get("from"), asked.get("to"))
            ask = topic_timeline if kind == "topics" else broker_timeline
            found = ask(history, name, window, limit=limit, cursor=cursor)
            if not found.intervals and found.next_cursor is None and cursor is None:
                when = "" if window == Window() else " at the requested points in time"
                raise RoutelakeError(f"the history has no {_KINDS[kind]} {name!r}{when}")
            return {"intervals": list(map(shown.interval_members, found.intervals)), "nextCursor": found.next_cursor}
        case _:
            topic = path[1]
            blame = topic_blame(history, topic, asked["as_of"])
            if not blame.fields:
                raise RoutelakeError(f"topic {topic} had no route at epoch {blame.point.commit.epoch}")
            return {"asOf": shown.point_members(blame.point), "fields": list(map(shown.field_members, blame.fields))}


def _question(asked: Asked) -> ChangesAsked:
    import msgspec

    from lake.history.changelog import ChangesAsked
    from lake.history.filters import Filters

    return ChangesAsked(from_=asked.get("from"), to=asked.get("to"), filters=msgspec.convert(asked, Filters))


@contextlib.contextmanager
def _connected(url: str, headers: Mapping[str, str]) -> Iterator[Get]:
    import httpx

    try:
        # httpx reads SSL_CERT_FILE only with trust_env, which also takes proxies from the environment.
        authority = os.environ.get("SSL_CERT_FILE") if url.startswith("https:") else None
        verify = ssl.create_default_context(cafile=authority) if authority else True
        client = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False, verify=verify)
    except OSError as error:
        raise SetupError(f"SSL_CERT_FILE={authority} cannot be read: {error.strerror or error}") from error
    except (httpx.InvalidURL, ValueError) as error:
        raise SetupError(f"--http {url} is not an address: {error}") from error
    with client:
        yield partial(_from_gateway, client, url)


def _from_gateway(client: httpx.Client, url: str, path: tuple[str, ...], asked: Asked) -> Answer:
    import httpx

    where = "/healthz/fold" if path == _FOLD_HEALTH else "/v1/" + "/".join(quote(part, safe="") for part in path)
    try:
        answer = client.get(where, params=dict(asked))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise RoutelakeError(
                f"{url}: the certificate was not accepted: {error}. Set SSL_CERT_FILE to a PEM file of its authority"
            ) from error
        why = f"{url} does not answer: {str(error) or type(error).__name__}"
        raise RoutelakeError(f"{why}; name another gateway with --http, or the tables with --data-dir") from error
    found: Any = None
    with contextlib.suppress(ValueError):
        found = answer.json()
    if HTTP_IS_ELSEWHERE.encode() in answer.content:
        raise RoutelakeError(f"{url}: {HTTP_IS_ELSEWHERE}")
    if not isinstance(found, dict):
        raise RoutelakeError(f"{url} is not a routelake gateway: {where} is answered with status {answer.status_code}")
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise RoutelakeError(f"{url} requires an account. Set --http-token file:PATH, or ROUTELAKE_HTTP_TOKEN")
    if answer.status_code != httpx.codes.OK and path != _FOLD_HEALTH:  # 503: the fold is down, but the lag is there
        raise RoutelakeError(str(found.get("detail", f"status {answer.status_code}")))
    return found
