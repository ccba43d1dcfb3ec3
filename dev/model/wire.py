# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of the remoting protocol, and the form in which two answers are compared.

This module belongs to the oracle: it knows the wire, not the product. Nothing here imports from `api`, `schemas` or
`pipelines`.

Two NameServers that behave alike may still write their answers differently: RocketMQ keeps its tables in hash maps, so
list order is arbitrary, and remarks hold stack traces. `canonical` removes exactly what is unspecified and keeps
everything else, including things a JSON parser would hide: whether map keys were bare numbers or quoted (`dialect`),
and whether extFields and the body were present at all.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, field
from typing import Any

from dev.model import codes

# A stock 5.5.0 peer; see reference 1.4 for the ordinals of other releases.
V5_5_0 = 513

# Settings of 319 that are compared. The others are paths and thread counts of the JVM.
COMPARED_SETTINGS = (
    "clusterTest",
    "deleteTopicWithBrokerRegistration",
    "enableAllTopicList",
    "enableTopicList",
    "needWaitForService",
    "notifyMinBrokerIdChanged",
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "supportActingMaster",
    "waitSecondsForService",
)

_STRING_OR_BARE_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(\s*:)')
_LISTS_BY_BROKER_NAME = ("brokerDatas", "queueDatas")


@dataclass(frozen=True)
class Request:
    """One request frame, without its opaque number.

    Attributes:
        code: RequestCode.
        ext: extFields, sent as they are.
        body: An empty body is the same as none.
        version: Ordinal in MQVersion.Version of the peer's release.
        language: LanguageCode name.
        oneway: Whether the oneway flag is set, so that no answer follows.
    """

    code: int
    ext: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    version: int = V5_5_0
    language: str = "JAVA"
    oneway: bool = False


@dataclass(frozen=True)
class Response:
    """One answer frame.

    Attributes:
        code: ResponseCode.
        ext: extFields, or None when the key was absent (an answer type without a header class).
        body: b"" when there was none.
        remark: Free text; never compared.
    """

    code: int
    ext: dict[str, str] | None = None
    body: bytes = b""
    remark: str | None = None


def parse_fastjson(text: str) -> tuple[Any, bool]:
    """Parse JSON that may have bare integer keys, as fastjson writes them.

    Args:
        text: The document.

    Returns:
        The value, with every key a string, and whether any key was a bare integer.

    Raises:
        ValueError: The text is not JSON even when bare keys are allowed.
    """
    bare = False

    def quote(match: re.Match[str]) -> str:
        nonlocal bare
        if match.group(1) is not None:
            return match.group(1)
        bare = True
        return f'{match.group(2)}"{match.group(3)}"{match.group(4)}'

    return json.loads(_STRING_OR_BARE_KEY.sub(quote, text)), bare


def canonical(request: Request, response: Response) -> dict[str, Any]:
    """The order-free form of an answer.

    Args:
        request: The request; it decides how the body is read.
        response: The response.

    Returns:
        A dict of `code`, `ext`, `body` (parsed and sorted, None when absent) and `dialect`: "numeric" when some map key
        was a bare number, "quoted" when brokerAddrs or currIdMap had quoted keys, "mixed", or None when no such map had
        an entry. Remarks are left out.
    """
    body: Any = None
    dialect = None
    if response.body:
        text = response.body.decode("utf-8")
        if request.code == codes.GET_NAMESRV_CONFIG and response.code == codes.SUCCESS:
            body = _settings(text)
        else:
            body, dialect = _read(text)
    ext = None if response.ext is None else dict(sorted(response.ext.items()))
    return {"code": response.code, "ext": ext, "body": body, "dialect": dialect}


@functools.lru_cache(maxsize=4096)  # the same few answers come again and again, and no reader changes them
def _read(text: str) -> tuple[Any, str | None]:
    """A JSON body, parsed and sorted, and its dialect."""
    parsed, bare = parse_fastjson(text)
    quoted = bool(re.search(r'"(?:brokerAddrs|currIdMap)":\{"', text))
    dialect = {(True, True): "mixed", (True, False): "numeric", (False, True): "quoted"}.get((bare, quoted))
    return _sorted(parsed), dialect


def _settings(text: str) -> dict[str, str]:
    """The compared lines of a GET_NAMESRV_CONFIG body."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, _, value in pairs if key in COMPARED_SETTINGS}


def _sorted(value: Any, name: str = "") -> Any:
    """Sort what RocketMQ keeps in hash sets and maps; leave real lists (filter servers) alone."""
    if isinstance(value, dict):
        if name == "clusterAddrTable":
            return {key: sorted(names, key=repr) for key, names in value.items()}
        return {key: _sorted(item, key) for key, item in value.items()}
    if isinstance(value, list):
        items = [_sorted(item) for item in value]
        if name in _LISTS_BY_BROKER_NAME:
            return sorted(items, key=lambda item: (repr(item.get("brokerName")), repr(item)))
        if name == "topicList":
            return sorted(items, key=repr)
        return items
    return value
