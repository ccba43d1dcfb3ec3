# SPDX-License-Identifier: Apache-2.0
"""Settings of the route client, units in names."""

from __future__ import annotations

from dataclasses import dataclass, field

from clients.credentials import Credentials
from clients.route.rotation import BackOff
from clients.tls import ClientTls
from schemas.errors import SetupError


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """Defaults are those of RocketMQ's client (ClientConfig, DefaultMQProducer).

    Attributes:
        namespace: Put before every topic; "" for none. None takes it from an address such as MQ_INST_1_abc.mq:9876.
        poll_name_server_interval_s: How often a topic is asked for, over remoting; over HTTP the longest pause.
        jitter: Each pause is shortened at random by up to this part, so that clients do not ask in step.
        mq_client_api_timeout_s: For one NameServer to answer.
        default_topic_queue_nums: Queues per broker for a topic that does not exist yet.
        vip_channel_enabled: Send to brokers' fast ports, two below their own.
        send_latency_enable: Avoid brokers by how sends went. Not for ordered messages.
        start_detector_enable: Ask brokers that were out of reach whether they are back.
        detect_interval_s: How often.
        detect_timeout_s: For its answer.
        back_off: How long a failing NameServer is left alone.
        long_poll_s: How long one long poll waits.
        max_long_polls: Topics followed by long poll at a time; the others are polled.
        http_token: Bearer token for a routelake that protects its reads.
        credentials: Keys that sign what is asked over remoting.
        tls: Encrypts; None: what is not ``https://`` is plain.
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
        """Refuse what would ask without pause or never.

        Raises:
            SetupError: A setting out of range.
        """
        for name in ("poll_name_server_interval_s", "mq_client_api_timeout_s", "detect_interval_s", "long_poll_s"):
            if not 0 < getattr(self, name) <= 86_400:
                raise SetupError(f"{name} must be more than 0 and at most 86400, not {getattr(self, name)}")
        if not 0 <= self.jitter < 1:
            raise SetupError(f"jitter must be 0 or more and less than 1, not {self.jitter}")
