# SPDX-License-Identifier: Apache-2.0
"""Settings that a gateway shows, over remoting and HTTP: no paths, no black lists, nothing of a JVM's."""

from __future__ import annotations

from api.settings.gateway import GatewaySettings
from api.settings.keys import BLACK_LIST, KEYS, OWN_KEYS, Use, to_text


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
