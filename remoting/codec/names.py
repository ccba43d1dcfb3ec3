# SPDX-License-Identifier: Apache-2.0
"""Rules for names that can be stored. RocketMQ's NameServer accepts any name, but here a name is part of a key or path.

A name that breaks these rules is refused with SYSTEM_ERROR and a remark that names the field and the rule. This is a
deliberate difference. No stock broker exceeds these limits (`TopicValidator` allows 127 ASCII characters).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Final
from urllib.parse import quote

from schemas.errors import BadRequestError
from schemas.limits import MAX_BROKER_NAME_PATH_BYTES, MAX_NAME_BYTES

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# A text of at most so many characters has at most MAX_NAME_BYTES bytes.
_SURELY_SHORT: Final = MAX_NAME_BYTES // 4


def check_name(field: str, name: str) -> str:
    """Check a name that may be empty.

    Returns:
        The name.

    Raises:
        BadRequestError: The name is too long or has control characters.
    """
    if len(name) > _SURELY_SHORT and len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        raise BadRequestError(f"{field} is longer than {MAX_NAME_BYTES} bytes", field=field)
    if _CONTROL.search(name):
        raise BadRequestError(f"{field} holds a control character", field=field)
    return name


_check: Final = partial(check_name, "name")


def existing(name: str | None, check: Callable[[str], str] = _check) -> str | None:
    """Return a name, or None if nothing can have been stored under it.

    Args:
        name: Name that a peer has sent.
        check: Rule for names of this kind. It raises BadRequestError.
    """
    try:
        return None if name is None else check(name)
    except BadRequestError:
        return None


def may_exist(name: str | None) -> bool:
    """Return whether something can have been stored under a name."""
    return existing(name) is not None


def check_key(field: str, name: str) -> str:
    """Check a name that identifies something and must not be empty.

    Raises:
        BadRequestError: The name is empty or breaks a rule.
    """
    if not name:
        raise BadRequestError(f"{field} is empty", field=field)
    return check_name(field, name)


def check_broker_name(name: str) -> str:
    """Check a brokerName, which must also fit into a directory name.

    Raises:
        BadRequestError: The name breaks a rule or is too long for a directory name.
    """
    check_key("brokerName", name)
    if len(quote(name, safe="")) > MAX_BROKER_NAME_PATH_BYTES:
        raise BadRequestError(
            f"brokerName is longer than {MAX_BROKER_NAME_PATH_BYTES} bytes when percent-encoded", field="brokerName"
        )
    return name


def check_names(field: str, names: Collection[str]) -> None:
    """Check many names at once. In the usual case, two passes in C are enough.

    Raises:
        BadRequestError: One of the names is too long or has control characters.
    """
    if names and (max(map(len, names)) > _SURELY_SHORT or not "".join(names).isprintable()):
        for name in names:
            check_name(field, name)
