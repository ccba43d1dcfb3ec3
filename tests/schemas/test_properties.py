# SPDX-License-Identifier: Apache-2.0
"""java.util.Properties.load, case by case, and judged by Java itself: a stock NameServer shows its file's keys in 319."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.support.java import jvm
from dev.support.rocketmq import StockNameServer
from schemas.properties import PropertiesError, Property, parse, parse_body, parse_file

# Text and the entries Java makes of it. Keys and values without line breaks: 319 shows one entry a line.
CASES = {
    "plain=1": {"plain": "1"},
    "colon:2": {"colon": "2"},
    "blank 3": {"blank": "3"},
    "tab\t4": {"tab": "4"},
    "feed\f4": {"feed": "4"},
    "spaced   =   5": {"spaced": "5"},
    "two == 6": {"two": "= 6"},
    "mixed : = 7": {"mixed": "= 7"},
    "   indented = 8": {"indented": "8"},
    "trailing = 9  ": {"trailing": "9  "},
    "empty=": {"empty": ""},
    "alone": {"alone": ""},
    "# comment=1": {},
    "  ! comment=1": {},
    "#comment \\\nafterComment=1": {"afterComment": "1"},
    "not#comment=a#b!c": {"not#comment": "a#b!c"},
    "continued=a\\\n      b": {"continued": "ab"},
    "continuedKey\\\n   More=a": {"continuedKeyMore": "a"},
    "even=a\\\\\nafterEven=b": {"even": "a\\", "afterEven": "b"},
    "odd=a\\\\\\\n  b": {"odd": "a\\b"},
    "hash=a\\\n#b": {"hash": "a#b"},
    "blankNext=a\\\n\nafterBlank=b": {"blankNext": "a", "afterBlank": "b"},
    "\\\n# comment after nothing": {},
    "\\\n   fromNothing=1": {"fromNothing": "1"},
    "cr=1\rlf=2\r\ncrlf=3": {"cr": "1", "lf": "2", "crlf": "3"},
    "crContinued=a\\\r\n  b": {"crContinued": "ab"},
    "escaped\\=key=1": {"escaped=key": "1"},
    "escaped\\:colon=1": {"escaped:colon": "1"},
    "escaped\\ blank=1": {"escaped blank": "1"},
    "backslash\\\\=1": {"backslash\\": "1"},
    "tabValue=a\\tb": {"tabValue": "a\tb"},
    "unicode=\\u0041\\u00e4\\u4e2d": {"unicode": "Aä中"},
    "pair=\\ud83d\\ude00": {"pair": "\U0001f600"},
    "unknownEscape=\\q\\z\\\"": {"unknownEscape": "qz\""},
    "path=C:\\\\data\\x": {"path": "C:\\datax"},
    "latin=\u00e4\u00ff": {"latin": "äÿ"},
    "twice=1\ntwice=2": {"twice": "2"},
    "list=a;b;c": {"list": "a;b;c"},
    "lastContinued=a\\\n": {"lastContinued": "a"},
    "onlyHalf=\\ud83d": {"onlyHalf": "?"},
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_case(text: str) -> None:
    assert {entry.key: entry.value for entry in parse_file(text.encode("latin-1"))} == CASES[text]


def test_every_duplicate_is_there_with_its_line() -> None:
    assert parse("a=1\n\n# x\nb=\\\n 2\na=3") == [Property("a", "1", 1), Property("b", "2", 4), Property("a", "3", 6)]


@pytest.mark.parametrize("text", ["a=\\u", "a=\\u12", "a=\\uzzzz", "\\u00g0=1", "a=\\u 041"])
def test_a_malformed_escape_names_its_line(text: str) -> None:
    with pytest.raises(PropertiesError, match=r"line 2: malformed"):
        parse("first=1\n" + text)


def test_a_malformed_escape_in_a_comment_is_none() -> None:
    assert parse("# \\u12\na=1") == [Property("a", "1", 2)]


def test_a_body_is_utf_8_read_as_latin_1_by_way_of_utf_8() -> None:
    """MixAll.string2Properties: text of other scripts comes out garbled, in RocketMQ as here."""
    assert parse_body("a=ä\nb=\\u00e4".encode()) == {"a": "Ã¤", "b": "ä"}
    assert parse_body(b"a=\xff") == {"a": "ï¿½"}


@given(st.text(alphabet="ab=: \\\n\r\t#!u00e9"))
def test_any_text_parses_or_is_refused_by_name(text: str) -> None:
    try:
        entries = parse(text)
    except PropertiesError as error:
        assert error.line >= 1
        return
    assert all(1 <= entry.line <= 1 + len(text) for entry in entries)


def test_every_malformed_escape_is_named_and_the_rest_is_there() -> None:
    with pytest.raises(PropertiesError, match=r"line 1: malformed.*; line 3: malformed") as caught:
        parse("a=\\u1\nb=2\n\\uxyz=3")
    assert caught.value.entries == [Property("b", "2", 2)]


def test_a_byte_order_mark_is_skipped_and_utf_16_is_named() -> None:
    assert parse_file(b"\xef\xbb\xbfa=1") == [Property("a", "1", 1)]
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        text = "a=1" if encoding == "utf-16" else "\ufeffa=1"
        with pytest.raises(PropertiesError, match="UTF-16"):
            parse_file(text.encode(encoding))


SIGNS = "ab=: \t\f\\#!\n\r\x00\x0b\x1c\x85\xa0\xff"
WORDS = (
    "\r\n",
    "\\\n",
    "\\\r\n",
    "\\\\",
    "\\u7ecf",
    "\\u",
    "\\uG",
    "\\ud83d\\ude00",
    "\\ud83d",
    "\\ude00",
    "\\t",
    "\\n",
    "# c\n",
)
PIECES = st.sampled_from([*SIGNS, *WORDS, "brokerName", "\xc3\xa4"])


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with jvm() as found:
        yield found


@pytest.mark.jvm
def test_java_reads_generated_files_so(java: Any) -> None:
    @settings(deadline=None, max_examples=max(300, settings().max_examples))
    @given(st.lists(PIECES, max_size=14).map("".join))
    @example("\\")
    @example("\\\n")
    @example("\\\r\n")
    @example("\\\n#c")
    @example("a=\\\n\\")
    def judged(text: str) -> None:
        data = text.encode("latin-1")
        properties = java.java.util.Properties()
        try:
            properties.load(java.java.io.ByteArrayInputStream(data))
            found: object = {entry.getKey(): entry.getValue() for entry in properties.entrySet()}
        except Py4JJavaError as error:
            assert "Malformed" in str(error)
            found = "malformed"
        try:
            ours: object = {entry.key: entry.value for entry in parse_file(data)}
        except PropertiesError:
            ours = "malformed"
        assert ours == found

    judged()


@pytest.mark.jvm
def test_java_reads_every_case_so() -> None:
    """The cases behind a stock NameServer's own keys; what it holds afterwards comes back in 319."""
    text = "\n".join(case for case in CASES)
    with (
        StockNameServer({"enableTopicList": f"TRUE \n{text}\nend=1"}) as server,
        RemotingClient(server.host, server.port) as client,
    ):
        lines = client.call(Request(codes.GET_NAMESRV_CONFIG)).body.decode().splitlines()
    shown = dict(line.split("=", 1) for line in lines)
    # StockNameServer writes the file as UTF-8, which Java reads as ISO-8859-1.
    expected = {entry.key: entry.value for entry in parse_file(text.encode())}
    for key, value in expected.items():
        line = f"{key}={value}"
        assert line in lines, (key, value)
    assert shown["enableTopicList"] == "false", "Boolean.parseBoolean of TRUE with a blank after it"
    assert shown["end"] == "1"
