# SPDX-License-Identifier: Apache-2.0
"""Admission: permission and quota of each request, decided only in this module, for remoting and HTTP.

Each protocol authenticates its senders (`api.remoting.access`, `api.http.auth`) and passes the result as a `Sender`.
Then a request is admitted in two steps, because no body is decompressed or parsed for a sender without permission:

1. `Admission.request`, by the header: the role, the broker that the header names, and the rate of requests.
2. `Admission.event`, by the decoded event: the brokers that the event names, and its cost. `Gateway.write` calls it for
   every event, so a write cannot bypass it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from nameserver.view.snapshot import RouteView
from schemas.errors import AccessDeniedError
from schemas.events import Actor, AnyEvent, BrokerHeartbeat, RegisterBroker, RegisterTopic, UnregisterBroker
from security.admission.access_control import AccessControl, Refused
from security.admission.quotas import FREE, Charge, GatewayQuotas, peer_name
from security.identity import ANONYMOUS, Identity, Unproven
from security.policy import Claim, Verdict, authorize
from security.roles import Role

Broker = tuple[str | None, str | None]
"""clusterName and brokerName, as a request names them."""


class Sender(NamedTuple):
    """Authenticated sender of one request.

    Attributes:
        actor: Sender in the history.
        request: Name of the RequestCode, or the HTTP operation.
        found: Identity, or the reason why the sender has no identity.
        is_tls: Whether the connection is encrypted.
        topic: Topic that the header names, for the record of a refusal.
        broker_name: Broker name that the header names, for the record of a refusal.
        brokers: Brokers of the request that are authorized.
    """

    actor: Actor
    request: str
    found: Identity | Unproven = ANONYMOUS
    is_tls: bool = False
    topic: str | None = None
    broker_name: str | None = None
    brokers: frozenset[Broker] = frozenset()


_HEARTBEATS: Final = (BrokerHeartbeat, RegisterBroker)


class Admission:
    """Admission of the requests and events of one gateway. Used on its event loop.

    Attributes:
        access: Accounts and policy. None: no sender needs an account.
        quotas: Quotas of all peers.
    """

    def __init__(self, quotas: GatewayQuotas | None = None, access: AccessControl | None = None) -> None:
        """Use quotas and accounts.

        Args:
            quotas: Quotas of all peers. None: the defaults.
            access: Accounts and policy. None, or one that is off: every sender has every permission.
        """
        self.quotas: Final = quotas or GatewayQuotas()
        self.access: Final = access if access is not None and access.is_on else None

    def request(
        self,
        sender: Sender,
        needed: Role | None,
        brokers: Iterable[Broker] = (),
        view: RouteView | None = None,
        *,
        otherwise: Callable[[], None] | None = None,
    ) -> Sender:
        """Admit a request by its header.

        Args:
            sender: Sender of the request.
            needed: Lowest role that may send it. None: no role.
            brokers: Brokers that the header names.
            view: View with the cluster of each broker.
            otherwise: Decides if the accounts do not, because there are none or their mode permits everything. Raises.

        Returns:
            Sender, with the brokers that are authorized.

        Raises:
            AccessDeniedError: The sender lacks permission.
            QuotaError: The sender has sent too many requests.
        """
        brokers = frozenset(brokers)
        is_decided = self.access is not None and self.authorize(sender, needed, brokers, view)
        if not is_decided and otherwise is not None:
            otherwise()
        actor = sender.actor
        self.quotas.request(needed or Role.ADMIN, peer_name(actor), actor.peer or "")
        return sender._replace(brokers=brokers) if brokers else sender

    def authorize(
        self,
        sender: Sender,
        needed: Role | None,
        brokers: Iterable[Broker] = (),
        view: RouteView | None = None,
    ) -> bool:
        """Check the permission of a sender, and record a refusal.

        Args:
            sender: Sender of the request.
            needed: Lowest role that may send it. None: no role.
            brokers: Brokers that the request speaks for. An account may be bound to some brokers.
            view: View with the cluster of each broker.

        Returns:
            Whether the accounts permit the request. False: they do not decide, or their mode permits it.

        Raises:
            AccessDeniedError: The sender lacks permission.
        """
        access, found = self.access, sender.found
        if access is None:
            return False
        brokers = tuple(brokers)
        verdict = self.verdict(access, sender, needed, brokers, view)
        if not verdict.reason:
            return True
        actor, role = sender.actor, "" if needed is None else needed.word
        broker_name = brokers[0][1] if brokers else sender.broker_name
        topic, peer = sender.topic or None, actor.peer or ""
        access.note(Refused(actor.via, sender.request, role, peer, found, verdict, topic, broker_name or None))
        if verdict.is_refused:
            raise AccessDeniedError(verdict.remark, is_authenticated=isinstance(found, Identity))
        return False

    @staticmethod
    def verdict(
        access: AccessControl, sender: Sender, needed: Role | None, brokers: Iterable[Broker], view: RouteView | None
    ) -> Verdict:
        """Decide as `authorize` does, without a record."""
        claims = tuple(Claim(*broker, _cluster_of(view, broker[1])) for broker in brokers)
        return authorize(access.policy, needed, sender.found, claims, is_tls=sender.is_tls)

    def authorize_brokers(self, sender: Sender, brokers: Collection[Broker], view: RouteView) -> Sender:
        """Check that a sender may speak for brokers, and return it with these brokers.

        Raises:
            AccessDeniedError: The sender's account is bound to other brokers.
        """
        if self.access is None or not isinstance(sender.found, Identity) or not sender.found.is_bound:
            return sender
        unknown = [broker for broker in brokers if broker not in sender.brokers]
        if not unknown:
            return sender
        self.authorize(sender, Role.BROKER, unknown, view)
        return sender._replace(brokers=sender.brokers.union(unknown))

    def event(
        self,
        sender: Sender | None,
        event: AnyEvent,
        payload: bytes,
        view: RouteView,
        now_ms: int,
        topics: Collection[str] | None = None,
    ) -> Charge | None:
        """Admit a decoded event, and charge its sender.

        Args:
            sender: Sender admitted by `request`. None: the event is the gateway's own, and needs no permission.
            event: Event to admit.
            payload: Encoded event in the form of the event log.
            view: Live view.
            now_ms: Time of the event log, in milliseconds.
            topics: Names of the topics of a registration. None: those of the event itself. A registration without
                topics counts as a heartbeat.

        Returns:
            Charge of the sender, to refund if nothing is written. None: a heartbeat that is answered without being
            written.

        Raises:
            AccessDeniedError: The sender's account is bound to other brokers.
            QuotaError: The event exceeds a quota.
            RefusedError: The group of a broker is full.
        """
        if sender is not None and self.access is not None:
            self.authorize_brokers(sender, _brokers_of(event), view)
        quotas = self.quotas
        if isinstance(event, RegisterBroker):
            names = event.topic_config_table if topics is None else topics
            if names is not None:
                return quotas.registration(event, names, payload, view)
        if isinstance(event, _HEARTBEATS):
            live = view.live_row(event.broker_name, event.cluster_name, event.broker_addr)
            return FREE if quotas.admit_heartbeat(event.actor, len(payload), live, now_ms) else None
        return quotas.command(event, payload, view)


def _brokers_of(event: AnyEvent) -> Collection[Broker]:
    """Return the brokers that an event speaks for."""
    match event:
        case RegisterBroker():
            return [(event.cluster_name, name) for name in event.speaks_for]
        case UnregisterBroker() | BrokerHeartbeat():
            return [(event.cluster_name, event.broker_name)]
        case RegisterTopic():
            return [(None, event.queue_data.broker_name)]
        case _:
            return ()


def _cluster_of(view: RouteView | None, broker_name: str | None) -> str | None:
    group = None if view is None else view.groups.get(broker_name or "")
    return None if group is None else group.row.cluster
