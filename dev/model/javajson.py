# SPDX-License-Identifier: Apache-2.0
"""fastjson as the NameServer uses it: nulls omitted, keys sorted, numeric map keys bare or quoted."""

from __future__ import annotations

import json
from typing import Any, Final

_scalar: Final = json.JSONEncoder(ensure_ascii=False).encode
"""Encoder like json.dumps, which would make an encoder for every value."""


def encode(value: Any, *, quote_numeric_keys: bool = False) -> bytes:
    """RemotingSerializable.encode.

    Args:
        value: Dicts, lists and scalars. Dict keys of type int are Long or Integer keys in Java.
        quote_numeric_keys: False is fastjson's default, which writes `{0:"addr"}`; True is standard JSON.
    """
    return _text(value, quote_numeric_keys).encode()


def _text(value: Any, quote: bool) -> str:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (isinstance(key, str), key))
        pairs = (f"{_key(key, quote)}:{_text(value[key], quote)}" for key in keys if value[key] is not None)
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_text(item, quote) for item in value) + "]"
    if quote and isinstance(value, int) and abs(value) > 2**53 - 1:
        return f'"{value}"'  # BrowserCompatible: JavaScript would round it
    return _scalar(value)


def _key(key: Any, quote: bool) -> str:
    if isinstance(key, int):
        return f'"{key}"' if quote else str(key)
    return _scalar(key)
