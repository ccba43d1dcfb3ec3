# SPDX-License-Identifier: Apache-2.0
"""Metrics of a gateway for Prometheus. No label contains a topic, a broker or another value that a peer chooses.

Names are those of rocketmq-rust's NameServer where it has one (``rocketmq_namesrv_*``), so that dashboards can be
shared. Metrics of the lakehouse are ``routelake_*``. Times are in seconds. Gauges are read at each scrape.

Counting a request costs the serving thread less than a microsecond. `RouteMeter` keeps plain numbers. Only the event
loop writes them, and only a scrape reads them.
"""

from __future__ import annotations

import collections
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from api.gateway.gateway import Gateway
from api.gateway.worker_metrics import WorkerMetrics
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from remoting.server.server import RemotingServer
from schemas.codes import RequestCode
from schemas.tables import STATE_TABLES
from security.admission.quotas import GatewayQuotas
from security.quotas import CHANGE_BYTES, FIELDS, HEARTBEAT_BYTES, Rate
from security.tls_rotation import Tls

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_FAST_BUCKETS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)
_SIZES: Final = (256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864)
_WAITS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


_REQUEST_NAMES: Final = {int(code): code.name for code in RequestCode}


class RouteMeter(Collector):
    """Latency of route answers, from the request to the write to the socket. Only the event loop writes it."""

    def __init__(self) -> None:
        """Start at zero."""
        self._counts = [0] * (len(_FAST_BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one answer."""
        self._counts[bisect_left(_FAST_BUCKETS, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterable[Metric]:
        """Return the histogram, for a scrape."""
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, _FAST_BUCKETS), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        name, text = "rocketmq_namesrv_route_request_latency", "Time to answer a route query over HTTP, in seconds."
        yield HistogramMetricFamily(name, text, buckets=buckets, sum_value=self._sum)


class Metrics:
    """Metrics of one gateway process, in a registry of their own. Listeners count. `text` is the answer to a scrape.

    Attributes:
        requests: Requests by listener (http, remoting), request and response code. For remoting the request is the name
            of the RequestCode, for HTTP the name of the operation. Codes are RocketMQ's.
        route_latency: Latency of every answered route query over HTTP.
        route_errors: Route queries answered with an error, by response code.
        registration_bytes: Size of registration bodies.
        registrations: Registrations by outcome.
        kv_latency: Time until a KV command was durable and applied.
        security: Refusals for reasons of security or protection, by reason.
        connections: Open connections by listener. The listeners set it.
        workers: Metrics of the other worker processes. None without others.
    """

    def __init__(self) -> None:
        """Start at zero. `observe` adds the gauges."""
        self.registry = CollectorRegistry()
        self.workers: WorkerMetrics | None = None
        self._bring: list[Callable[[], None]] = []
        self.route_latency = RouteMeter()
        self.registry.register(self.route_latency)
        registry = self.registry
        self.requests = Counter(
            "rocketmq_namesrv_requests",
            "Answered requests.",
            ("listener", "request", "code"),
            registry=registry,
        )
        self.route_errors = Counter(
            "rocketmq_namesrv_route_errors", "Route queries answered with an error.", ("code",), registry=registry
        )
        self.registration_bytes = Histogram(
            "rocketmq_namesrv_registration_body_bytes",
            "Size of registration bodies as sent.",
            buckets=_SIZES,
            registry=registry,
        )
        self.registrations = Counter(
            "rocketmq_namesrv_registration_events",
            "Registrations that are on the event log, by outcome.",
            ("listener", "outcome"),
            registry=registry,
        )
        self.kv_latency = Histogram(
            "rocketmq_namesrv_kv_persist_latency",
            "Time to answer a KV command, in seconds.",
            buckets=_WAITS,
            registry=registry,
        )
        self.security = Counter(
            "rocketmq_namesrv_security_events",
            "Refused requests and closed connections. "
            "Remoting: protocol-error, too-many-connections, accept-failed, evicted-unfinished, evicted-unread, "
            "evicted-idle, quota-connections, quota-tls-handshakes, not-encrypted, tls-handshake, tls-record, "
            "tls-deadline. "
            "HTTP has these with the prefix http-, and http-evicted-memory, http-evicted-body, http-evicted-long-poll, "
            "http-evicted-subscriber, http-evicted-history, http-bad-request. HTTP also has unauthorized, forbidden, "
            "cross-site, unknown-host, too-large, request-timeout, system-busy, quota-exceeded.",
            ("reason",),
            registry=registry,
        )
        self.connections = Gauge(
            "rocketmq_namesrv_active_connections", "Open connections.", ("listener",), registry=registry
        )

    def observe_access(self, mode: str, is_failing: Callable[[], bool]) -> Counter:
        """Add the metrics of refused requests, if there are accounts. Call it once.

        Args:
            mode: Mode of authorization that the operator has set.
            is_failing: Returns whether the current file of accounts cannot be used.

        Returns:
            Refusals by mode, reason and missing role. In mode `audit`, requests that `enforce` would refuse.
        """
        counter = Counter(
            "routelake_auth_refused",
            "Requests refused because a role is missing. In mode audit, requests that mode enforce would refuse.",
            ("mode", "reason", "role"),
            registry=None if mode == "off" else self.registry,
        )
        if mode != "off":
            text = "1 while the accounts file is invalid or unreadable, so that the previous accounts are used."
            Gauge("routelake_auth_file_failing", text, registry=self.registry).set_function(lambda: float(is_failing()))
        return counter

    def follow_wal(self, size_bytes: Callable[[], int]) -> None:
        """Add the gauge for the size of the -wal of an event log in SQLite. Call it once."""
        text = "Size of the event log's -wal. It grows while a process keeps a snapshot of the log open."
        Gauge("routelake_event_log_wal_bytes", text, registry=self.registry).set_function(size_bytes)

    def before_scrape(self, bring: Callable[[], None]) -> None:
        """Call back before every scrape, so that a counter in plain numbers can be copied into its metric."""
        self._bring.append(bring)

    def observe(self, gateway: Gateway) -> None:
        """Add the gauges of a gateway. Call it once."""
        began_s = time.monotonic()

        def gauge(name: str, text: str, look: Callable[[], float | None]) -> None:
            def number() -> float:
                value = look()
                return float("nan") if value is None else float(value)

            Gauge(name, text, registry=self.registry).set_function(number)

        gauge("rocketmq_nameserver_up", "1 while this gateway serves.", lambda: 1)
        gauge(
            "rocketmq_namesrv_active_brokers",
            "Live broker addresses.",
            lambda: sum(1 for _ in gateway.view.all_live_rows()),
        )
        gauge("rocketmq_namesrv_topics", "Topics with a route.", lambda: len(gateway.view.topics))
        gauge(
            "rocketmq_namesrv_route_freshness",
            "Age of the newest event in the routes, in seconds.",
            lambda: gateway.shown.event.age_s,
        )
        gauge("routelake_epoch", "Newest epoch in the routes.", lambda: gateway.view.epoch)
        gauge(
            "routelake_folded_offset",
            "Offset of the event log that the routes include.",
            lambda: gateway.shown.offset,
        )
        gauge(
            "routelake_commit_age_seconds",
            "Age of the newest epoch in the routes, in seconds.",
            lambda: gateway.follower.commit_age_s,
        )
        gauge(
            "routelake_fold_status_age_seconds",
            "Time since the last status of the fold, in seconds. Before the first one: since the start of the gateway.",
            lambda: time.monotonic() - began_s if gateway.fold.age_s is None else gateway.fold.age_s,
        )
        gauge(
            "routelake_event_time_ahead_seconds",
            "Time by which the event log is ahead of this machine's clock, in seconds.",
            lambda: gateway.live_view.event.ahead_s,
        )
        gauge(
            "routelake_event_log_failing",
            "1 while appends to the event log fail or do not finish.",
            lambda: gateway.log_failing,
        )
        gauge(
            "routelake_view_errors",
            "Failed reads of the tables since the start.",
            lambda: gateway.follower.errors,
        )
        gauge(
            "routelake_view_step_seconds",
            "Duration of the last step to a newer view, in seconds.",
            lambda: gateway.follower.last_step_s,
        )
        for collect in (_versions, _live_view_checks, _self_preservation):
            self.registry.register(_Collected(partial(collect, gateway)))

    def follow_tls(self, tls: Tls) -> None:
        """Add the metrics of the TLS certificate. Call it once."""
        self.registry.register(_Collected(partial(_certificate, tls)))

    def follow_quotas(self, quotas: GatewayQuotas) -> None:
        """Add the limits, and the refusals because of them. Call it once."""
        self.registry.register(_Collected(partial(_quotas, quotas)))

    def text(self) -> bytes:
        """Return the metrics in the exposition format."""
        for bring in self._bring:
            bring()
        return generate_latest(self.registry)


class _Collected(NamedTuple):
    """A function called at each scrape, as a `Collector`."""

    collect: Callable[[], Iterable[Metric]]


def _certificate(tls: Tls) -> Iterable[Metric]:
    """Report the certificate for new connections."""
    yield CounterMetricFamily("routelake_tls_reloads", "Changed certificates that were loaded.", tls.reloads)
    yield CounterMetricFamily(
        "routelake_tls_reload_failures", "Changed certificates that could not be loaded.", tls.reload_failures
    )
    yield GaugeMetricFamily(
        "routelake_tls_certificate_not_after_seconds",
        "Time at which the certificate in use expires, in seconds since 1970.",
        tls.not_after_s,
    )


def _quotas(quotas: GatewayQuotas) -> Iterable[Metric]:
    """Report the limits, their usage and the refusals. The quotas are a fixed set, and peers are not named."""
    refused = CounterMetricFamily("routelake_quota_refused", "Requests refused because of a quota.", labels=("quota",))
    limits = GaugeMetricFamily(
        "routelake_quota_limit",
        "Limit of each quota, for a rate in its period. Absent without a limit.",
        labels=("quota",),
    )
    used = GaugeMetricFamily(
        "routelake_quota_used_ratio",
        "Highest utilization of a burst limit by any peer, from 0 to 1.",
        labels=("quota",),
    )
    for name, field in FIELDS.items():
        refused.add_metric((name,), quotas.refused[name])
        limit: int | Rate | None = getattr(quotas.limits, field)
        if limit is not None:
            limits.add_metric((name,), limit.per_period if isinstance(limit, Rate) else limit)
    for name, ratio in quotas.used().items():
        used.add_metric((name,), ratio)
    charged = CounterMetricFamily(
        "routelake_quota_charged_bytes",
        "Estimated bytes of writes on the event log and in the tables.",
        labels=("quota",),
    )
    for name in (HEARTBEAT_BYTES, *CHANGE_BYTES.values()):
        charged.add_metric((name,), quotas.charged_bytes[name])
    yield from (refused, limits, used, charged)
    yield CounterMetricFamily(
        "routelake_quota_unwritten",
        "Heartbeats over the quota that were answered but not written, because the previous one was recent.",
        quotas.unwritten,
    )


def _live_view_checks(gateway: Gateway) -> Iterable[Metric]:
    """Report the results of comparing live view and tables, and the versions of their rules."""
    checks = gateway.replica.checks
    epochs = CounterMetricFamily(
        "routelake_live_view_epochs", "Epochs that were or were not compared with the live view.", labels=("result",)
    )
    epochs.add_metric(("compared",), checks.compared)
    epochs.add_metric(("unchecked",), checks.unchecked)
    yield epochs
    differences = CounterMetricFamily(
        "routelake_live_view_differences", "Rows that differed between the live view and the tables.", labels=("table",)
    )
    for table in STATE_TABLES:
        differences.add_metric((table.name,), checks.differences[table.name])
    yield differences
    yield GaugeMetricFamily(
        "routelake_live_view_fallback",
        "1 in fallback mode, in which the gateway serves the committed view.",
        float(gateway.replica.fallback_reason is not None),
    )
    yield GaugeMetricFamily(
        "routelake_live_view_waiting_bytes",
        "Bytes that this gateway wrote and the live view lacks. Above 64 MiB they are read from the event log.",
        gateway.replica.waiting_bytes,
    )
    rules = GaugeMetricFamily(
        "routelake_state_machine_version", "Version of the state machine. 0: no epoch yet.", labels=("of",)
    )
    rules.add_metric(("gateway",), STATE_MACHINE_VERSION)
    rules.add_metric(("tables",), gateway.follower.view.commit.rules_version)
    yield rules


def _self_preservation(gateway: Gateway) -> Iterable[Metric]:
    """Report whether expiry pauses, and how near it is to that. Nothing if it is off and there is no pause."""
    percent = gateway.settings.self_preservation_percent
    since_ms = gateway.live_view.view.commit.preserved_ms
    if not (percent or since_ms):
        return
    yield GaugeMetricFamily(
        "routelake_self_preservation", "1 while a pause keeps brokers without heartbeats routed.", float(since_ms > 0)
    )
    yield GaugeMetricFamily(
        "routelake_self_preservation_percent",
        "Threshold of self-preservation, in percent of the live brokers. 0: off.",
        percent,
    )
    yield GaugeMetricFamily(
        "routelake_self_preservation_seconds",
        "Duration of the current pause of expiry, in seconds.",
        max(0.0, (gateway.live_view.event.now_ms - since_ms) / 1000) if since_ms else 0.0,
    )
    counted = gateway.preservation.counted
    if counted is not None:
        yield GaugeMetricFamily(
            "routelake_silent_brokers",
            "Live broker addresses without a heartbeat for more than half of their timeout.",
            float(counted.silent),
        )


def _versions(gateway: Gateway) -> Iterable[Metric]:
    """Report routelake_delta_version by table. The tables are a fixed set."""
    found = Metric("routelake_delta_version", "Delta version of each table in the routes.", "gauge")
    for table, version in gateway.view.commit.versions.items():
        found.add_sample("routelake_delta_version", {"table": table}, version)
    yield found


class RemotingMeter:
    """Copies the counts of one remoting server into the metrics at each scrape. Used on its event loop.

    The server counts in plain numbers that only the event loop writes. A Prometheus counter would cost a route request
    more than the rest of its handling.
    """

    def __init__(self, server: RemotingServer, metrics: Metrics) -> None:
        """Copy the counts at every scrape from now on."""
        self._server = server
        self._metrics = metrics
        self._reported: collections.Counter[tuple[str, ...]] = collections.Counter()
        metrics.connections.labels("remoting").set_function(lambda: float(len(server.connections)))
        metrics.before_scrape(self._bring)

    def _bring(self) -> None:
        server, metrics = self._server, self._metrics
        answered = collections.Counter(server.answered)
        if server.inline is not None:
            answered.update({(server.inline.code, code): count for code, count in server.answered_inline.items()})
        for (request, code), count in answered.items():
            more = self._more(count, str(request), str(code))
            # No label may contain a value that a peer chooses.
            metrics.requests.labels("remoting", _REQUEST_NAMES.get(request, "other"), str(code)).inc(more)
            if request == RequestCode.GET_ROUTEINFO_BY_TOPIC and code:
                metrics.route_errors.labels(str(code)).inc(more)
        for reason, count in server.refusals.counts.items():
            metrics.security.labels(reason).inc(self._more(count, reason))

    def _more(self, count: int, *what: str) -> int:
        """Return the increase of a counter since the last scrape."""
        more = count - self._reported[what]
        self._reported[what] = count
        return more
