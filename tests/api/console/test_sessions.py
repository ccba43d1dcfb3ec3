# SPDX-License-Identifier: Apache-2.0
"""Sessions of the console: a token that the browser gives once. No browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http import auth, sessions
from api.http.settings import from_environment
from dev.support.accounts import accounts_file, policy
from dev.support.http_api import HttpApi, broker, problem
from dev.support.loops import until
from schemas.errors import UnavailableError
from security.policy import AuthMode

PATH = "/console/session"
CLONE = {"program": "./routelake"}
ANYBODY = {"user": None, "mayRead": True, "mayWrite": True, "takesTokens": False, **CLONE}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[HttpApi]:
    found = HttpApi(
        tmp_path, policy=policy(AuthMode.ENFORCE), accounts=accounts_file(tmp_path), fold=False, clock_interval_s=3600.0
    )
    yield found
    found.close()


def log_in(api: HttpApi, user: str, **headers: str) -> str:
    """The cookie as a browser sends it."""
    answer = api.send("POST", PATH, json={"token": f"token-{user}"}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.headers["set-cookie"].split(";")[0]


def ask(api: HttpApi, method: str, path: str, cookie: str, **headers: str) -> httpx.Response:
    return api.send(method, path, headers={"cookie": cookie, **headers})


def standing(api: HttpApi, cookie: str = "", **headers: str) -> Any:
    return ask(api, "GET", PATH, cookie, **headers).json()


def test_a_session_may_what_its_token_may(api: HttpApi) -> None:
    assert standing(api) == {"user": None, "mayRead": False, "mayWrite": False, "takesTokens": True, **CLONE}
    reader, admin = log_in(api, "reader"), log_in(api, "admin")
    assert standing(api, reader) == {"user": "reader", "mayRead": True, "mayWrite": False, "takesTokens": True, **CLONE}
    assert standing(api, admin) == {"user": "admin", "mayRead": True, "mayWrite": True, "takesTokens": True, **CLONE}
    problem(api.get("/v1/topics"), 401, "unauthorized")
    assert ask(api, "GET", "/v1/topics", reader).is_success
    problem(ask(api, "DELETE", "/v1/topics/orders", reader), 403, "forbidden")
    assert api.register(broker(), headers={"cookie": admin}).is_success
    assert ask(api, "DELETE", "/v1/topics/orders", admin).is_success
    assert standing(api, admin, authorization="Bearer token-reader")["user"] == "reader", "what is sent counts"


def test_the_cookie_is_no_scripts_and_no_other_sites(api: HttpApi) -> None:
    answer = api.send("POST", PATH, json={"token": "token-reader"})
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert name.startswith("routelake-")
    assert set(attributes) == {"Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={sessions.SESSION_S}"}
    assert "token-reader" not in answer.headers["set-cookie"]
    cookie = name
    for site in ("same-site", "cross-site"):  # another port of this host, too
        problem(ask(api, "GET", "/v1/topics", cookie, **{"sec-fetch-site": site}), 401, "unauthorized")
        found = ask(api, "DELETE", "/v1/topics/orders", cookie, **{"sec-fetch-site": site})
        problem(found, 403, "cross-site")
        problem(ask(api, "POST", PATH, cookie, **{"sec-fetch-site": site}), 403, "cross-site")
    assert ask(api, "GET", "/v1/topics", cookie, **{"sec-fetch-site": "same-origin"}).is_success


@pytest.mark.parametrize(
    "other", ["a=b", 'prefs={"theme":"dark"}', "consent=yes no", "q[]=3", "z", "path=/", '"', "=", "a=\u00fc", ""]
)
def test_other_cookies_of_the_host_sign_nobody_out(api: HttpApi, other: str) -> None:
    session = log_in(api, "reader")
    for cookie in (f"{other}; {session}", f"{session}; {other}", f"{other};{session};{other}"):
        answer = api.send("GET", PATH, headers=[("cookie", cookie.encode("latin-1"))])
        assert answer.json()["user"] == "reader", cookie
    name, _, value = session.partition("=")
    assert standing(api, f"x{name}={value}; {name}x={value}")["user"] is None


def test_over_tls_the_cookie_is_for_tls_and_this_host_alone() -> None:
    kept = sessions.Sessions()
    scope: dict[str, Any] = {"scheme": "https", "server": ("ns", 8443), "headers": []}
    name, *attributes = kept.begin(scope, "x").split("; ")
    assert name.startswith("__Host-routelake-8443=")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    for found in ({"scheme": "http"}, {"server": ("ns", 8080)}):
        other = {**scope, **found, "headers": [(b"cookie", name.encode())]}
        kept.admit(other)
        assert len(other["headers"]) == 1
    own = {**scope, "headers": [(b"cookie", b"a=b; " + name.encode())]}
    kept.admit(own)
    assert own["headers"][-1] == (b"authorization", b"Bearer x")


def test_behind_tls_the_cookie_is_for_tls_and_this_host_alone(tmp_path: Path) -> None:
    """A proxy ends TLS, and says nothing of it; what a page at another port may set is no session then."""
    settings = from_environment({"ROUTELAKE_HTTP_TLS_IN_FRONT": "true", "ROUTELAKE_HTTP_TOKENS": "alice=of-alice"})
    api = HttpApi(tmp_path, fold=False, http=replace(settings, protect_reads=True))
    try:
        cookie = api.send("POST", PATH, json={"token": "of-alice"}).headers["set-cookie"]
        assert cookie.startswith("__Host-routelake-8080=")
        for part in ("; Secure", "; Path=/", "; HttpOnly", "; SameSite=Strict"):
            assert part in cookie
        assert "Domain" not in cookie
        session = cookie.split(";")[0]
        assert ask(api, "GET", "/v1/topics", session).is_success
        planted = session.removeprefix("__Host-")
        problem(ask(api, "GET", "/v1/topics", planted), 401, "unauthorized")
        assert ask(api, "GET", "/v1/topics", f"{planted}; {session}").is_success
    finally:
        api.close()


def test_a_token_that_is_nobodys_begins_nothing(api: HttpApi) -> None:
    for token in ("nonsense", "token-late", "", "a b", "\u00fc", None):
        answer = api.send("POST", PATH, json={"token": token})
        assert answer.status_code in (401, 422), (token, answer.text)
        assert "set-cookie" not in answer.headers


SCOPE: dict[str, Any] = {"scheme": "http", "server": ("ns", 8080), "headers": []}


def token_of(kept: sessions.Sessions, cookie: str) -> bytes | None:
    """The token that a request with this cookie is given."""
    scope = {**SCOPE, "headers": [(b"cookie", cookie.split(";")[0].encode())]}
    kept.admit(scope)
    return dict(scope["headers"]).get(b"authorization")


def test_workers_have_sessions_together(tmp_path: Path) -> None:
    one, other = (sessions.Sessions(tmp_path / "sessions") for _ in range(2))
    cookie, second = one.begin(SCOPE, "secret-1"), other.begin(SCOPE, "secret-2")
    for worker in (one, other, sessions.Sessions(tmp_path / "sessions")):  # the last one was started again
        assert token_of(worker, cookie) == b"Bearer secret-1"
        assert token_of(worker, second) == b"Bearer secret-2"
    other.end({**SCOPE, "headers": [(b"cookie", cookie.encode())]})
    assert (token_of(one, cookie), token_of(other, cookie)) == (None, None)
    assert token_of(one, second) == b"Bearer secret-2"


def test_who_has_the_folder_has_no_token_and_no_session(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    kept = sessions.Sessions(folder)
    cookie = kept.begin(SCOPE, "secret-1")
    assert folder.stat().st_mode & 0o777 == 0o700
    [file] = folder.iterdir()
    assert b"secret" not in file.read_bytes()
    assert file.name not in cookie
    name = cookie.split("=")[0]
    for forged in (file.name, "", "../../x", "\u00fc", "x" * 5000):
        assert token_of(kept, f"{name}={forged}") is None
    sealed = file.read_bytes()
    for damaged in (b"", sealed[:-1], bytes([sealed[0] ^ 1]) + sealed[1:]):
        file.write_bytes(damaged)
        assert token_of(kept, cookie) is None


def test_a_folder_is_bounded_and_may_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST", 2)
    folder = tmp_path / "sessions"
    kept = sessions.Sessions(folder)
    cookies = []
    for number in range(3):
        cookies.append(kept.begin(SCOPE, str(number)))
        for file in folder.iterdir():  # two may have been written in one tick of the clock
            os.utime(file, ns=(0, file.stat().st_mtime_ns - 1_000_000_000))
    assert [token_of(kept, cookie) for cookie in cookies] == [None, b"Bearer 1", b"Bearer 2"]
    shutil.rmtree(folder)
    assert token_of(kept, cookies[2]) is None
    with pytest.raises(UnavailableError, match="cannot keep sessions"):
        kept.begin(SCOPE, "x")


def test_it_ends_by_itself_by_the_user_and_with_the_account(
    api: HttpApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = (log_in(api, "reader") for _ in range(3))
    assert ask(api, "DELETE", PATH, one).status_code == 204
    problem(ask(api, "GET", "/v1/topics", one), 401, "unauthorized")
    assert ask(api, "GET", "/v1/topics", two).is_success
    log_in(api, "admin", cookie=two)
    problem(ask(api, "GET", "/v1/topics", two), 401, "unauthorized")
    assert ask(api, "GET", "/v1/topics", three).is_success
    four = log_in(api, "admin")
    (tmp_path / "acl.yml").write_text("accounts: [{accessKey: other, token: the-only-one-there-is}]")
    file = api.app.context.guard._access._file  # type: ignore[union-attr]
    assert file is not None
    until(file.check)
    api.app.context.guard._access.accounts = file.current  # type: ignore[union-attr]
    problem(ask(api, "GET", "/v1/topics", four), 401, "unauthorized")
    monkeypatch.setattr(sessions, "SESSION_S", 0)
    last = api.send("POST", PATH, json={"token": "the-only-one-there-is"}).headers["set-cookie"].split(";")[0]
    problem(ask(api, "GET", "/v1/topics", last), 401, "unauthorized")


def test_they_are_bounded(api: HttpApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST", 2)
    found = [log_in(api, "reader") for _ in range(3)]
    assert [ask(api, "GET", "/v1/topics", cookie).status_code for cookie in found] == [401, 200, 200]


def test_where_nobody_is_asked_everybody_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = HttpApi(tmp_path, fold=False, clock_interval_s=3600.0)
    try:
        assert standing(api) == ANYBODY
        monkeypatch.setattr(auth, "PROGRAM", "routelake")
        assert standing(api)["program"] == "routelake", "as a wheel has it"
        monkeypatch.undo()
        far = api.send("GET", PATH, peer=("192.0.2.7", 4711)).json()
        assert far == {**ANYBODY, "mayWrite": False}, "writes are taken from this machine only"
    finally:
        api.close()
