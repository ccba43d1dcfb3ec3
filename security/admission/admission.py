# SPDX-License-Identifier: Apache-2.0
"""Admission: permission and quota of each request, decided here alone, for remoting and HTTP alike.

Each protocol authenticates its senders (`api.remoting.access`, `api.http.auth`) and says so by a `Sender`. Then a
request is admitted in two steps, because no body is inflated or parsed for a sender that may not send the request:

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
from security.admission.quotas import Charge, GatewayQuotas, peer_name
from security.identity import ANONYMOUS, Identity, Unproven
from security.policy import Claim, Verdict, authorize
from security.roles import Role

Broker = tuple[str | None, str | None]
"""clusterName and brokerName, as a request names them."""


class Sender(NamedTuple):
    """The authenticated sender of one request.

    Attributes:
        actor: The sender's name in the history.
        request: Name of the RequestCode, or the HTTP operation.
        found: Its identity, or the reason why it has none.
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


class Admitted(NamedTuple):
    """The decision on an event.

    Attributes:
        is_written: False for a heartbeat that is answered without being written.
        charge: Charge of the sender, to be refunded if nothing is written; None: no charge.
    """

    is_written: bool
    charge: Charge | None = None


_HEARTBEATS: Final = (BrokerHeartbeat, RegisterBroker)
_NOT_WRITTEN: Final = Admitted(False)
_UNCHARGED: Final = Admitted(True)


class Admission:
    """Admits requests and events of one gateway. Lives on its event loop.

    Attributes:
        access: Accounts and policy. None: no sender is asked for an account.
        quotas: The quotas of all peers.
    """

    def __init__(self, quotas: GatewayQuotas | None = None, access: AccessControl | None = None) -> None:
        """Admit by quotas and accounts.

        Args:
            quotas: None: the defaults.
            access: None, or one that is off: every sender has every permission.
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
            sender: The request's sender.
            needed: The least role that may send it. None: no role.
            brokers: Those that the header names.
            view: Has the cluster of each broker.
            otherwise: Decides where accounts do not: there are none, or their mode lets everybody pass. Raises.

        Returns:
            The sender, with the brokers that are authorized.

        Raises:
            AccessDeniedError: the sender lacks permission.
            QuotaError: the sender has sent too many requests.
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
            sender: The request's sender.
            needed: The least role that may send it. None: no role.
            brokers: Those that it speaks for. An account may be bound to some.
            view: Has the cluster of each broker.

        Returns:
            Whether the accounts permit the request. False: they do not decide, or their mode lets it pass.

        Raises:
            AccessDeniedError: the sender lacks permission.
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
        """Decide as `authorize` does, and record nothing."""
        claims = tuple(Claim(*broker, _cluster_of(view, broker[1])) for broker in brokers)
        return authorize(access.policy, needed, sender.found, claims, is_tls=sender.is_tls)

    def authorize_brokers(self, sender: Sender, brokers: Collection[Broker], view: RouteView) -> Sender:
        """Check that a sender may speak for brokers, and return it with these brokers.

        Raises:
            AccessDeniedError: its account is bound to other brokers.
        """
        if not self._is_bound(sender):
            return sender
        unknown = [broker for broker in brokers if broker not in sender.brokers]
        if not unknown:
            return sender
        self.authorize(sender, Role.BROKER, unknown, view)
        return sender._replace(brokers=sender.brokers.union(unknown))

    def authorize_event(self, sender: Sender, event: AnyEvent, view: RouteView) -> Sender:
        """`authorize_brokers` for the brokers that an event names. `event` does so, too."""
        if not self._is_bound(sender):  # mostly so, and to list the brokers takes longer
            return sender
        return self.authorize_brokers(sender, _brokers_of(event), view)

    def _is_bound(self, sender: Sender) -> bool:
        """Return whether the sender's account is bound to some brokers."""
        return self.access is not None and isinstance(sender.found, Identity) and sender.found.is_bound

    def event(
        self,
        sender: Sender | None,
        event: AnyEvent,
        payload: bytes,
        view: RouteView,
        now_ms: int,
        topics: Collection[str] | None = None,
    ) -> Admitted:
        """Admit a decoded event, and charge its sender.

        Args:
            sender: Admitted by `request`. None: the event is the gateway's own, and needs no permission.
            event: The event.
            payload: Encoded event, as the event log takes it.
            view: The live view.
            now_ms: The event log's time.
            topics: Names of the topics of a registration. None: those of the event itself. A registration without
                topics counts as a heartbeat.

        Raises:
            AccessDeniedError: the sender's account is bound to other brokers.
            QuotaError: the event exceeds a quota.
        """
        if sender is not None and self.access is not None:
            self.authorize_event(sender, event, view)
        quotas = self.quotas
        if isinstance(event, RegisterBroker):
            names = event.topic_config_table if topics is None else topics
            if names is not None:
                return Admitted(True, quotas.registration(event, names, payload, view))
        if isinstance(event, _HEARTBEATS):
            live = view.live_row(event.broker_name, event.cluster_name, event.broker_addr)
            is_written = quotas.admit_heartbeat(event.actor, len(payload), live, now_ms)
            return _UNCHARGED if is_written else _NOT_WRITTEN
        return Admitted(True, quotas.command(event, payload, view))


def _brokers_of(event: AnyEvent) -> Collection[Broker]:
    """The brokers that an event speaks for."""
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
