# SPDX-License-Identifier: Apache-2.0
"""Construction of the parts of one gateway. Only this module knows which part needs which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

import msgspec

from api.gateway.gateway import Gateway
from api.gateway.metrics import Metrics, RemotingMeter
from api.gateway.registrations import Registrations
from api.http.app import HttpApp, create_app
from api.http.context import HttpContext
from api.http.settings import HttpSettings
from api.remoting.access import RemotingAccess
from api.remoting.handlers import NameServerHandler
from api.settings.gateway import GatewaySettings, Reads
from eventlog.base import LogReader
from eventlog.group_commit import LogClient
from lake.history.history import History
from nameserver.answers import RouteAnswers
from remoting.server.server import OF_ADDRESS, RemotingServer
from remoting.server.settings import RemotingSettings
from remoting.server.tls import Handshakes
from security.accounts_file import AccountsFile
from security.admission.access_control import AccessControl, RefusalAudit
from security.admission.admission import Admission
from security.admission.quotas import GatewayQuotas
from security.policy import AuthMode, Policy
from security.quotas import Quotas
from security.tls_rotation import Tls

_ASKED_FOR_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of encoded routes of the other view, in bytes. Few clients ask for that view, and only over HTTP."""


class GatewayParts:
    """A gateway and both its APIs, on one event loop.

    The caller starts and stops them in this order: ``gateway.start``, ``server.start``, `serve_http` of ``app``,
    `close_remoting`, ``gateway.stop``.

    Args:
        settings: Settings of the gateway.
        log_client: Writer of its events. The caller closes it after the gateway has stopped.
        open_reader: Opens the log for reading.
        remoting: Settings of the remoting listener.
        http: Settings of the HTTP listener.
        policy: Mode and rules of access control.
        accounts: File of the accounts.
        quotas: Limits for one peer. None: the defaults.
        tls: TLS of both listeners. The caller starts and stops it with the gateway. None: connections are plain.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        log_client: LogClient,
        open_reader: Callable[[], LogReader],
        remoting: RemotingSettings | None = None,
        http: HttpSettings | None = None,
        policy: Policy | None = None,
        accounts: AccountsFile | None = None,
        tls: Tls | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        limits = quotas or Quotas()
        self._http, remoting = http or HttpSettings(), remoting or RemotingSettings()
        if self._http.max_connections_per_address is None:
            self._http = replace(self._http, max_connections_per_address=limits.http_connections)
        if remoting.max_connections_per_address is None:
            remoting = msgspec.structs.replace(remoting, max_connections_per_address=limits.connections)
        mode = AuthMode.OFF if policy is None else policy.mode
        self.quotas = GatewayQuotas(limits, trusts_users=mode is not AuthMode.AUDIT)
        self.metrics = Metrics()
        self.metrics.follow_quotas(self.quotas)
        self.access = AccessControl(policy or Policy(), accounts, self.metrics.observe_access)
        self.gateway = Gateway(settings, log_client, open_reader, Admission(self.quotas, self.access))
        self.answers = answers_of(self.gateway)
        self.registrations = Registrations(self.gateway, self.metrics)
        if self.access.is_on:
            self.access.follow(RefusalAudit(settings.gateway_id, partial(self.gateway.write, sender=None)).record)
        access = RemotingAccess(self.gateway)
        self.handler = NameServerHandler(
            self.gateway, self.answers[settings.reads], self.metrics, self.registrations, access
        )
        self.tls = tls
        self.handshakes = Handshakes(self.quotas.handshake)
        self.server = RemotingServer(
            self.handler,
            remoting,
            self.handler.inline,
            access.inline if self.access.is_on else None,
            None if tls is None else tls.remoting,
            self.handshakes,
        )
        refusals = self.server.refusals.counts
        self.metrics.before_scrape(lambda: self.quotas.refused_connections("connections", refusals[OF_ADDRESS]))
        if tls is not None:
            self.metrics.follow_tls(tls)
        RemotingMeter(self.server, self.metrics)

    @cached_property
    def app(self) -> HttpApp:
        """HTTP API of a gateway that has started.

        Raises:
            SetupError: A token is unusable.
        """
        context = HttpContext(
            self.gateway,
            History(self.gateway.settings.lake),
            settings=self._http,
            answers=self.answers,
            metrics=self.metrics,
            registrations=self.registrations,
            tls=self.tls,
        )
        return create_app(context)

    async def close_remoting(self, drain_s: float) -> None:
        """Finish the requests in progress over remoting. A connection that closes from now on unregisters no broker."""
        self.handler.stop()
        await self.server.close(drain_s)


def answers_of(gateway: Gateway) -> Mapping[Reads, RouteAnswers]:
    """Return the caches of encoded answers of a gateway's views."""
    shown = gateway.settings.reads
    found = {reads: RouteAnswers() if reads is shown else RouteAnswers(max_bytes=_ASKED_FOR_BYTES) for reads in Reads}
    for answers in found.values():
        follow_switches(gateway, answers)
    return found


def follow_switches(gateway: Gateway, answers: RouteAnswers) -> None:
    """Update encoded answers when the switches that they depend on change."""
    gateway.follow_settings(
        lambda settings: answers.switch(
            support_acting_master=settings.support_acting_master, order_message_enable=settings.order_message_enable
        )
    )
