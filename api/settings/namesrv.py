# SPDX-License-Identifier: Apache-2.0
"""Contents of a namesrv.properties, checked, and applied to the settings of each part of a gateway.

The file is accepted as it is. Values have the meaning that a stock NameServer gives them: even ``TRUE`` followed by a
blank is false, with a warning. If the stock server would accept a mistake without a message, the start is refused. Such
mistakes are an unknown key, an invalid number, and one key with two values.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from api.settings.gateway import GatewaySettings
from api.settings.keys import KEYS, REFUSED, Key, Use, nearest
from remoting.server.settings import RemotingSettings
from schemas.codes import MAX_INT
from schemas.errors import SetupError
from schemas.properties import PropertiesError, Property, is_true, parse_file, parse_int
from security.tls_config import TlsOptions, TlsSettings, tls_settings

Value = bool | int | str

_BOUNDS: Final = {"listenPort": (0, 65535), "scanNotActiveBrokerInterval": (1, MAX_INT)}
"""Bounds that are not 0 or more. With an interval of 0 a stock NameServer does not start, either."""


class NamesrvProperties(msgspec.Struct, frozen=True):
    """Keys that take effect, and warnings.

    Attributes:
        values: Value by key, only for keys of use LIVE and START.
        warnings: Sentences for the operator.
    """

    values: dict[str, Value] = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def fields(self) -> dict[str, Value]:
        """Return the values by their names in Python."""
        return {KEYS[name].field: value for name, value in self.values.items()}


def read(path: Path) -> NamesrvProperties:
    """Read and check a file.

    Raises:
        SetupError: The file cannot be read or accepted. The message names the line and the action.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SetupError(
            f"--config {path}: {error.strerror or error}. Name a RocketMQ namesrv.properties, or leave the option out."
        ) from error
    try:
        return check(parse_file(data), str(path))
    except PropertiesError as error:
        return check(error.entries, str(path), [f"{path}: {fault}." for fault in error.faults])


def check(entries: list[Property], source: str, faults: Iterable[str] = ()) -> NamesrvProperties:
    """Check every entry of a file.

    Args:
        entries: Entries as parsed.
        source: The file's name, for messages.
        faults: Errors of lines that are not entries.

    Raises:
        SetupError: As `read`. The message names all errors.
    """
    wrong = list(faults)
    last: dict[str, Property] = {}
    for entry in entries:
        known = last.get(entry.key)
        if known is not None and known.value != entry.value:
            wrong.append(
                f"{source}: {entry.key} is {known.value!r} in line {known.line} and {entry.value!r} in line "
                f"{entry.line}: remove one (RocketMQ takes the last)."
            )
        last[entry.key] = entry
    values: dict[str, Value] = {}
    warnings: list[str] = []
    ignored: list[str] = []
    for entry in last.values():
        key = KEYS.get(entry.key)
        if key is None:
            wrong.append(_unknown(entry, source))
            continue
        if key.use is Use.IGNORED:
            ignored.append(entry.key)
            continue
        value = _value(key, entry, source, warnings)
        if value is None:
            wrong.append(_unusable(key, entry, source))
        elif key.use is not Use.REFUSED:
            values[entry.key] = value
        elif value:
            wrong.append(f"{source}, line {entry.line}: {entry.key}=true is not possible: {REFUSED[entry.key]}.")
    if wrong:
        raise SetupError(" ".join(wrong))
    if ignored:
        warnings.append(f"{source}: these keys have no meaning here and are ignored: {', '.join(sorted(ignored))}")
    return NamesrvProperties(values, tuple(warnings))


def _unknown(entry: Property, source: str) -> str:
    name = nearest(entry.key)
    hint = f"Did you mean {name}?" if name else "RocketMQ's NameServer knows no such key."
    return f"{source}, line {entry.line}: unknown key {entry.key!r}. {hint}"


def _value(key: Key, entry: Property, source: str, warnings: list[str]) -> Value | None:
    """Return the value as MixAll.properties2Object reads it. None if it does not accept the value."""
    if key.kind == "boolean":
        value = is_true(entry.value)
        if not value and entry.value.lower() != "false":
            warnings.append(
                f"{source}, line {entry.line}: {key.name}={entry.value!r} counts as false, as in RocketMQ: "
                "only the word true, without blanks after it, is true"
            )
        return value
    if key.kind == "String":
        return entry.value.strip()
    number = parse_int(entry.value)
    least, most = _bounds(key)
    return number if number is not None and least <= number <= most else None


def _unusable(key: Key, entry: Property, source: str) -> str:
    least, most = _bounds(key)
    return (
        f"{source}, line {entry.line}: {key.name}={entry.value!r} is not usable: expected a number"
        f"{f' from {least} to {most}' if most < MAX_INT else f', {least} or more'}, without blanks after it."
    )


def _bounds(key: Key) -> tuple[int, int]:
    return _BOUNDS.get(key.name, (0, MAX_INT))


_MIB: Final = 1024 * 1024

Address = tuple[str, int]


def listen_address(properties: NamesrvProperties, default: Address) -> Address:
    """Return the address to listen on if neither command line nor environment sets it.

    Without bindAddress a stock NameServer listens on every interface. routelake does so only if bindAddress says so.
    """
    host = str(properties.values.get("bindAddress") or default[0])
    port = properties.values.get("listenPort", default[1])
    return host, int(port)


def gateway_settings(
    settings: GatewaySettings, properties: NamesrvProperties, remoting: RemotingSettings, listen: Address
) -> GatewaySettings:
    """Return the settings with NamesrvConfig's keys of the file, and the keys that GET_NAMESRV_CONFIG shows."""
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
    """Return the settings with NettyServerConfig's keys of the file.

    If serverChannelMaxIdleTimeSeconds is 0, an idle connection is not closed, as in Netty's IdleStateHandler.

    Raises:
        SetupError: A ROUTELAKE_REMOTING_... variable is not a number, or is too small.
    """
    defaults = RemotingSettings()
    memory_mib = _from_environment("ROUTELAKE_REMOTING_MEMORY_MIB", defaults.max_received_bytes // _MIB, 16)
    settings = RemotingSettings(
        reuse_port=reuse_port,
        max_connections=_from_environment("ROUTELAKE_REMOTING_CONNECTIONS", defaults.max_connections, 1),
        # There must be room for two of the largest frames.
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
    """Return the settings from RocketMQ's tls.properties and the command line, which takes precedence.

    Args:
        config: Path of the file. None: there is no file.
        options: Options of the command line.

    Returns:
        Settings. None: no connection is encrypted.

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
