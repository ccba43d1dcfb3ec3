# SPDX-License-Identifier: Apache-2.0
"""Running a broker agent as a process, until it is told to stop."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
import uvloop

from clients.broker.agent import BrokerAgent
from clients.broker.config import BrokerConfig
from clients.credentials import Credentials
from clients.tls import ClientTls
from runtime.process import StopSignal

log = structlog.get_logger("routelake.broker")


def run_broker(
    config: BrokerConfig,
    namesrvs: Sequence[str],
    *,
    ignored: Sequence[str] = (),
    http_token: str = "",
    keys: Credentials | None = None,
    tls: ClientTls | None = None,
) -> int:
    """Run one until SIGTERM or SIGINT; returns 0 after a stop.

    Args:
        config: Of the broker.
        namesrvs: See `BrokerAgent`.
        ignored: Keys of the configuration file that mean nothing here, for one line in the log.
        http_token: For the HTTP API.
        keys: Sign what goes over remoting.
        tls: Encrypts; None: what is not ``https://`` is plain.

    Raises:
        SetupError: It cannot start as things are.
    """
    if ignored:
        log.info("settings that mean nothing to a broker without messages", keys=", ".join(ignored))
    agent = BrokerAgent(config, namesrvs, http_token=http_token, credentials=keys, tls=tls)
    return uvloop.run(_run(StopSignal().listen(), agent))


async def _run(stop_signal: StopSignal, agent: BrokerAgent) -> int:
    stop = stop_signal.event()
    try:
        await agent.start()
        reached = [result.address for result in agent.registrar.last_results if result.error is None]
        log.info(
            "serving",
            broker=agent.config.broker_name,
            id=agent.config.broker_id,
            address=agent.config.broker_addr,
            topics=len(agent.topics.table),
            registered_with=reached,
        )
        await stop.wait()
    finally:
        await agent.stop()
    log.info("stopped", broker=agent.config.broker_name)
    return 0
