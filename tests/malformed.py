"""Requests that no stock peer sends: fields missing or unreadable, bodies cut short, versions out of range.

The real NameServer enforces nothing, so each of these has an effect of its own (reference 1.5): null keys reach the
tables, or an exception stops a rule half-way.
"""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import strategies as st

from tests.histories import Send, Step
from tests.model import codes
from tests.strategies import kinds_of_steps, sequences, weighted
from tests.universe import UNIVERSES, Universe

_BODY_CODES = (codes.REGISTER_BROKER, codes.QUERY_DATA_VERSION, codes.REGISTER_TOPIC_IN_NAMESRV)
_NUMBERS = ("brokerId", "heartbeatTimeoutMillis", "bodyCrc32")
_NULLABLE = ("dataVersion", "topicConfigTable", "topicQueueMappingInfoMap", "queueDatas", "filterServerList")
_UNREADABLE = ("", "x", "1.5", "99999999999999999999", " 1", "+1", "-1")


def malformed_histories(request_codes: frozenset[int] = codes.ALL_CODES) -> st.SearchStrategy[list[Step]]:
    """Usual histories with spoilt requests among them."""
    names, topics = UNIVERSES[1]
    universe = Universe(names, topics, shared_addresses=True, shared_names=True)
    usual = kinds_of_steps(universe, request_codes, (60_000,))
    return sequences([weighted(usual), weighted(usual), _spoilt_steps(weighted(usual))], max_steps=30)


@st.composite
def _spoilt_steps(draw: st.DrawFn, usual: st.SearchStrategy[list[Step]]) -> list[Step]:
    """Steps of a usual history, with one thing wrong in each request."""
    return [draw(_spoilt(step)) if isinstance(step, Send) else step for step in draw(usual)]


@st.composite
def _spoilt(draw: st.DrawFn, send: Send) -> Send:
    choices = ["drop a field"] if send.ext else []
    choices += ["unreadable number"] if any(name in send.ext for name in _NUMBERS) else []
    if send.code in _BODY_CODES:
        choices += ["no body", "cut body", "other body", "null in body", "version"]
    if not choices:
        return send
    choice = draw(st.sampled_from(choices))
    ext = dict(send.ext)
    if choice == "drop a field":
        # A registration without brokerName or brokerAddr leaves a null in the tables for ever, and where the exceptions
        # that it causes later stop is a matter of hash order. tests/model/test_examples.py has one of each.
        kept = {"brokerName", "brokerAddr"} if send.registers else set()
        del ext[draw(st.sampled_from(sorted(set(ext) - kept)))]
        return replace(send, ext=ext)
    if choice == "unreadable number":
        ext[draw(st.sampled_from([name for name in _NUMBERS if name in ext]))] = draw(st.sampled_from(_UNREADABLE))
        return replace(send, ext=ext, binary=False)
    if choice == "version":
        return replace(send, version=draw(st.sampled_from((-1, 612, 613, 9999))))
    if choice == "no body":
        return replace(send, body="")
    if choice == "cut body" and isinstance(send.body, str) and len(send.body) > 1:
        return replace(send, body=send.body[: draw(st.integers(1, len(send.body) - 1))])
    if choice == "null in body" and isinstance(send.body, str):
        # Every value that may be null in Java, made null; the keys are those of all three kinds of body.
        key = draw(st.sampled_from(_NULLABLE))
        return replace(send, body=re.sub(rf'"{key}":(\{{[^{{}}]*\}}|\[\]|\{{)', rf'"{key}":null,"was":\1', send.body))
    return replace(send, body=draw(st.sampled_from(("not json", "{", "[]", "null", '{"a":', "{}x", "\x00"))))
