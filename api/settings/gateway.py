# SPDX-License-Identifier: Apache-2.0
"""Settings of a gateway: those it was started with, under those that UPDATE_NAMESRV_CONFIG has stored since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from api.settings.keys import BLACK_LIST, KEYS, OWN_KEYS, SWITCHES, Use, parse_percent, to_text
from schemas.properties import is_true


class Reads(StrEnum):
    """View that answers show: the latest epoch and the later events of the log, or the latest epoch alone."""

    LIVE = "live"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of one gateway process. Times in seconds unless named otherwise.

    ``lake_dir`` has the tables, and what the gateway itself writes beside them; with ``lake_url`` they are there.

    ``clock_interval_s`` is RocketMQ's scanNotActiveBrokerInterval: how late a silent broker may be noticed. A silence
    of the log of ``gap_s``, always longer than that, counts against no broker. A clock that leaps by more than
    ``max_clock_leap_s`` is not believed (ADR 22; 0: every clock is).

    From ``support_acting_master`` to ``config_black_list`` they are NamesrvConfig's, under its names.
    ``reads`` chooses what answers show where a request does not say. If a write is not in the live view after
    ``live_view_wait_s``, it is answered as durable, without an outcome.
    ``allow_config_update`` lets UPDATE_NAMESRV_CONFIG change those that are live (`api.settings.keys.Use`), for all
    gateways at once.

    If more than ``self_preservation_percent`` of the live brokers would expire within one timeout, expiry pauses
    (ADR 14; 0: never), for ``self_preservation_limit_s`` at most. It is looked at every ``preservation_interval_s``.
    ``address`` is where clients reach the NameServer, IP:PORT, for `/rocketmq/nsaddr`; empty: the id says so.
    ``shown_properties`` is what GET_NAMESRV_CONFIG shows besides.
    """

    gateway_id: str
    lake_dir: Path
    address: str = ""
    lake_url: str = ""
    live_view_wait_s: float = 10.0
    clock_interval_s: float = 5.0
    gap_s: float = 10.0
    max_clock_leap_s: float = 3600.0
    poll_s: float = 0.1
    support_acting_master: bool = False
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    delete_topic_with_broker_registration: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    notify_min_broker_id_changed: bool = False
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    config_black_list: str = ""
    allow_config_update: bool = False
    self_preservation_percent: int = 0
    self_preservation_limit_s: float = 3600.0
    preservation_interval_s: float = 1.0
    reads: Reads = Reads.LIVE
    shown_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def lake(self) -> str:
        """Directory or URL of the tables."""
        return self.lake_url or str(self.lake_dir)


def with_stored(settings: GatewaySettings, stored: Mapping[str, str | None]) -> GatewaySettings:
    """The settings a gateway was started with, under those that UPDATE_NAMESRV_CONFIG has stored since.

    Args:
        settings: At the start.
        stored: {key: value} of the namespace NAMESRV_CONFIG; what is no live key, or no value for it, is left alone.
    """
    live: dict[str, Any] = {}
    for name, text in stored.items():
        if name in SWITCHES and text is not None:
            value = parse_percent(text) if name in OWN_KEYS else is_true(text)
            if value is not None:
                live[SWITCHES[name].field] = value
    return replace(settings, **live) if live else settings


def shown_settings(settings: GatewaySettings) -> dict[str, str]:
    """The keys of RocketMQ's that mean something here, sorted, and their values as Java writes them."""
    shown = dict(settings.shown_properties)
    for key in KEYS.values():
        if key.use in (Use.LIVE, Use.START) and key.name not in BLACK_LIST and hasattr(settings, key.field):
            shown[key.name] = to_text(getattr(settings, key.field))
    for key in OWN_KEYS.values():
        if value := getattr(settings, key.field):  # off, it is as if there were none, as in RocketMQ
            shown[key.name] = to_text(value)
    return dict(sorted(shown.items()))
