# SPDX-License-Identifier: Apache-2.0
"""JSON headers that stock peers do not write: wherever the real NameServer answers one that is JSON, ours says the same.

The corpus is generated: each field of a header gets each of many values, and some headers are odd as a whole.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import pytest

from dev.support.local import LocalLake
from dev.support.rocketmq import StockNameServer

pytestmark = pytest.mark.jvm

NUMBERS = (
    "105",
    "105.0",
    "105.5",
    "105e0",
    "1050e-1",
    "1e3",
    "1E+2",
    "-0",
    "-105",
    "0.1",
    "1e-1",
    "1e20",
    "-1e20",
    "1e400",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967401",
    "true",
    "false",
    "null",
    "[]",
    "[105]",
    "[1,2]",
    "{}",
    '"105"',
    '"105.0"',
    '"105.7"',
    '"1e2"',
    '"+105"',
    '"-105"',
    '"0105"',
    '"1,05"',
    '"null"',
    '"true"',
    '""',
    '"x"',
    '{"a":1}',
    "12345678901234567890123",
    '["105"]',
    "[[105]]",
    '"2147483648"',
    '"-"',
    '" "',
    "10500e-2",
)
SILENCE_S = 2.0
"""After the last answer of all connections; stock does not answer some headers."""
PATIENCE_S = 60.0
"""After the last answer, as long as one is expected: a busy machine stands still for seconds."""
VALUES = (
    '"T1"',
    '""',
    '" "',
    '"\\u00e9\\n"',
    '"\\/"',
    '"\\ud83d\\ude00"',
    '"\\ud83d"',
    "true",
    "false",
    "null",
    "[]",
    "{}",
    "1",
    "-0",
    "1.0",
    "1.50",
    "-0.0",
    "0.1",
    "0.00001",
    "0.0000001",
    "100000000000.0",
    "12345678901234567890",
    "1e3",
    "1E3",
    "1e-3",
    "1e-4",
    "1.5e7",
    "9999999e0",
    "1e20",
    "-1.25e-7",
    "1e400",
    "-1e400",
    "1.0000000000000000000001",
    "[1,2]",
    '[1, "a", null]',
    "[true,false]",
    '["a"]',
    '["\\u0001"]',
    "[1.50]",
    "[1]",
    "[true]",
    "[[],{}]",
    '{"b":1, "a":"x"}',
    '{"a":null}',
    '{"a":[1.0,1e3,{"c":true}]}',
    '{"a":"é\\u00e9\\n\\/\\u0001"}',
    '{"a":1,"a":2}',
    '{"b":{"d":1,"c":2}}',
    '{"a":"<>&\\u2028"}',
    '[{"a":null}]',
    '[{"a":1},{"b":[null]}]',
    '{"":""}',
    "[-0,1e2]",
)
FIELDS = {"code": "105", "flag": "0", "opaque": "7", "version": "513", "language": '"JAVA"', "remark": '"r"'}
EXT_FIELDS = ['""', "null", '"null"', "{}", '[{"topic":"T1"}]', '{"topic":"T1","topic":"T2"}', '{"topic":"T1","a":[1]}']
EXT_FIELDS += [
    '{"topic":"T1","":"x"}',
    '{ "topic" :\n"T1" }',
    '{"t\\u006fpic":"T1"}',
    '{"topic":"T1","a":{"b":{"c":[]}}}',
]


def header(**changed: str | None) -> str:
    """A route request's header with some fields changed; None leaves one out."""
    fields = {**FIELDS, "extFields": '{"topic":"T1"}', **changed}
    members = ",".join(f'"{name}":{value}' for name, value in fields.items() if value is not None)
    return f"{{{members}}}"


def corpus() -> list[str]:
    found = [header(**{name: value}) for name in ("code", "flag", "opaque", "version") for value in NUMBERS]
    found += [header(extFields=f'{{"topic":{value}}}') for value in VALUES]
    found += [header(extFields=f'{{"other":{value},"topic":"T1"}}') for value in VALUES]
    found += [header(**{name: value}) for name in ("remark", "language", "unknown") for value in VALUES]
    found += [header(extFields=value) for value in EXT_FIELDS]
    found += [header(**{name: None}) for name in FIELDS if name not in ("opaque", "code")]
    whole = header()
    found += [
        f" \n\t{whole}\n ",
        f'{whole[:-1]},"opaque":8}}',
        f'{whole[:-1]},"code":null}}',
        whole.replace("code", "c\\u006fde"),
    ]
    found += [f'{whole[:-1]},"extFields":{{"topic":"T2"}}}}', f'{whole[:-1]},"unknown":{{"a":[{{"b":null}}]}}}}']
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("text", ["code", "opaque", "extFields"])
def test_the_corpus_is_json(text: str) -> None:
    assert all(text in json.loads(found) for found in corpus() if text != "code" or "code" in json.loads(found))


def test_headers_that_are_json_are_read_as_stock_reads_them(tmp_path: Path) -> None:
    headers = corpus()
    with StockNameServer() as stock:
        theirs = answers(stock.host, stock.port, headers)
    with LocalLake(tmp_path, folds=False) as lake, lake.gateway() as gateway:
        expected = {number for number, their in enumerate(theirs) if their is not None}
        ours = answers("127.0.0.1", gateway.port, headers, expected)
    answered = [(text, their, our) for text, their, our in zip(headers, theirs, ours, strict=True) if their is not None]
    assert len(answered) > 200
    assert [(text, their, our) for text, their, our in answered if their != our] == []


def answers(
    host: str, port: int, headers: Sequence[str], expected: Set[int] = frozenset()
) -> list[tuple[Any, ...] | None]:
    """Code, opaque and remark of each answer; None without an answer. All on connections of their own, at once.

    Args:
        host: Of the NameServer.
        port: Of the NameServer.
        headers: Each is sent as a request of its own.
        expected: Numbers of the headers that should be answered: for these it waits `PATIENCE_S`.
    """
    said = [b""] * len(headers)
    awaited = set(expected)
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for number, text in enumerate(headers):
            peer = stack.enter_context(socket.create_connection((host, port)))
            data = text.encode()
            peer.sendall(struct.pack(">iI", 4 + len(data), len(data)) + data)
            selector.register(peer, selectors.EVENT_READ, number)
        while selector.get_map() and (ready := selector.select(PATIENCE_S if awaited or not any(said) else SILENCE_S)):
            for key, _ in ready:
                more = b""
                with contextlib.suppress(ConnectionError):
                    more = socket.socket.recv(key.fileobj, 65_536)  # type: ignore[arg-type]
                said[key.data] += more
                if not more:
                    selector.unregister(key.fileobj)
                if not more or answer(said[key.data]) is not None:
                    awaited.discard(key.data)
    return [answer(data) for data in said]


def answer(data: bytes) -> tuple[Any, ...] | None:
    if len(data) < 8 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        return None
    size = struct.unpack(">I", data[4:8])[0] & 0xFFFFFF
    said = json.loads(data[8 : 8 + size])
    return said["code"], said["opaque"], said.get("remark")
