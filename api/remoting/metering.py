# SPDX-License-Identifier: Apache-2.0
"""What a remoting server has counted, brought into the metrics whenever they are scraped.

The server counts in plain numbers that only the event loop writes: a Prometheus counter would cost a route request more
than all that happens to it besides.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from api.gateway.metrics import Metrics
from remoting.server.server import RemotingServer
from schemas.codes import RequestCode

_NAMES: Final = {int(code): code.name for code in RequestCode}


class RemotingMeter:
    """Reports one server's counts. Lives on its event loop."""

    def __init__(self, server: RemotingServer, metrics: Metrics) -> None:
        """From now on every scrape brings them."""
        self._server = server
        self._metrics = metrics
        self._reported: Counter[tuple[str, ...]] = Counter()
        metrics.connections.labels("remoting").set_function(lambda: float(len(server.connections)))
        metrics.before_scrape(self._bring)

    def _bring(self) -> None:
        server, metrics = self._server, self._metrics
        answered = Counter(server.answered)
        if server.inline is not None:
            answered.update({(server.inline.code, code): count for code, count in server.answered_inline.items()})
        for (request, code), count in answered.items():
            more = self._more(count, str(request), str(code))
            # No label may hold what a peer chooses.
            metrics.requests.labels("remoting", _NAMES.get(request, "other"), str(code)).inc(more)
            if request == RequestCode.GET_ROUTEINFO_BY_TOPIC and code:
                metrics.route_errors.labels(str(code)).inc(more)
        for reason, count in server.refusals.counts.items():
            metrics.security.labels(reason).inc(self._more(count, reason))

    def _more(self, count: int, *what: str) -> int:
        """How many came since the last scrape."""
        more = count - self._reported[what]
        self._reported[what] = count
        return more
