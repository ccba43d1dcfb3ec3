# SPDX-License-Identifier: Apache-2.0
r"""GET_NAMESRV_CONFIG (319) and UPDATE_NAMESRV_CONFIG (318): the settings that they show and may change. No I/O.

The 318 of a stock NameServer writes a file of the sender's choice into the server's file system, unless a black list
names the key (CVE-2023-37582). In routelake the command is off unless the gateway was started with it. It changes only
an allow-list of switches (`api.settings.keys.SWITCHES`), and writes no file. Each change is a PUT_KV_CONFIG event in a
namespace of its own. So it is on the log with its sender, and in routeChangeTable. It is in force at every gateway of
that log, also after a restart.

====================================  ==============================================================================
body                                  answer
====================================  ==============================================================================
(any, while the command is off)       NO_PERMISSION
none                                  OK, nothing happens
a malformed ``\uxxxx``  escape        SYSTEM_ERROR "string2Properties error"
a black-listed key among others       NO_PERMISSION "Can not update config in black list.", nothing is changed
a key that only a start can set       NO_PERMISSION, nothing is changed (RocketMQ: OK)
an unknown key                        OK, that key changes nothing
selfPreservationPercent=150           SYSTEM_ERROR, nothing is changed
====================================  ==============================================================================

Sources (5.5.0): DefaultRequestProcessor.updateConfig, getConfig, org.apache.rocketmq.remoting.Configuration.
"""

from __future__ import annotations

from typing import Final

from api.settings.gateway import GatewaySettings, shown_settings
from api.settings.keys import BLACK_LIST, KEYS, OWN_KEYS, SWITCHES, parse_percent
from remoting.codec.commands import RefusedError
from schemas.codes import ResponseCode
from schemas.properties import PropertiesError, is_true, parse_body

_MAX_BODY_BYTES: Final = 64 * 1024
"""Maximum size of the body of a 318, in bytes. Stock peers send a few lines."""


def read_update(body: bytes, settings: GatewaySettings) -> dict[str, bool | int]:
    """Read the switches that a 318 sets.

    Raises:
        RefusedError: The command is off, or asks for an impossible change. No part of it may be applied.
    """
    if not settings.allow_config_update:
        raise RefusedError(
            "UPDATE_NAMESRV_CONFIG is off here. Start the gateway with --allow-config-update to allow it.",
            code=ResponseCode.NO_PERMISSION,
        )
    if len(body) > _MAX_BODY_BYTES:
        raise RefusedError(f"a body of {len(body)} bytes: at most {_MAX_BODY_BYTES} are accepted")
    try:
        wanted = parse_body(body)
    except PropertiesError as error:
        raise RefusedError("string2Properties error") from error
    forbidden = BLACK_LIST | set(settings.config_black_list.split(";"))
    if not forbidden.isdisjoint(wanted):
        raise RefusedError("Can not update config in black list.", code=ResponseCode.NO_PERMISSION)
    fixed = sorted(name for name in wanted if name in KEYS and name not in SWITCHES)
    if fixed:
        raise RefusedError(
            f"{', '.join(fixed)}: fixed while the gateway runs. What can be changed: {', '.join(sorted(SWITCHES))}",
            code=ResponseCode.NO_PERMISSION,
        )
    return {name: _value(name, text) for name, text in wanted.items() if name in SWITCHES}


def encode_config(settings: GatewaySettings) -> bytes:
    """Return the body of a 319: ``key=value`` lines."""
    return "".join(f"{name}={value}\n" for name, value in shown_settings(settings).items()).encode()


def _value(name: str, text: str) -> bool | int:
    if name not in OWN_KEYS:
        return is_true(text)
    percent = parse_percent(text)
    if percent is None:
        raise RefusedError(f"{name}={text!r}: expected a share of the live brokers, 1 to 99, or 0 for off")
    return percent
