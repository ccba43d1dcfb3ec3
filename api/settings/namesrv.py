# SPDX-License-Identifier: Apache-2.0
"""Contents of a namesrv.properties, checked. Pure but for `read`, which reads the file.

The file is accepted as it is: values mean what they mean to a stock NameServer, down to ``TRUE`` with a blank behind
it, which is false (said in a warning). If the stock server would accept a mistake without a message, the start is
refused: an unknown key, an invalid number, one key with two values.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from api.settings.keys import KEYS, REFUSED, Key, Use, nearest
from schemas.codes import MAX_INT
from schemas.errors import SetupError
from schemas.properties import PropertiesError, Property, is_true, parse_file, parse_int

Value = bool | int | str

_BOUNDS: Final = {"listenPort": (0, 65535), "scanNotActiveBrokerInterval": (1, MAX_INT)}
"""Bounds other than 0 or more. With an interval of 0 a stock NameServer does not start, either."""


class NamesrvProperties(msgspec.Struct, frozen=True):
    """The keys that take effect, and what there is to warn of.

    Attributes:
        values: Key to value, keys of use LIVE and START only.
        warnings: Sentences for the operator.
    """

    values: dict[str, Value] = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def fields(self) -> dict[str, Value]:
        """The values by their names in Python."""
        return {KEYS[name].field: value for name, value in self.values.items()}


def read(path: Path) -> NamesrvProperties:
    """Read and check a file.

    Raises:
        SetupError: The file cannot be read or accepted; the message names the line and what to do.
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
    """Decide about every entry of a file.

    Args:
        entries: Entries as parsed.
        source: The file's name, for messages.
        faults: Errors of lines that are no entries.

    Raises:
        SetupError: As `read`; the message names all errors.
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
    """The value as MixAll.properties2Object takes it; None where it does not."""
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
