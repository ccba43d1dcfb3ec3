# SPDX-License-Identifier: Apache-2.0
"""Settings of a gateway at its start: the file's keys applied to the settings of each part."""

from __future__ import annotations

import math
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from api.settings.gateway import GatewaySettings
from api.settings.namesrv import NamesrvProperties
from remoting.server.settings import RemotingSettings
from schemas.errors import SetupError
from schemas.properties import PropertiesError, parse_file
from security.tls_config import TlsOptions, TlsSettings, tls_settings

_MIB: Final = 1024 * 1024

Address = tuple[str, int]


def listen_address(properties: NamesrvProperties, default: Address) -> Address:
    """Return the address to listen on when neither command line nor environment sets it.

    Without bindAddress a stock NameServer listens on every interface; here that has to be asked for.
    """
    host = str(properties.values.get("bindAddress") or default[0])
    port = properties.values.get("listenPort", default[1])
    return host, int(port)


def gateway_settings(
    settings: GatewaySettings, properties: NamesrvProperties, remoting: RemotingSettings, listen: Address
) -> GatewaySettings:
    """The settings with NamesrvConfig's keys of the file, and what GET_NAMESRV_CONFIG shows of the server."""
    known = {field.name for field in fields(GatewaySettings)}
    given: dict[str, Any] = {name: value for name, value in properties.fields().items() if name in known}
    scan_ms = properties.values.get("scanNotActiveBrokerInterval")
    if scan_ms is not None:
        given["clock_interval_s"] = int(scan_ms) / 1000
        given["gap_s"] = max(settings.gap_s, 2 * int(scan_ms) / 1000)
    idle_s = remoting.idle_timeout_s
    shown = {
        "bindAddress": listen[0],
        "listenPort": str(listen[1]),
        "serverChannelMaxIdleTimeSeconds": "0" if math.isinf(idle_s) else str(int(idle_s)),
        "serverSocketBacklog": str(remoting.backlog),
        "scanNotActiveBrokerInterval": str(scan_ms or int(settings.clock_interval_s * 1000)),
    }
    return replace(settings, **given, shown_properties=shown)


def remoting_settings(properties: NamesrvProperties, *, reuse_port: bool = False) -> RemotingSettings:
    """NettyServerConfig's keys of the file.

    serverChannelMaxIdleTimeSeconds 0 means that silence is no reason to close, as in Netty's IdleStateHandler.

    Raises:
        SetupError: A ROUTELAKE_REMOTING_... variable is no number, or too small.
    """
    defaults = RemotingSettings()
    memory_mib = _from_environment("ROUTELAKE_REMOTING_MEMORY_MIB", defaults.max_received_bytes // _MIB, 16)
    settings = RemotingSettings(
        reuse_port=reuse_port,
        max_connections=_from_environment("ROUTELAKE_REMOTING_CONNECTIONS", defaults.max_connections, 1),
        # The largest frame has to fit in beside another one.
        max_received_bytes=max(memory_mib * _MIB, 2 * defaults.frame_limit_bytes),
        max_unread_bytes=memory_mib * _MIB // 2,
    )
    idle_s = properties.values.get("serverChannelMaxIdleTimeSeconds")
    if idle_s is not None:
        settings = msgspec.structs.replace(settings, idle_timeout_s=float(idle_s) or math.inf)
    backlog = properties.values.get("serverSocketBacklog")
    return settings if backlog is None else msgspec.structs.replace(settings, backlog=int(backlog))


def _from_environment(name: str, default: int, lowest: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < lowest:
        raise SetupError(f"{name}={text!r}: a whole number from {lowest} on is needed; without it, it is {default}")
    return int(text)


def read_tls(config: Path | None, options: TlsOptions) -> TlsSettings | None:
    """Settings from RocketMQ's tls.properties and the command line, which wins.

    Args:
        config: Path of the file; None: there is no file.
        options: Options of the command line.

    Returns:
        The settings; None: nothing is encrypted.

    Raises:
        SetupError: The settings cannot be read, or contradict each other.
    """
    properties: dict[str, str] = {}
    if config is not None:
        try:
            properties = {entry.key: entry.value for entry in parse_file(config.read_bytes())}
        except OSError as error:
            raise SetupError(
                f"--tls-config {config}: {error.strerror or error}. "
                "Name a RocketMQ tls.properties, or leave the option out."
            ) from error
        except PropertiesError as error:
            raise SetupError(f"{config}: {error}.") from error
    return tls_settings(properties, "" if config is None else str(config), options)
