# SPDX-License-Identifier: Apache-2.0
"""In front of every request over remoting: who sends it, and may they?

Nothing of a body is inflated or parsed before its signature was checked. What a connection shows, its certificate and
its address, is looked up once; a signed route request that comes again byte for byte was checked once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from api.remoting.route_requests import RouteRequest
from nameserver.view.snapshot import RouteView
from remoting.codec import commands
from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import EncodedReply, Reply, response
from remoting.server.channel import Connection
from schemas.codes import RequestCode, ResponseCode
from schemas.events import RegisterBroker, RegisterTopicQueue
from security.accounts import Accounts, identify
from security.admission.access_control import AccessControl, Refused
from security.identity import NOBODY, Identity, Unproven
from security.policy import Claim, Verdict
from security.roles import BOUND, NEEDED, Role
from security.signature import ACCESS_KEY, SIGNATURE, stray_field

_LARGE_BYTES: Final = 256 * 1024
"""From here on a body is hashed in a thread: 64 MiB take a tenth of a second."""

_NAMES: Final = {int(code): code.name for code in RequestCode}


class _Peer:
    """What a connection shows, as the accounts of one moment have it."""

    __slots__ = ("generation", "host", "identity", "may_read")

    def __init__(self, generation: object, accounts: Accounts, connection: Connection) -> None:
        self.generation = generation
        self.host = connection.peer.rpartition(":")[0].strip("[]")
        by_certificate = accounts.by_certificate(connection.certificate_names)
        self.identity = by_certificate or accounts.by_address(self.host)
        self.may_read = False
        """Whether its unsigned route requests pass, whoever else they are compared with."""


class RemotingAccess:
    """Judges requests for one gateway. Lives on its event loop."""

    def __init__(self, control: AccessControl, view: Callable[[], RouteView]) -> None:
        """Judge by a control.

        Args:
            control: Has policy and accounts.
            view: The newest; it knows to which cluster a broker belongs.
        """
        self._control = control
        self._view = view

    async def judge(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | Identity:
        """The answer to a request that may not be sent; else who sends it, `NOBODY` for nobody."""
        peer = self._peer(connection)
        accounts, fields = self._control.accounts, command.ext_fields
        if len(command.body) >= _LARGE_BYTES and fields and accounts.accounts.get(fields.get(ACCESS_KEY, "")):
            found = await asyncio.to_thread(identify, accounts, fields, command.body, peer.host, peer.identity)
        else:
            found = identify(accounts, fields, command.body, peer.host, peer.identity)
        needed = NEEDED.get(command.code)
        claims: tuple[Claim, ...] = ()
        if isinstance(found, Identity) and found.role is Role.BROKER and found.is_bound and command.code in BOUND:
            claims = self._claims(command)
        verdict = self._control.authorize(needed, found, claims, is_tls=connection.is_tls)
        if fields and SIGNATURE in fields and not verdict.reason and isinstance(found, Identity):
            stray = stray_field(command.code, fields, command.body) if fields.get(ACCESS_KEY) == found.user else None
            if stray is not None:
                found = Unproven("other-fields", f"no peer of RocketMQ signs such a request: {stray}", found.user)
                verdict = self._control.authorize(needed, found, is_tls=connection.is_tls)
        refused = self._told(verdict, needed, found, command.code, connection, fields)
        if refused is not None:
            return refused
        return found if isinstance(found, Identity) else NOBODY

    def speaks_for(self, event: RegisterBroker, sender: Identity, connection: Connection) -> None:
        """Let a registration pass, now that its body was read: that may name other brokers than its header.

        Args:
            event: It.
            sender: As `judge` found it.
            connection: It came over.

        Raises:
            RefusedError: the account is bound to other brokers.
        """
        if sender.role is not Role.BROKER or not sender.is_bound or not event.topic_queue_mapping_info_map:
            return
        claims = tuple(self._claim(event.cluster_name, name) for name in event.speaks_for)
        self._let_pass(RequestCode.REGISTER_BROKER, claims, {"brokerName": event.broker_name}, sender, connection)

    def speaks_for_rows(
        self, topic: str, rows: Iterable[RegisterTopicQueue], sender: Identity, connection: Connection
    ) -> None:
        """The same of a REGISTER_TOPIC_IN_NAMESRV, whose body has been read."""
        if sender.role is Role.BROKER and sender.is_bound:
            claims = tuple(self._claim(None, row.broker_name) for row in rows)
            self._let_pass(RequestCode.REGISTER_TOPIC_IN_NAMESRV, claims, {"topic": topic}, sender, connection)

    def _let_pass(
        self, code: int, claims: tuple[Claim, ...], named: Mapping[str, str], sender: Identity, connection: Connection
    ) -> None:
        verdict = self._control.authorize(Role.BROKER, sender, claims, is_tls=connection.is_tls)
        if self._told(verdict, Role.BROKER, sender, code, connection, named) is not None:
            raise commands.RefusedError(verdict.remark, code=ResponseCode.NO_PERMISSION)

    def inline(self, asked: RouteRequest, connection: Connection) -> Reply:
        """The answer to a recognised route request, or its refusal (`remoting.server.channel.Gate`)."""
        generation = self._control.generation
        if asked.passed is generation:
            return asked.reply or asked.answer()
        peer = self._peer(connection)
        if asked.form.signed is None and peer.may_read:
            return asked.reply or asked.answer()
        fields, body = asked.form.signed or (None, b"")
        found = identify(self._control.accounts, fields, body, peer.host, peer.identity)
        verdict = self._control.authorize(Role.READER, found, is_tls=connection.is_tls)
        if not verdict.reason:
            if asked.form.signed is None:
                peer.may_read = True
            elif self._passes_anywhere(found):
                asked.passed = generation
            return asked.reply or asked.answer()
        named = {} if asked.topic is None else {"topic": asked.topic}
        refused = self._told(verdict, Role.READER, found, RequestCode.GET_ROUTEINFO_BY_TOPIC, connection, named)
        return asked.reply or asked.answer() if refused is None else EncodedReply(refused)

    def _passes_anywhere(self, found: Identity | Unproven) -> bool:
        """Whether it is the same over TLS and without, from every address: an admin's signature is not."""
        is_signed = isinstance(found, Identity) and found.by == "signature" and found.role is not Role.ADMIN
        return is_signed and not self._control.policy.require_tls

    def _peer(self, connection: Connection) -> _Peer:
        known = connection.known
        if isinstance(known, _Peer) and known.generation is self._control.generation:
            return known
        peer = _Peer(self._control.generation, self._control.accounts, connection)
        connection.known = peer
        return peer

    def _claims(self, command: RemotingCommand) -> tuple[Claim, ...]:
        """The brokers that a request's header speaks for."""
        if command.code == RequestCode.REGISTER_TOPIC_IN_NAMESRV:
            return ()  # its body names them: `speaks_for_rows`
        header = commands.read_broker_header(command)
        return (self._claim(header.cluster_name, header.broker_name),)

    def _claim(self, cluster: str | None, broker_name: str | None) -> Claim:
        group = self._view().groups.get(broker_name or "")
        return Claim(cluster, broker_name, None if group is None else group.row.cluster)

    def _told(
        self,
        verdict: Verdict,
        needed: Role | None,
        found: Identity | Unproven,
        code: int,
        connection: Connection,
        named: Mapping[str, str] | None,
    ) -> RemotingCommand | None:
        if not verdict.reason:
            return None
        role = "" if needed is None else needed.word
        name = _NAMES.get(code, "other")
        topic, broker_name = (None, None) if named is None else (named.get("topic"), named.get("brokerName"))
        self._control.note(
            Refused("remoting", name, role, connection.peer, found, verdict, topic or None, broker_name or None)
        )
        return response(ResponseCode.NO_PERMISSION, verdict.remark) if verdict.is_refused else None
