# SPDX-License-Identifier: Apache-2.0
"""Where the answers of `routelake history` come from: a gateway over HTTP, or the tables alone.

Both give the same: JSON objects as HTTP has them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from cli.data_options import LakePlace
from remoting.codec.frame import HTTP_IS_ELSEWHERE
from schemas.errors import RoutelakeError, SetupError

if TYPE_CHECKING:
    import httpx

    from lake.history.changelog import ChangesAsked

Asked = Mapping[str, str]
"""Parameters as `GET /v1/changes` and `GET /v1/diff` have them."""

_PAGE: Final = 1000
_TIMEOUT_S: Final = 120.0
_KINDS: Final = {"topics": "topic", "brokers": "broker group"}


class DiffPage(NamedTuple):
    """A page of differences, and the moments that were compared."""

    before: dict[str, Any]
    after: dict[str, Any]
    differences: list[dict[str, Any]]


class Source(Protocol):
    """Answers questions about the past."""

    def changes(self, asked: Asked, page: int = _PAGE) -> Iterator[list[dict[str, Any]]]:
        """Pages of changes, newest first. Raises RoutelakeError."""

    def diff(self, asked: Asked, page: int = _PAGE) -> Iterator[DiffPage]:
        """Pages of differences; at least one. Raises RoutelakeError."""

    def timeline(self, kind: str, name: str, asked: Asked) -> Iterator[list[dict[str, Any]]]:
        """Pages of intervals of one of ``topics`` or ``brokers``, newest first. Raises RoutelakeError.

        ``asked`` may have ``from`` and ``to``.
        """

    def blame(self, topic: str, as_of: str) -> dict[str, Any]:
        """As `GET /v1/topics/{topic}/blame`. Raises RoutelakeError."""


class LakeSource:
    """The tables in a folder or at a URL, beside a running routelake or without one."""

    def __init__(self, place: LakePlace) -> None:
        """Nothing is read yet.

        Raises:
            SetupError: There are no tables, or the URL is unusable.
        """
        from lake.history.history import History

        if place.url:
            from lake.store import store_of

            store_of(place.url)
        elif not place.folder.is_dir():
            raise SetupError(f"{place.folder.parent} holds no tables: there is no {place.folder}")
        self._history = History(place.url or place.folder)

    def changes(self, asked: Asked, page: int = _PAGE) -> Iterator[list[dict[str, Any]]]:
        """See `Source`."""
        from lake.history.change_json import change_members
        from lake.history.changelog import list_changes

        question, cursor = _question(asked), None
        while True:
            found = list_changes(self._history, question, limit=page, cursor=cursor)
            yield list(map(change_members, found.changes))
            cursor = found.next_cursor
            if cursor is None:
                return

    def diff(self, asked: Asked, page: int = _PAGE) -> Iterator[DiffPage]:
        """See `Source`."""
        from lake.history.change_json import cut_members, difference_members
        from lake.history.diff import diff

        question, cursor = _question(asked), None
        while True:
            found = diff(self._history, question, limit=page, cursor=cursor)
            before, after = cut_members(found.before), cut_members(found.after)
            yield DiffPage(before, after, list(map(difference_members, found.differences)))
            cursor = found.next_cursor
            if cursor is None:
                return

    def timeline(self, kind: str, name: str, asked: Asked) -> Iterator[list[dict[str, Any]]]:
        """See `Source`."""
        from lake.history.change_json import interval_members
        from lake.history.timeline import Window, broker_timeline, topic_timeline

        window = Window(asked.get("from"), asked.get("to"))
        ask, cursor = topic_timeline if kind == "topics" else broker_timeline, None
        while True:
            found = ask(self._history, name, window, limit=_PAGE, cursor=cursor)
            if not found.intervals and found.next_cursor is None and cursor is None:
                when = "was at no moment asked for" if asked else "never was"
                raise RoutelakeError(f"there {when} a {_KINDS[kind]} {name!r}")
            yield list(map(interval_members, found.intervals))
            cursor = found.next_cursor
            if cursor is None:
                return

    def blame(self, topic: str, as_of: str) -> dict[str, Any]:
        """See `Source`."""
        from lake.history.change_json import cut_members, field_members
        from lake.history.provenance import topic_blame

        found = topic_blame(self._history, topic, as_of)
        if not found.fields:
            raise RoutelakeError(f"topic {topic} had no route at epoch {found.moment.commit.epoch}")
        return {"asOf": cut_members(found.moment), "fields": list(map(field_members, found.fields))}


class HttpSource:
    """A running gateway.

    Args:
        address: host:port, or a URL.
        token: Bearer token; empty for none.
    """

    def __init__(self, address: str, token: str = "") -> None:
        """Nothing is asked yet."""
        url = address if "://" in address else f"http://{address}"
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}

    def changes(self, asked: Asked, page: int = _PAGE) -> Iterator[list[dict[str, Any]]]:
        """See `Source`."""
        for found in self._pages("/v1/changes", asked, page):
            yield found["changes"]

    def diff(self, asked: Asked, page: int = _PAGE) -> Iterator[DiffPage]:
        """See `Source`."""
        for found in self._pages("/v1/diff", asked, page):
            yield DiffPage(found["from"], found["to"], found["differences"])

    def timeline(self, kind: str, name: str, asked: Asked) -> Iterator[list[dict[str, Any]]]:
        """See `Source`."""
        for found in self._pages(f"/v1/{kind}/{quote(name, safe='')}/timeline", asked, _PAGE):
            yield found["intervals"]

    def blame(self, topic: str, as_of: str) -> dict[str, Any]:
        """See `Source`."""
        with self._client() as client:
            return self._get(client, f"/v1/topics/{quote(topic, safe='')}/blame", {"as_of": as_of})

    def report(self, name: str, asked: Asked) -> Iterator[dict[str, Any]]:
        """Pages of `GET /v1/reports/{name}`; at least one. Raises RoutelakeError."""
        return self._pages(f"/v1/reports/{name}", asked, _PAGE)

    def _pages(self, path: str, asked: Asked, page: int) -> Iterator[dict[str, Any]]:
        with self._client() as client:
            cursor: dict[str, str] = {}
            while True:
                found = self._get(client, path, {**asked, "limit": str(page), **cursor})
                yield found
                if found.get("nextCursor") is None:
                    return
                cursor = {"cursor": found["nextCursor"]}

    def _client(self) -> httpx.Client:
        import httpx

        try:
            return httpx.Client(base_url=self._url, headers=self._headers, timeout=_TIMEOUT_S, trust_env=False)
        except (httpx.InvalidURL, ValueError) as error:
            raise SetupError(f"--http {self._url} is no address: {error}") from error

    def _get(self, client: httpx.Client, path: str, parameters: Asked) -> dict[str, Any]:
        import httpx

        try:
            answer = client.get(path, params=dict(parameters))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = f"{self._url} does not answer: {str(error) or type(error).__name__}"
            raise RoutelakeError(f"{why}; name another gateway with --http, or the tables with --data-dir") from error
        found: Any = None
        with contextlib.suppress(ValueError):
            found = answer.json()
        if HTTP_IS_ELSEWHERE.encode() in answer.content:
            raise RoutelakeError(f"{self._url}: {HTTP_IS_ELSEWHERE}")
        if not isinstance(found, dict):
            raise RoutelakeError(f"{self._url} is no routelake: {path} is answered with status {answer.status_code}")
        if answer.status_code != httpx.codes.OK:
            raise RoutelakeError(str(found.get("detail", f"status {answer.status_code}")))
        return found


def _question(asked: Asked) -> ChangesAsked:
    from lake.history.changelog import ChangesAsked
    from lake.history.filters import Filters

    names = {"brokerName": "broker_name", "tableName": "table_name"}
    filters = {names.get(name, name): value for name, value in asked.items() if name not in ("from", "to")}
    return ChangesAsked(from_=asked.get("from"), to=asked.get("to"), filters=Filters(**filters))
