# SPDX-License-Identifier: Apache-2.0
"""Authentication of remoting requests: the sender of a request, by its signature or its connection.

No part of a body is decompressed or parsed before its signature was checked. The identity of a connection, by its
certificate or address, is looked up once. A signed route request that is repeated byte for byte is checked once.
`security.admission.admission` decides about the sender's permission.
"""

from __future__ import annotations

import asyncio
from typing import Final

from api.gateway.gateway import Gateway
from api.remoting.route_requests import RouteRequest
from remoting.codec import commands
from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import Reply
from remoting.server.channel import Connection
from schemas.codes import RequestCode
from schemas.events import Actor
from security.accounts import Accounts, identify
from security.admission.access_control import AccessControl
from security.admission.admission import Broker, Sender
from security.identity import Identity, Unproven
from security.roles import BOUND, NEEDED, Role
from security.signature import ACCESS_KEY, SIGNATURE, stray_field

_LARGE_BYTES: Final = 256 * 1024
"""Size from which a body is hashed in a thread, in bytes: 64 MiB take a tenth of a second."""

_NAMES: Final = {int(code): code.name for code in RequestCode}


class _Peer:
    """Identity of a connection's peer, by the accounts of one generation."""

    __slots__ = ("generation", "host", "identity", "may_read")

    def __init__(self, generation: object, accounts: Accounts, connection: Connection) -> None:
        self.generation = generation
        self.host = connection.peer.rpartition(":")[0].strip("[]")
        by_certificate = accounts.by_certificate(connection.certificate_names)
        self.identity = by_certificate or accounts.by_address(self.host)
        self.may_read = False
        """The peer's unsigned route requests are permitted."""


class RemotingAccess:
    """Authentication and admission of the senders of one gateway. Used on its event loop."""

    def __init__(self, gateway: Gateway) -> None:
        """Use a gateway's accounts and quotas."""
        self._gateway = gateway
        self._admission = gateway.admission

    def actor(self, connection: Connection, user: str | None = None) -> Actor:
        """Return the name of a connection's peer in the history."""
        return Actor(gateway=self._gateway.settings.gateway_id, via="remoting", peer=connection.peer, user=user)

    async def admit(self, command: RemotingCommand, connection: Connection) -> Sender:
        """Authenticate the sender of a request, and admit the request by its header.

        Raises:
            AccessDeniedError: The sender lacks permission.
            QuotaError: The sender has sent too many requests.
        """
        control, code = self._admission.access, command.code
        if control is None:
            return self._admission.request(self._anonymous(code, connection), NEEDED.get(code))
        found = await _identify(control, command, connection)
        needed, view = NEEDED.get(code), self._gateway.live_view.view
        brokers: tuple[Broker, ...] = ()
        if isinstance(found, Identity) and found.role is Role.BROKER and found.is_bound and code in BOUND:
            brokers = _brokers(command)
        fields = command.ext_fields or {}
        sender = self._sender(code, found, connection, fields.get("topic"), fields.get("brokerName"))
        user = sender.actor.user
        if SIGNATURE in fields and user is not None and fields.get(ACCESS_KEY) == user:
            stray = stray_field(code, fields, command.body)
            if stray is not None and not self._admission.verdict(control, sender, needed, brokers, view).reason:
                unproven = Unproven("other-fields", f"no peer of RocketMQ signs such a request: {stray}", user)
                sender = self._sender(code, unproven, connection, sender.topic, sender.broker_name)
        return self._admission.request(sender, needed, brokers, view)

    def _anonymous(self, code: int, connection: Connection) -> Sender:
        """Return the sender if there are no accounts. It is cached for each connection and kind of request."""
        if not isinstance(connection.known, dict):
            connection.known = {}
        known: dict[str, Sender] = connection.known
        name = _NAMES.get(code, "other")
        sender = known.get(name)
        if sender is None:
            sender = known[name] = Sender(self.actor(connection), name)
        return sender

    def inline(self, asked: RouteRequest, connection: Connection) -> Reply:
        """Answer a recognized route request, or refuse it (`remoting.server.channel.InlineAuthorizer`).

        Raises:
            AccessDeniedError: The sender lacks permission.
        """
        control = self._admission.access
        assert control is not None
        generation = control.generation
        if asked.passed is generation:
            return asked.reply or asked.answer()
        peer = _peer(control, connection)
        if asked.form.signed is None and peer.may_read:
            return asked.reply or asked.answer()
        fields, body = asked.form.signed or (None, b"")
        found = identify(control.accounts, fields, body, peer.host, peer.identity)
        sender = self._sender(RequestCode.GET_ROUTEINFO_BY_TOPIC, found, connection, asked.topic)
        if self._admission.authorize(sender, Role.READER):
            if asked.form.signed is None:
                peer.may_read = True
            elif not control.policy.require_tls and _passes_anywhere(found):
                asked.passed = generation
        return asked.reply or asked.answer()

    def _sender(
        self,
        code: int,
        found: Identity | Unproven,
        connection: Connection,
        topic: str | None,
        broker_name: str | None = None,
    ) -> Sender:
        actor = self.actor(connection, found.user if isinstance(found, Identity) else None)
        return Sender(actor, _NAMES.get(code, "other"), found, connection.is_tls, topic, broker_name)


async def _identify(control: AccessControl, command: RemotingCommand, connection: Connection) -> Identity | Unproven:
    peer, fields, body, accounts = _peer(control, connection), command.ext_fields, command.body, control.accounts
    if len(body) >= _LARGE_BYTES and fields and accounts.accounts.get(fields.get(ACCESS_KEY, "")):
        return await asyncio.to_thread(identify, accounts, fields, body, peer.host, peer.identity)
    return identify(accounts, fields, body, peer.host, peer.identity)


def _passes_anywhere(found: Identity | Unproven) -> bool:
    """Return whether an identity is valid over every connection from every address. An admin's signature is not."""
    return isinstance(found, Identity) and found.by == "signature" and found.role is not Role.ADMIN


def _peer(control: AccessControl, connection: Connection) -> _Peer:
    known = connection.known
    if isinstance(known, _Peer) and known.generation is control.generation:
        return known
    peer = _Peer(control.generation, control.accounts, connection)
    connection.known = peer
    return peer


def _brokers(command: RemotingCommand) -> tuple[Broker, ...]:
    """Return the brokers that a request's header names. For REGISTER_TOPIC_IN_NAMESRV the body names them instead."""
    if command.code == RequestCode.REGISTER_TOPIC_IN_NAMESRV:
        return ()
    header = commands.read_broker_header(command)
    return ((header.cluster_name, header.broker_name),)
