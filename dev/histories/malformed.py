# SPDX-License-Identifier: Apache-2.0
"""Requests that no stock peer sends: fields missing or unreadable, bodies cut short, versions out of range.

The real NameServer enforces nothing, so each of these has an effect of its own (reference 1.5): null keys reach the
tables, or an exception stops a rule half-way.
"""

from __future__ import annotations

import re
from dataclasses import replace

from dev.histories.generators import Generator, World, generators_for, spread
from dev.histories.steps import Send, Step
from dev.histories.universe import Pick
from dev.model import codes

_BODY_CODES = (codes.REGISTER_BROKER, codes.QUERY_DATA_VERSION, codes.REGISTER_TOPIC_IN_NAMESRV)
_NUMBERS = ("brokerId", "heartbeatTimeoutMillis", "bodyCrc32")
_NULLABLE = ("dataVersion", "topicConfigTable", "topicQueueMappingInfoMap", "queueDatas", "filterServerList")
_UNREADABLE = ("", "x", "1.5", "99999999999999999999", " 1", "+1", "-1")
_NO_BODIES = ("not json", "{", "[]", "null", '{"a":', "{}x", "\x00")


def generators_with_malformed(request_codes: frozenset[int] = codes.ALL_CODES) -> list[Generator]:
    """The usual generators, and as much again of their steps spoilt."""
    usual = generators_for(request_codes)

    def spoil(pick: Pick, world: World) -> list[Step]:
        return [_spoilt(pick, step) if isinstance(step, Send) else step for step in spread(pick, usual, world)]

    return usual + [spoil] * (len(usual) // 2)


def _spoilt(pick: Pick, send: Send) -> Send:
    """The request with one thing wrong."""
    choices = ["drop a field"] if send.ext else []
    choices += ["unreadable number"] if any(name in send.ext for name in _NUMBERS) else []
    if send.code in _BODY_CODES:
        choices += ["no body", "cut body", "other body", "null in body", "version"]
    if not choices:
        return send
    choice = pick(choices)
    ext = dict(send.ext)
    if choice == "drop a field":
        # A registration without brokerName or brokerAddr leaves a null in the tables for ever, and where the exceptions
        # that it causes later stop is a matter of hash order. tests/examples has one of each.
        kept = {"brokerName", "brokerAddr"} if send.registers else set()
        del ext[pick(sorted(set(ext) - kept))]
        return replace(send, ext=ext)
    if choice == "unreadable number":
        ext[pick([name for name in _NUMBERS if name in ext])] = pick(_UNREADABLE)
        return replace(send, ext=ext, binary=False)
    if choice == "version":
        return replace(send, version=pick((-1, 612, 613, 9999)))
    if isinstance(send.body, str) and choice == "cut body" and len(send.body) > 1:
        return replace(send, body=send.body[: pick(range(1, len(send.body)))])
    if isinstance(send.body, str) and choice == "null in body":
        # A value that may be null in Java, made null; the keys are those of all three kinds of body.
        key = pick(_NULLABLE)
        return replace(send, body=re.sub(rf'"{key}":(\{{[^{{}}]*\}}|\[\]|\{{)', rf'"{key}":null,"was":\1', send.body))
    return replace(send, body="" if choice == "no body" else pick(_NO_BODIES))
