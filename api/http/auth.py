# SPDX-License-Identifier: Apache-2.0
"""Authentication and authorization over HTTP, and the sender's name in the history.

Without accounts (`--auth`), tokens decide. If tokens are configured, a write needs one of them. If none are configured,
a write must come from this machine, from a program that sends its own requests: a write through a proxy is never local
(`_foreign`, `api.http.local_peers`). Reads are open, unless `HttpSettings.protect_reads` is set.

With accounts, the users are the same as over remoting. They authenticate by bearer tokens or client certificates, and
each operation needs its role (`security.roles.OPERATIONS`). The holder of a token of `HttpSettings.tokens` is an admin.
If the mode lets requests without permission pass (`audit`), the rules without accounts apply to them.

Requests from pages of other sites were refused earlier (`api.http.csrf`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from api.http.csrf import SAFE_METHODS
from api.http.local_peers import LocalPeers
from api.http.naming_rules import is_loopback
from api.http.openapi import UNDESCRIBED, operation_of
from api.http.problems import CHALLENGE, FORBIDDEN, UNAUTHORIZED, Problem
from api.http.proofs import PROVEN, SESSION_PATH, Proofs
from api.http.settings import HttpSettings
from remoting.codec.bounds import address_of
from remoting.server.channel import host_and_port
from runtime.version import PROGRAM
from schemas.codes import RequestCode
from schemas.errors import SetupError
from schemas.events import Actor
from security.accounts import digest_of, written_digest
from security.admission.access_control import Refused
from security.admission.admission import Admission, Sender
from security.admission.quotas import peer_name
from security.identity import Identity, Unproven
from security.oidc import is_jwt
from security.policy import AuthMode, authorize
from security.roles import NEEDED, OPERATIONS, Role

_SEND: Final = "send Authorization: Bearer <token>"
_NOT_KNOWN: Final = "that token is not known here"
_ANONYMOUS: Final = Unproven("anonymous", _SEND)
_READ: Final = "getTopicRoute"
_NOT_MADE_GOOD: Final = ("expired-token", "bad-token", "no-role")
"""Failures of authentication by token for which a client's certificate is no substitute."""

_FOREIGN: Final = "routelake.foreign"
"""Key in an ASGI scope: reason why a write does not come from this machine; None if it does."""
_SHOWN: Final = 80
_FIELDS_OF_PROXIES: Final = re.compile(
    rb"forwarded(-.*)?|via|cdn-loop|proxy-.*|surrogate-capability|(true-|wl-proxy-)?client-ip|remote-addr"
    rb"|(cf|do|fly|fastly|akamai|incap)-.*"
    rb"|x-(forward|original-|originating-|real-|proxy|remote-|true-|source-ip|client-(ip|cert)|cluster-client|ssl-client"
    rb"|envoy-|amzn-|amz-cf-|azure-|arr-|appengine-|vercel-|nf-|haproxy-|nginx-|cloud-trace|akamai-|sucuri-"
    rb"|host$|(url-)?scheme$|rewrite-url$|script-name$|http-destinationurl$).*"
)
"""Names, with ``-`` for ``_``, of header fields that proxies and load balancers add to what they pass on."""


class AuthContext(msgspec.Struct, frozen=True, rename="camel"):
    """Identity and permissions of a sender, and this program, as the console asks for them.

    Attributes:
        user: Name of the user; None for an unknown sender.
        may_read: Whether reads pass.
        may_write: Whether all requests pass.
        takes_tokens: Whether a token could give more permissions.
        program: Command that "Copy as" begins with.
    """

    user: str | None
    may_read: bool
    may_write: bool
    takes_tokens: bool
    program: str


class Authenticator:
    """Decides which senders may write, and which may read."""

    def __init__(
        self,
        settings: HttpSettings,
        gateway_id: str,
        admission: Admission,
    ) -> None:
        """Read the tokens.

        Args:
            settings: Settings with the tokens.
            gateway_id: Name of this gateway in the history.
            admission: Decision about permission and quotas. Without accounts only tokens count.

        Raises:
            SetupError: A token is empty, or its digest is invalid.
        """
        self._settings = settings
        self._gateway_id = gateway_id
        self._tokens = _users(settings.tokens)
        """Users by the digests of their tokens. The time of a look-up leaks part of a digest, which is of no use."""
        self._admission = admission
        self._access = admission.access
        self.proofs = Proofs(admission.quotas)
        self.local_peers: LocalPeers | None = None
        """Finder of the process at the other end of a connection. None without connections: the application is called
        without a server."""

    @property
    def protects_reads(self) -> bool:
        """Return whether every read has to pass `reader`."""
        return self._access is not None or self._tokens_protect_reads

    @property
    def _tokens_protect_reads(self) -> bool:
        return self._settings.protect_reads and bool(self._tokens)

    @property
    def file_problem(self) -> str | None:
        """Reason why the current file of accounts cannot be used. None if it can."""
        return None if self._access is None else self._access.problem

    @property
    def has_accounts(self) -> bool:
        """Return whether there are accounts."""
        return self._access is not None

    async def prepare(self, scope: Scope) -> None:
        """Do the slow work first, before any other check.

        For a signed token, fetch a key that its issuer has made since. For a write without a token, find out if it is
        local.
        """
        if self._place_decides and (scope["method"] not in SAFE_METHODS or scope["path"] == SESSION_PATH):
            scope[_FOREIGN] = await self._foreign(scope)
        if self._access is not None and self._access.oidc is not None:
            token = _bearer(Headers(scope=scope).get("authorization", ""))
            if token:
                await self._access.oidc.prepare(token)

    @property
    def _place_decides(self) -> bool:
        """Return whether the origin of a write may be enough to accept it."""
        if self._tokens or self._settings.anonymous_writes:
            return False
        return self._access is None or self._access.policy.mode is AuthMode.AUDIT

    async def _foreign(self, scope: Scope) -> str | None:
        """Return why a write does not count as local. None if it does."""
        if not self._settings.local_writes:
            return "ROUTELAKE_HTTP_LOCAL_WRITES is false"
        if self._settings.trusted_hosts:
            return "ROUTELAKE_HTTP_TRUSTED_HOSTS says that a proxy stands before the gateway"
        client, server = scope["client"], scope.get("server")
        if client is None or not is_loopback(client[0]):
            return "this one comes from elsewhere"
        for name, _ in scope["headers"]:
            if _FIELDS_OF_PROXIES.fullmatch(name.replace(b"_", b"-")):
                return f"a proxy has passed this one on: it has the header {name.decode('latin-1')[:_SHOWN]}"
        if scope.get("http_version") == "1.0":
            return "this one is HTTP/1.0, as proxies send it"
        if self.local_peers is None or server is None:
            return None
        return await self.local_peers.problem((client[0], client[1]), (server[0], server[1]))

    def admit(self, request: Request) -> Sender | None:
        """Admit a request to a described endpoint by the endpoint's role. Return None if every client may send it.

        Endpoints that are not described admit their requests themselves.

        Raises:
            RoutelakeError: As `reader` and `writer`.
        """
        operation = operation_of(request.scope)
        if operation == UNDESCRIBED or OPERATIONS.get(operation, Role.READER) is None:
            return None
        return self.reader(request) if request.method in SAFE_METHODS else self.writer(request)

    def writer(self, request: Request) -> Sender:
        """Admit a write by its header, and return its sender.

        Raises:
            AccessDeniedError: The sender lacks permission.
            Problem: Without accounts, the sender needs a token, or the write must come from this machine.
            QuotaError: The sender has used up its quota.
        """
        sender = self._sender(request)
        without_accounts = self._require_token if self._tokens else self._require_local
        needed = OPERATIONS.get(sender.request)
        return self._admission.request(sender, needed, otherwise=lambda: without_accounts(request))

    def reader(self, request: Request) -> Sender:
        """Admit a read, and return its sender. `count_read` has counted it.

        Raises:
            AccessDeniedError: The sender lacks permission.
            Problem: Without accounts, the sender needs a token, or another one.
        """
        sender = self._sender(request)
        needed = OPERATIONS.get(sender.request, Role.READER)
        if not self._admission.authorize(sender, needed) and self._tokens_protect_reads:
            self._require_token(request)
        return sender

    def count_read(self, scope: Scope) -> None:
        """Count a read, before its path is looked up, against the quota of its user or address.

        A token that was not accepted before counts against the address: a sender that is refused by a quota must
        not learn whether a guessed token is right.

        Raises:
            QuotaError: There were too many reads.
        """
        request = Request(scope)
        if self.proofs.was_proven(scope):
            found: Identity | Unproven | None = self._by_token(request.headers.get("authorization", ""))
        else:
            found = self._by_certificate(request)
        actor = self._actor(request, found)
        self._admission.quotas.request(Role.READER, peer_name(actor), actor.peer or "")

    def _sender(self, request: Request) -> Sender:
        """Authenticate the sender of a request."""
        found = self._identify(request)
        actor = self._actor(request, found)
        if actor.user is not None and self._access is not None:
            request.scope[PROVEN] = True
        topic, broker_name = request.path_params.get("topic"), request.path_params.get("brokerName")
        return Sender(actor, operation_of(request.scope), found, _is_tls(request), topic, broker_name)

    def _actor(self, request: Request, found: Identity | Unproven | None) -> Actor:
        """Return the sender as the history names it."""
        peer = None if request.client is None else host_and_port(request.client)
        return Actor(gateway=self._gateway_id, via="http", peer=peer, user=_user_of(found))

    def still_reads(self, request: Request) -> bool:
        """Return whether a read that `reader` accepted would pass now, too. Accounts change, and tokens expire."""
        return self.standing(request).may_read

    def reader_again(self, request: Request) -> None:
        """Check again with `reader`, before the answer to a read that has waited. The read is counted and logged once.

        Raises:
            Problem: The sender has lost the permission.
        """
        if not self.still_reads(request):
            self.reader(request)

    def may_read_settings(self, request: Request) -> bool:
        """Return whether a sender that `reader` accepted could read the settings over remoting (GET_NAMESRV_CONFIG)."""
        if self._access is None:
            return True
        found = self._identify(request)
        needed = NEEDED[RequestCode.GET_NAMESRV_CONFIG]
        return not authorize(self._access.policy, needed, found, is_tls=_is_tls(request)).is_refused

    def may_see_details(self, request: Request) -> bool:
        """Return whether health shows details. Names, paths and errors are for readers.

        If there are accounts, details are for readers with an account, even if the mode lets others read routes.
        """
        if getattr(request.state, "lacks_certificate", False):
            return False
        standing = self.standing(request)
        return standing.may_read and (self._access is None or standing.user is not None)

    def standing(self, request: Request) -> AuthContext:
        """Return the sender's identity and permissions, for information: nothing is counted or recorded."""
        found = self._identify(request)
        user = _user_of(found)
        without_account = {
            Role.READER: not self._tokens_protect_reads or user is not None,
            Role.ADMIN: user is not None if self._tokens else self._why_foreign(request) is None,
        }

        def may(role: Role) -> bool:
            if self._access is not None:
                verdict = authorize(self._access.policy, role, found, is_tls=_is_tls(request))
                if verdict.is_refused or not verdict.reason:
                    return not verdict.is_refused
            return without_account[role]

        takes_tokens = self._access is not None or bool(self._tokens)
        return AuthContext(user, may(Role.READER), may(Role.ADMIN), takes_tokens, PROGRAM)

    def passes_fast(
        self, client: tuple[str, int] | None, headers: Iterable[tuple[bytes, bytes]], has_certificate: bool
    ) -> bool:
        """Return whether a plain read of a route passes all other checks of `reader`. If not, call `reader`.

        Args:
            client: Host and port of the client.
            headers: Headers with names in lower case.
            has_certificate: Whether the client has sent a certificate.
        """
        access = self._access
        if access is None or self._tokens_protect_reads or access.policy.require_tls:
            return False
        authorization = next((value for name, value in headers if name == b"authorization"), b"")
        found = self._by_token(authorization.decode("latin-1"))
        verdict = authorize(access.policy, Role.READER, found, is_tls=False)
        if verdict.is_refused:
            return False
        quotas = self._admission.quotas
        if client is not None and quotas.is_guessing(address_of(client[0])):
            return False  # a client that guesses tokens must not learn here which one is right
        if verdict.reason:
            if has_certificate or any(name == b"cookie" for name, _ in headers):
                return False  # the certificate or the cookie may identify the sender
            peer = host_and_port(client)
            access.note(Refused("http", _READ, Role.READER.word, peer, found, verdict))
        return True

    def _identify(self, request: Request) -> Identity | Unproven:
        found = self._by_token(request.headers.get("authorization", ""))
        if not isinstance(found, Identity) and found.reason not in _NOT_MADE_GOOD:
            found = self._by_certificate(request) or found
        return found

    def _by_certificate(self, request: Request) -> Identity | Unproven | None:
        if self._access is None:
            return None
        return self._access.accounts.by_certificate(getattr(request.state, "certificate_names", ()))

    def _by_token(self, authorization: str) -> Identity | Unproven:
        access = self._access
        token = _bearer(authorization)
        if not token:
            return _ANONYMOUS
        user = self._tokens.get(digest_of(token.encode("latin-1")))
        if user is not None:
            return Identity(user, Role.ADMIN, "token")
        if access is None:
            return _ANONYMOUS
        found = access.accounts.by_token(token.encode("latin-1"), time.time())
        if access.oidc is not None and isinstance(found, Unproven) and found.reason == "unknown-token":
            return access.oidc.identify(token) if is_jwt(token) else found
        return found

    def _require_token(self, request: Request) -> None:
        token = _bearer(request.headers.get("authorization", ""))
        if digest_of(token.encode("latin-1")) not in self._tokens:
            raise Problem(UNAUTHORIZED, _NOT_KNOWN if token else _SEND, headers=CHALLENGE)
        request.scope[PROVEN] = True

    def _require_local(self, request: Request) -> None:
        why = self._why_foreign(request)
        if why is not None:
            raise Problem(
                FORBIDDEN,
                f"without tokens, writes are accepted from this machine only, and {why}: give the gateway tokens "
                "(ROUTELAKE_HTTP_TOKENS) or accounts (--auth), and send one as Authorization: Bearer TOKEN",
            )

    def _why_foreign(self, request: Request) -> str | None:
        """Return why a write without a token is not accepted. None if it is accepted."""
        if self._settings.anonymous_writes:
            return None
        why: str | None = request.scope.get(_FOREIGN, "the origin of the connection was not checked")
        return why


def _user_of(found: Identity | Unproven | None) -> str | None:
    return found.user if isinstance(found, Identity) else None


def _bearer(authorization: str) -> str:
    """Return the token of an Authorization header. Empty without a token."""
    scheme, _, token = authorization.partition(" ")
    return token.strip(" \t") if scheme.lower() == "bearer" else ""


def _is_tls(request: Request) -> bool:
    return request.scope.get("scheme") == "https"


def _users(tokens: Mapping[str, str]) -> dict[bytes, str]:
    """Users by the digests of their tokens. Raises SetupError."""
    found = {}
    for user, token in tokens.items():
        if not token.strip():
            raise SetupError(f"the token of {user!r} is empty.")
        try:
            found[written_digest(token)] = user
        except ValueError as error:
            raise SetupError(f"the token of {user!r} {error}.") from None
    return found
