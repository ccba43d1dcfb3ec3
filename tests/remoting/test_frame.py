# SPDX-License-Identifier: Apache-2.0
"""Frames byte by byte: what is written, what is read, and what is refused."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.model import client as oracle
from dev.support.frames import decode_frame
from remoting.codec.frame import (
    MAX_HEADER_BYTES,
    RemotingCommand,
    check_length,
    check_mark,
    encode_frame,
    frame_start,
)
from schemas.codes import MAX_INT, MIN_INT, LanguageCode, SerializeType
from schemas.errors import ProtocolError

JSON, ROCKETMQ = SerializeType.JSON, SerializeType.ROCKETMQ


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def json_frame(**changes: str | None) -> bytes:
    """A stock route request with some values replaced by other JSON text; None leaves a key out."""
    fields = {
        "code": "105",
        "extFields": '{"topic":"T1"}',
        "flag": "0",
        "language": '"JAVA"',
        "opaque": "77",
        "serializeTypeCurrentRPC": '"JSON"',
        "version": "513",
        **changes,
    }
    return frame(("{" + ",".join(f'"{key}":{text}' for key, text in fields.items() if text is not None) + "}").encode())


# --- written ---


def test_a_json_reply_is_written_as_stock_peers_write_it() -> None:
    header = (
        b'{"code":0,"extFields":{"changed":"false"},"flag":1,"language":"JAVA","opaque":43,'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )
    command = RemotingCommand(0, {"changed": "false"}, b"body", flag=1, opaque=43)
    assert encode_frame(command) == struct.pack(">iI", 4 + len(header) + 4, len(header)) + header + b"body"


def test_a_json_header_has_its_keys_in_order_and_no_nulls() -> None:
    command = RemotingCommand(17, {"b": "2", "a": 'é"\n'}, b"", "not there", 1, -5, 513, LanguageCode.RUST)
    header = encode_frame(command)[8:].decode()
    assert header == (
        '{"code":17,"extFields":{"a":"é\\"\\n","b":"2"},"flag":1,"language":"RUST","opaque":-5,'
        '"remark":"not there","serializeTypeCurrentRPC":"JSON","version":513}'
    )


def test_a_language_that_is_not_known_is_left_out() -> None:
    assert b"language" not in encode_frame(RemotingCommand(0, language=None))


def test_a_binary_header_is_written_as_stock_peers_write_it() -> None:
    command = RemotingCommand(105, {"topic": "T1"}, b"xy", "r", 0, 7, 513, LanguageCode.GO, ROCKETMQ)
    header = (
        b"\x00\x69\x09\x02\x01\x00\x00\x00\x07\x00\x00\x00\x00"  # code, language, version, opaque, flag
        b"\x00\x00\x00\x01r"
        b"\x00\x00\x00\x0d\x00\x05topic\x00\x00\x00\x02T1"
    )
    assert encode_frame(command) == struct.pack(">iI", 4 + len(header) + 2, 1 << 24 | len(header)) + header + b"xy"


@pytest.mark.parametrize("command", [RemotingCommand(200_050), RemotingCommand(0, {"k" * 40_000: "v"})])
def test_what_a_binary_header_cannot_hold_is_refused(command: RemotingCommand) -> None:
    with pytest.raises(ProtocolError, match="ROCKETMQ header"):
        encode_frame(command, ROCKETMQ)


@pytest.mark.parametrize(("header", "body"), [(MAX_HEADER_BYTES + 1, 0), (10, MAX_INT)])
def test_what_the_length_fields_cannot_hold_is_refused(header: int, body: int) -> None:
    with pytest.raises(ProtocolError, match="do not fit"):
        frame_start(0, header, body)


# --- read: JSON header ---


def test_a_stock_json_header_is_read() -> None:
    assert decode_frame(json_frame()) == RemotingCommand(105, {"topic": "T1"}, opaque=77)


def test_the_body_follows_the_header() -> None:
    assert decode_frame(frame(b"{}", b"\x00body")).body == b"\x00body"


@pytest.mark.parametrize(
    "text", ["105", '"105"', "105.0", "105.9", '"105.9"', " 105 ", "1.05e2", '"1050e-1"', "[105]", '["105"]', '"1,05"']
)
def test_an_int_may_be_text_or_have_a_fraction(text: str) -> None:
    assert decode_frame(json_frame(code=text)).code == 105


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", 0),
        ('""', 0),
        ("true", 1),
        ("false", 0),
        ("-5", -5),
        (None, 0),
        ("{}", 0),
        ('"null"', 0),
        ('"-"', 0),
        ("1e-1", 0),
        ("-1e99", -(1 << 31)),
        ("1e400", (1 << 31) - 1),
    ],
)
@pytest.mark.parametrize("key", ["code", "opaque", "version", "flag"])
def test_an_int_may_be_null_or_absent(key: str, text: str | None, value: int) -> None:
    assert getattr(decode_frame(json_frame(**{key: text})), key) == value


@pytest.mark.parametrize("text", ['"x"', "2147483648", "1099511627776", "-2147483649", "[]", "[1,2]", "9" * 5000])
@pytest.mark.parametrize("key", ["code", "opaque", "version", "flag"])
def test_an_int_that_is_none_is_refused(key: str, text: str) -> None:
    with pytest.raises(ProtocolError, match="JSON header"):
        decode_frame(json_frame(**{key: text}))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('"RUST"', LanguageCode.RUST),
        ("3", LanguageCode.PYTHON),
        ('"KLINGON"', None),
        ('"java"', None),
        ('""', None),
        ("null", None),
        (None, LanguageCode.JAVA),
    ],
)
def test_a_language_may_be_a_number_or_unknown(text: str | None, language: LanguageCode | None) -> None:
    assert decode_frame(json_frame(language=text)).language == language


@pytest.mark.parametrize("text", ["99", "-1", "{}", "[]", "true"])
def test_a_language_that_cannot_be_one_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match=r"language|JSON header"):
        decode_frame(json_frame(language=text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("null", None),
        (None, None),
        ("{}", {}),
        ('""', None),
        ('"null"', None),
        ('[{"a":"x"}]', {"a": "x"}),
        ('{"a":5,"b":"x"}', {"a": "5", "b": "x"}),
        ('{"a":null,"b":"x"}', {"b": "x"}),
        ('{"a":true}', {"a": "true"}),
        ('{"a":1.50}', {"a": "1.50"}),
        ('{"a":{"b":1}}', {"a": '{"b":1}'}),
        ('{"a":[1,2]}', {"a": "[1,2]"}),
        ('{"a":[ 1, "b", null, true ]}', {"a": '[1,"b",null,true]'}),
        ('{"a":["b"]}', {"a": "b"}),
        ('{"a":{"b" : null, "c":[1e3, {"d":"\\u00e9\\n"}]}}', {"a": '{"c":[1000.0,{"d":"é\\n"}]}'}),
        (
            '{"a":1e3,"b":-0,"c":-0.0,"d":1e20,"e":1E-3,"f":0.00000010}',
            {"a": "1000.0", "b": "0", "c": "0.0", "d": "1.0E20", "e": "0.001", "f": "1.0E-7"},
        ),
        ('{"a":1e400,"b":-1.25e-7,"c":1.5e7}', {"a": "Infinity", "b": "-1.25E-7", "c": "1.5E7"}),
        ('{"a":"\\ud83d"}', {"a": "?"}),
        ('{"a":12345678901234567890123}', {"a": "12345678901234567890123"}),
        ('{"a":"1","a":"2"}', {"a": "2"}),
        ('{"a":"é☃\\u0000"}', {"a": "é☃\x00"}),
    ],
)
def test_ext_fields_become_text(text: str | None, found: dict[str, str] | None) -> None:
    assert decode_frame(json_frame(extFields=text)).ext_fields == found


@pytest.mark.parametrize("text", ["[]", "[null]", "[{},{}]", '"x"', "5", '{5:"x"}', '{topic:"x"}', '{"a":"\\x"}'])
def test_ext_fields_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="JSON header"):
        decode_frame(json_frame(extFields=text))


@pytest.mark.parametrize(("text", "remark"), [('"r"', "r"), ("null", None), ("5", "5"), ('{"a":1}', '{"a":1}')])
def test_a_remark_may_be_anything(text: str, remark: str | None) -> None:
    assert decode_frame(json_frame(remark=text)).remark == remark


@pytest.mark.parametrize("text", ["null", '""', "[1,2]"])
def test_a_body_inside_the_header_may_be_nothing_or_numbers(text: str) -> None:
    assert decode_frame(json_frame(body=text)).body == b""


@pytest.mark.parametrize("text", ['"abc"', "5", "{}", "true"])
def test_a_body_inside_the_header_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="body"):
        decode_frame(json_frame(body=text))


def test_unknown_keys_and_key_order_do_not_matter() -> None:
    header = b' {"x":[{"y":null}],"version":1,"opaque":2,"code":3,"suspended":false,"code":4} \n'
    assert decode_frame(frame(header)) == RemotingCommand(4, opaque=2, version=1)


@pytest.mark.parametrize(
    "header",
    [
        b"null",
        b"[]",
        b"5",
        b'"x"',
        b"{",
        b"{code:105}",
        b'{"code":105}x',
        b'\xef\xbb\xbf{"code":105}',
        b'{"code":105,"remark":"\xff"}',
        b'{"code":105,"extFields":{"topic":"\xff\xfe"}}',
        b'{"code":105,"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"code":105,"extFields":{"a":' + b"[" * 100_000,
        b'{"code":NaN}',
    ],
)
def test_a_json_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="JSON header"):
        decode_frame(frame(header))


# --- read: ROCKETMQ header ---


def text(value: bytes, length: int | None = None, *, short: bool = False) -> bytes:
    return struct.pack(">h" if short else ">i", len(value) if length is None else length) + value


def entry(key: bytes, value: bytes, key_length: int | None = None, value_length: int | None = None) -> bytes:
    return text(key, key_length, short=True) + text(value, value_length)


def binary_frame(
    ext: bytes = b"",
    *,
    start: tuple[int, int, int, int, int] = (105, 0, 513, 77, 0),
    remark: bytes = b"\0\0\0\0",
    ext_length: int | None = None,
    tail: bytes = b"",
) -> bytes:
    return frame(struct.pack(">hbhii", *start) + remark + text(ext, ext_length) + tail, kind=1)


def test_a_stock_binary_header_is_read() -> None:
    found = decode_frame(binary_frame(entry(b"topic", b"T1"), remark=text("é".encode())))
    assert found == RemotingCommand(105, {"topic": "T1"}, b"", "é", opaque=77, serialize_type=ROCKETMQ)


@pytest.mark.parametrize(
    ("data", "ext_fields"),
    [
        (binary_frame(), None),
        (binary_frame(entry(b"topic", b"")), {}),
        (binary_frame(entry(b"", b"x") + entry(b"topic", b"y")), {"topic": "y"}),
        (binary_frame(entry(b"topic", b"T1"), tail=b"zzz"), {"topic": "T1"}),
        (binary_frame(entry(b"topic", b"T1"), ext_length=-1), None),
        (binary_frame(entry(b"topic", b"T1"), ext_length=12), {"topic": "T1"}),
        (binary_frame(entry(b"topic", b"\xff\xfe")), {"topic": "��"}),
    ],
)
def test_a_binary_header_is_read_as_java_reads_it(data: bytes, ext_fields: dict[str, str] | None) -> None:
    assert decode_frame(data).ext_fields == ext_fields


@pytest.mark.parametrize(
    "data",
    [
        binary_frame(entry(b"topic", b"T1"), ext_length=5000),
        binary_frame(entry(b"topic", b"T1"), ext_length=14),
        binary_frame(remark=text(b"", -1)),
        binary_frame(remark=text(b"", 9999)),
        binary_frame(entry(b"topic", b"T1", key_length=-1)),
        binary_frame(entry(b"topic", b"T1", value_length=-1)),
        binary_frame(entry(b"topic", b"T1", value_length=MAX_INT)),
        frame(b"\0" * 12, kind=1),
        frame(b"\0" * 17, kind=1),
    ],
)
def test_a_binary_header_that_lies_about_lengths_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="ROCKETMQ header"):
        decode_frame(data)


def test_an_unknown_language_number_and_negative_numbers_are_let_through() -> None:
    found = decode_frame(binary_frame(start=(-7, 99, -3, -1, 2)))
    assert (found.code, found.language, found.version, found.opaque, found.is_oneway) == (-7, None, -3, -1, True)


# --- length fields ---


@pytest.mark.parametrize("length", [MIN_INT, -1, 0, 3, 1000 - 3, MAX_INT])
def test_a_length_out_of_bounds_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match=str(abs(length + 4)) if length > 3 else "below 4"):
        check_length(length, 1000)


@pytest.mark.parametrize(("start", "says"), [(b"GET ", "an HTTP request"), (b"HTTP", "an HTTP answer")])
def test_http_is_told_where_it_belongs(start: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        check_length(int.from_bytes(start), 1000)


@pytest.mark.parametrize("length", [4, 996])
def test_a_length_within_bounds_passes(length: int) -> None:
    check_length(length, 1000)


@pytest.mark.parametrize(("mark", "length"), [(0, 100), (97, 100), (0xFFFFFF, 100), (2 << 24 | 5, 100), (5, 4)])
def test_a_mark_that_does_not_fit_is_refused(mark: int, length: int) -> None:
    with pytest.raises(ProtocolError, match="header (length|type)"):
        check_mark(mark, length)


@pytest.mark.parametrize("data", [b"", b"\0\0\0", json_frame()[:-1], json_frame() + b"x"])
def test_bytes_that_are_not_one_frame_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_frame(data)


# --- properties ---

ints = st.integers(MIN_INT, MAX_INT)
shorts = st.integers(-(1 << 15), (1 << 15) - 1)
fields = st.none() | st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5)
languages = st.none() | st.sampled_from(LanguageCode)


@given(ints, fields, st.binary(max_size=50), st.none() | st.text(max_size=20), ints, ints, ints, languages)
def test_json_decode_inverts_encode(
    code: int,
    ext_fields: dict[str, str] | None,
    body: bytes,
    remark: str | None,
    flag: int,
    opaque: int,
    version: int,
    language: LanguageCode | None,
) -> None:
    command = RemotingCommand(code, ext_fields, body, remark, flag, opaque, version, language)
    found = decode_frame(encode_frame(command))
    if language is None:
        assert found.language is LanguageCode.JAVA  # what an absent name means
        found.language = None
    assert found == command


@given(shorts, fields, st.binary(max_size=50), st.none() | st.text(max_size=20), ints, ints, shorts)
def test_binary_decode_inverts_encode(
    code: int,
    ext_fields: dict[str, str] | None,
    body: bytes,
    remark: str | None,
    flag: int,
    opaque: int,
    version: int,
) -> None:
    command = RemotingCommand(code, ext_fields, body, remark, flag, opaque, version, serialize_type=ROCKETMQ)
    found = decode_frame(encode_frame(command))
    # Empty text reads back as null, and a map without entries as none.
    command.remark = remark or None
    command.ext_fields = {key: value for key, value in (ext_fields or {}).items() if key and value} or None
    if found.ext_fields == {}:
        found.ext_fields = None
    assert found == command


@given(shorts, fields, st.binary(max_size=50), ints, ints, st.integers(0, 600), st.sampled_from(LanguageCode))
@pytest.mark.parametrize("kind", SerializeType)
def test_the_oracle_reads_what_is_written_and_the_other_way_round(
    kind: SerializeType,
    code: int,
    ext_fields: dict[str, str] | None,
    body: bytes,
    flag: int,
    opaque: int,
    version: int,
    language: LanguageCode,
) -> None:
    if kind is ROCKETMQ and ext_fields is not None:
        ext_fields = {key: value for key, value in ext_fields.items() if key and value} or None
    command = RemotingCommand(code, ext_fields, body, None, flag, opaque, version, language, kind)
    ours = encode_frame(command)
    theirs = oracle.encode_frame(
        code, ext_fields, body, version=version, language=language.name, opaque=opaque, flag=flag, header_type=int(kind)
    )
    assert oracle.decode_frame(ours[4:]) == oracle.decode_frame(theirs[4:])
    assert decode_frame(theirs) == command


@given(st.binary(max_size=200), st.sampled_from((0, 1)))
def test_a_garbage_header_raises_only_protocol_error(garbage: bytes, kind: int) -> None:
    with contextlib.suppress(ProtocolError):
        decode_frame(frame(garbage or b"x", kind=kind))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
keys = st.sampled_from(("code", "extFields", "flag", "language", "opaque", "remark", "version", "body", "other"))


@given(st.dictionaries(keys, json_values, max_size=6))
def test_a_json_header_of_any_values_raises_only_protocol_error(header: dict[str, object]) -> None:
    try:
        found = decode_frame(frame(json.dumps(header).encode()))
    except ProtocolError:
        return
    decode_frame(encode_frame(found))
