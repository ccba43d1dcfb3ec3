# SPDX-License-Identifier: Apache-2.0
"""Settings of the route client. Names of settings have their units."""

from __future__ import annotations

from dataclasses import dataclass, field

from clients.credentials import Credentials
from clients.route.rotation import BackOff
from clients.tls import ClientTls
from schemas.errors import SetupError


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """Settings of the route client. The defaults are those of RocketMQ's client (ClientConfig, DefaultMQProducer).

    Attributes:
        namespace: Prefix of every topic, or "" for no prefix. None: the namespace in an address such as
            MQ_INST_1_abc.mq:9876.
        poll_name_server_interval_s: Time between two requests for a topic over remoting. Over HTTP, the maximum pause.
        jitter: Maximum part by which each pause is shortened at random, so that clients do not ask at the same time.
        mq_client_api_timeout_s: Time limit for the answer of one NameServer.
        default_topic_queue_nums: Number of queues per broker for a topic that does not exist yet.
        vip_channel_enabled: Whether to send to the fast ports of brokers, two below their own.
        send_latency_enable: Whether to avoid brokers by the results of sends. Not for ordered messages.
        start_detector_enable: Whether to check again brokers that were not reachable.
        detect_interval_s: Time between two checks of a broker.
        detect_timeout_s: Time limit for the answer to a check.
        back_off: Time for which a failing NameServer is skipped.
        long_poll_s: Duration of one long poll.
        max_long_polls: Maximum number of topics that are followed by long poll. Other topics are polled.
        http_token: Bearer token for a routelake that protects its reads.
        credentials: Credentials that sign remoting requests.
        tls: TLS settings of all connections. None: all connections except ``https://`` are plain.
    """

    namespace: str | None = None
    poll_name_server_interval_s: float = 30.0
    jitter: float = 0.2
    mq_client_api_timeout_s: float = 3.0
    default_topic_queue_nums: int = 4
    vip_channel_enabled: bool = False
    send_latency_enable: bool = False
    start_detector_enable: bool = False
    detect_interval_s: float = 2.0
    detect_timeout_s: float = 0.2
    back_off: BackOff = field(default_factory=BackOff)
    long_poll_s: float = 20.0
    max_long_polls: int = 64
    http_token: str | None = field(default=None, repr=False)
    credentials: Credentials | None = None
    tls: ClientTls | None = None

    def __post_init__(self) -> None:
        """Refuse settings with which the client would ask without pause or never.

        Raises:
            SetupError: A setting is out of range.
        """
        for name in ("poll_name_server_interval_s", "mq_client_api_timeout_s", "detect_interval_s", "long_poll_s"):
            if not 0 < getattr(self, name) <= 86_400:
                raise SetupError(f"{name} must be more than 0 and at most 86400, not {getattr(self, name)}")
        if not 0 <= self.jitter < 1:
            raise SetupError(f"jitter must be 0 or more and less than 1, not {self.jitter}")
