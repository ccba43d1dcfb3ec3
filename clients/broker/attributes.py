# SPDX-License-Identifier: Apache-2.0
"""Attributes of a topic, and the edits that change them: ``+message.type=FIFO,-reserve.time``. No I/O.

Sources (5.5.0): org.apache.rocketmq.common.attribute.AttributeParser, AttributeUtil, EnumAttribute, LongRangeAttribute,
org.apache.rocketmq.common.TopicAttributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from schemas.codes import MAX_LONG
from schemas.errors import BadRequestError

MESSAGE_TYPE: Final = "message.type"
RESERVE_TIME: Final = "reserve.time"
MIXED: Final = "MIXED"


_LONG = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class _Attribute(NamedTuple):
    changeable: bool
    values: frozenset[str] | None
    """Allowed values. None: a number from -1 to MAX_LONG."""


ALL: Final[Mapping[str, _Attribute]] = {
    "queue.type": _Attribute(False, frozenset({"BatchCQ", "SimpleCQ"})),
    "cleanup.policy": _Attribute(False, frozenset({"DELETE", "COMPACTION"})),
    MESSAGE_TYPE: _Attribute(True, frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", MIXED})),
    RESERVE_TIME: _Attribute(True, None),
}


def parse_edits(text: str | None) -> dict[str, str]:
    """Edits as mqadmin sends them (AttributeParser.parseToMap).

    Returns:
        Values by signed key. The value of a removal is "".

    Raises:
        BadRequestError: A part is neither ``+key=value`` nor ``-key``, or a key appears twice.
    """
    edits: dict[str, str] = {}
    for part in (text or "").rstrip(",").split(",") if text else []:
        key, equals, value = part.partition("=")
        if equals and ("+" not in key or not value):
            raise BadRequestError(f"add/alter attribute format is wrong: {part}")
        if not equals and "-" not in key:
            raise BadRequestError(f"delete attribute format is wrong: {part}")
        if key in edits:
            raise BadRequestError(f"key duplication: {key}")
        edits[key] = value
    return edits


def alter(current: Mapping[str, str] | None, edits: Mapping[str, str]) -> dict[str, str]:
    """Apply edits to attributes (AttributeUtil.alterCurrentAttributes).

    Args:
        current: Attributes before the edits. None: the topic is being created, and only ``+`` is allowed.
        edits: Values by signed key.

    Raises:
        BadRequestError: A key is unknown or cannot be changed, a value is not allowed, or an edit does not apply.
    """
    result = dict(current or {})
    seen = set()
    for signed, value in edits.items():
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key:
            raise BadRequestError("kv string format wrong.")
        if key in seen:
            raise BadRequestError(f"alter duplication key. key: {key}")
        seen.add(key)
        if current is None and sign != "+":
            raise BadRequestError(f"only add attribute is supported while creating topic. key: {key}")
        if sign not in ("+", "-"):
            raise BadRequestError(f"wrong format key: {key}")
        if sign == "-" and key not in result:
            raise BadRequestError(f"attempt to delete a nonexistent key: {key}")
        _check(key, value, creating=current is None, removing=sign == "-")
        if sign == "+":
            result[key] = value
        else:
            del result[key]
    return result


def _check(key: str, value: str, *, creating: bool, removing: bool) -> None:
    attribute = ALL.get(key)
    if attribute is None:
        raise BadRequestError(f"unsupported key: {key}")
    if not creating and not attribute.changeable:
        raise BadRequestError(f"attempt to update an unchangeable attribute. key: {key}")
    if removing:
        return
    if attribute.values is not None and value not in attribute.values:
        raise BadRequestError(f"value is not in set: [{', '.join(sorted(attribute.values))}]")
    if attribute.values is None and not (_LONG.fullmatch(value) and -1 <= int(value) <= MAX_LONG):
        raise BadRequestError(f"value is not in range(-1, {MAX_LONG})")
