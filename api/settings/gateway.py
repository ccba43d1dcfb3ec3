# SPDX-License-Identifier: Apache-2.0
"""Settings of a gateway: those of its start, overridden by those that UPDATE_NAMESRV_CONFIG has stored since."""

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
    """Settings of one gateway process. Times are in seconds unless the name has another unit.

    ``lake_dir`` has the tables, and the gateway's own files. With ``lake_url`` the tables are there instead.

    ``clock_interval_s`` is RocketMQ's scanNotActiveBrokerInterval: the maximum delay until a silent broker is noticed.
    A silence of the log of ``gap_s``, which is always longer, counts against no broker. If the clock leaps by more than
    ``max_clock_leap_s``, its time is refused (ADR 22; 0: every time is accepted).

    The settings from ``support_acting_master`` to ``config_black_list`` are NamesrvConfig's, under its names.
    ``reads`` chooses the view for requests that name none. If a write is not in the live view after
    ``live_view_wait_s``, it is answered as durable, without an outcome.
    ``allow_config_update`` lets UPDATE_NAMESRV_CONFIG change the live settings (`api.settings.keys.Use`), for all
    gateways at once.

    If more than ``self_preservation_percent`` of the live brokers would expire within one timeout, expiry pauses
    (ADR 14; 0: never), for at most ``self_preservation_limit_s``. The check runs every ``preservation_interval_s``.
    ``address`` is the address of the NameServer for clients, IP:PORT, for `/rocketmq/nsaddr`. If it is empty, the id
    has the address. ``shown_properties`` are further keys that GET_NAMESRV_CONFIG shows.
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
    """Return the settings of the start, overridden by those that UPDATE_NAMESRV_CONFIG has stored since.

    Args:
        settings: Settings at the start.
        stored: Values by key of the namespace NAMESRV_CONFIG. Other keys and invalid values are ignored.
    """
    live: dict[str, Any] = {}
    for name, text in stored.items():
        if name in SWITCHES and text is not None:
            value = parse_percent(text) if name in OWN_KEYS else is_true(text)
            if value is not None:
                live[SWITCHES[name].field] = value
    return replace(settings, **live) if live else settings


def shown_settings(settings: GatewaySettings) -> dict[str, str]:
    """Return the keys of RocketMQ that have an effect in routelake, sorted, with their values as Java writes them."""
    shown = dict(settings.shown_properties)
    for key in KEYS.values():
        if key.use in (Use.LIVE, Use.START) and key.name not in BLACK_LIST and hasattr(settings, key.field):
            shown[key.name] = to_text(getattr(settings, key.field))
    for key in OWN_KEYS.values():
        if value := getattr(settings, key.field):  # a key that is off is not shown, as in RocketMQ
            shown[key.name] = to_text(value)
    return dict(sorted(shown.items()))
