# SPDX-License-Identifier: Apache-2.0
"""Blocks about properties files: `namesrv-keys`, `namesrv-ignored` and `kafka-properties`."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from api.settings.gateway import GatewaySettings
from api.settings.keys import KEYS, OWN_KEYS, REFUSED, Key, Use, to_text
from dev.reference.markdown import code, sentence, table
from eventlog.kafka.access.keys import PROPERTIES
from remoting.server.settings import RemotingSettings

_EFFECTS: Final = {
    Use.LIVE: "live",
    Use.START: "at the start",
    Use.REFUSED: "refused if true",
    Use.IGNORED: "ignored",
}
_NETWORK: Final = RemotingSettings()
_GATEWAY: Final[dict[str, Any]] = {field.name: field.default for field in dataclasses.fields(GatewaySettings)}
_DEFAULTS: Final[dict[str, object]] = {
    **_GATEWAY,
    "scan_not_active_broker_interval": round(_GATEWAY["clock_interval_s"] * 1000),
    "server_channel_max_idle_time_seconds": round(_NETWORK.idle_timeout_s),
    "server_socket_backlog": _NETWORK.backlog,
    "bind_address": "127.0.0.1",
    "listen_port": 9876,
    **{KEYS[name].field: False for name in REFUSED},
}
"""Name in Python -> value without the key."""


def namesrv() -> str:
    """Return the keys of namesrv.properties that are not ignored, and routelake's own live key."""
    rows = ((key.name, key.kind, _default(key), _EFFECTS[key.use], sentence(key.meaning)) for key in _effective())
    return table(("key", "type", "default", "takes effect", "meaning"), rows)


def ignored() -> str:
    """Return the keys that are accepted and ignored."""
    return ", ".join(sorted((code(key.name) for key in KEYS.values() if key.use is Use.IGNORED), key=str.lower)) + "."


def kafka() -> str:
    """Return the accepted properties of Kafka's clients."""
    return table(("property", "values and meaning"), ((code(name), text) for name, text in PROPERTIES.items()))


def _effective() -> list[Key]:
    return [*(key for key in KEYS.values() if key.use is not Use.IGNORED), *OWN_KEYS.values()]


def _default(key: Key) -> str:
    return code(to_text(_DEFAULTS.get(key.field, 0)))
