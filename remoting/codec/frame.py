# SPDX-License-Identifier: Apache-2.0
"""Encoder and decoder of one remoting frame: bytes to `RemotingCommand` and back. No I/O, no clock.

    0        4    5          8                8+headerLen        4+length
    +--------+----+----------+----------------+-----------------+
    | length |type| headerLen|     header     |      body       |
    +--------+----+----------+----------------+-----------------+
      int32   uint8   uint24

``length`` is the number of bytes after it: 4 + headerLen + body. ``type`` is 0 for a JSON header, 1 for a ROCKETMQ
header. All integers are big-endian, all text is UTF-8. A body of length zero is the same as no body.

A JSON header is an object: ``code``, ``extFields`` (text to text), ``flag``, ``language`` (name), ``opaque``,
``remark``, ``serializeTypeCurrentRPC`` (informative), ``version``. A ROCKETMQ header is

    int16 code | int8 language | int16 version | int32 opaque | int32 flag | int32 n, n bytes remark
    | int32 n, n bytes of extFields: (int16 n, n bytes key | int32 n, n bytes value)*

Bit 0 of ``flag`` marks a response, bit 1 a oneway request. A response repeats the ``opaque`` of its request.

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.RemotingCommand, RocketMQSerializable, RemotingSerializable.
"""

from __future__ import annotations

import json
import math
import re
import struct
from decimal import Decimal
from itertools import islice
from typing import Annotated, Final

import msgspec

from schemas.codes import MAX_INT, MIN_INT, V5_5_0, LanguageCode, RequestCode, SerializeType
from schemas.errors import ProtocolError
from schemas.limits import MAX_HEADER_FIELDS, MAX_HEADER_FIELDS_BYTES

LENGTH_BYTES: Final = 4
MIN_LENGTH: Final = 4
MAX_HEADER_BYTES: Final = (1 << 24) - 1
HEADER_LIMIT_BYTES: Final = 64 * 1024
"""Maximum header of a request, in bytes. Stock peers send some hundred bytes. Only PUT_KV_CONFIG may have more, because
its value is in the header."""
_LONG_HEADER_TEXTS: Final = 128
"""Maximum number of texts in a longer header. Such a header has one long value, and not many fields."""
DEFAULT_FRAME_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a whole frame, in bytes. In RocketMQ it is a JVM property, 16 MiB by default. A registration of
100,000 topics needs about 18 MB. It is not a setting here, because settings bound the memory of all frames together."""

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

_Int = Annotated[int, msgspec.Meta(ge=MIN_INT, le=MAX_INT)]
# Plain numbers, because the lookup of enum members is slow.
_JSON: Final = int(SerializeType.JSON)
_ROCKETMQ: Final = int(SerializeType.ROCKETMQ)
_LANGUAGES: Final = {language.name: language for language in LanguageCode}
_LANGUAGES_BY_CODE: Final = {int(language): language for language in LanguageCode}

# code, language, version, opaque, flag
_BINARY_START = struct.Struct(">hbhii")
INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_FRAME_START = struct.Struct(">iI")


class RemotingCommand(msgspec.Struct):
    """A request or a response.

    Attributes:
        language: Language of the peer. An unknown language becomes None.
        ext_fields: Header fields without null values. None: the key was absent.
        serialize_type: Encoding of the header.
    """

    code: int
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    remark: str | None = None
    flag: int = 0
    opaque: int = 0
    version: int = V5_5_0
    language: LanguageCode | None = LanguageCode.JAVA
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Return whether flag bit 0 is set."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Return whether flag bit 1 is set. Then no answer is expected or sent."""
        return bool(self.flag & FLAG_ONEWAY)

    def ext(self, name: str) -> str | None:
        """Return one value of extFields, or None if it is absent or null."""
        return None if self.ext_fields is None else self.ext_fields.get(name)


HTTP_IS_ELSEWHERE: Final = "this port has no HTTP. Use the port that --http names (default: 8080)."
GRPC_IS_ELSEWHERE: Final = (
    "this port has no gRPC. Use RocketMQ Proxy, which is a process of its own (default port: 8081)."
)
_CHECK_PEER: Final = "Check the program at the other end of the connection."
CHECK_ENCODER: Final = "Check the client library of the sender."
_HTTP_STARTS: Final = frozenset(
    int.from_bytes(method) for method in (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"PATC", b"OPTI", b"CONN")
)
_HTTP_2_START: Final = int.from_bytes(b"PRI ")
_HTTP_ANSWER: Final = int.from_bytes(b"HTTP")
_TLS_START: Final = 0x1603
"""First two bytes of every TLS connection: ContentType handshake, and the major version."""

_ALPN_WITH_H2 = re.compile(rb"\x00\x10\x00.\x00.(?:.{0,64}?)\x02h2", re.DOTALL)


def offers_h2(client_hello: bytes) -> bool:
    """Return whether the beginning of a TLS connection offers HTTP/2 (RFC 7301), as gRPC clients do."""
    return _ALPN_WITH_H2.search(client_hello) is not None


# --- decoding ---


def check_length(length: int, frame_limit_bytes: int) -> None:
    """Check a length field before the frame is read (NettyDecoder).

    Raises:
        ProtocolError: The length is below the four bytes of every frame, or over the limit.
    """
    if length < MIN_LENGTH:
        raise ProtocolError(
            f"frame length {length} is below {MIN_LENGTH}, so these bytes are not RocketMQ's protocol. {_CHECK_PEER}"
        )
    if length > frame_limit_bytes - LENGTH_BYTES:
        if length in _HTTP_STARTS:
            raise ProtocolError(f"an HTTP request: {HTTP_IS_ELSEWHERE}", protocol="HTTP")
        if length == _HTTP_2_START:
            raise ProtocolError(f"the preface of HTTP/2: {GRPC_IS_ELSEWHERE}", protocol="HTTP/2")
        if length == _HTTP_ANSWER:
            raise ProtocolError(
                "an HTTP answer: that port is for HTTP. Use the port that --remoting names (default: 9876).",
                protocol="HTTP",
            )
        if length >> 16 == _TLS_START:
            raise ProtocolError(
                "a TLS ClientHello: this port has no TLS. Turn TLS off in the client, or start the gateway with "
                "--tls-cert and --tls-key.",
                protocol="TLS",
            )
        raise ProtocolError(
            f"frame of {length + LENGTH_BYTES} bytes is over the limit of {frame_limit_bytes}. If a broker sends it, "
            f"divide its topics among several brokers. {_CHECK_PEER}"
        )


def check_mark(mark: int, length: int) -> None:
    """Check a header type and header length (RemotingCommand.decode).

    Args:
        mark: Type and headerLen, as one uint32.
        length: The length field before ``mark``.

    Raises:
        ProtocolError: The type is unknown, the header is empty, or the header does not fit into the frame.
    """
    header_length = mark & MAX_HEADER_BYTES
    if mark >> 24 > _ROCKETMQ:
        raise ProtocolError(f"header type {mark >> 24} is unknown: JSON is 0, ROCKETMQ is 1. {_CHECK_PEER}")
    if header_length == 0 or header_length > length - 4:
        raise ProtocolError(f"header length {header_length} does not fit a frame of length {length}. {_CHECK_PEER}")


def decode_header(serialize_type: int, header: bytes, body: bytes) -> RemotingCommand:
    """Decode a header of a type that `check_mark` accepted, and add the body as it is (RemotingCommand.headerDecode).

    Raises:
        ProtocolError: The header cannot be read.
    """
    return _decode_json(header, body) if serialize_type == _JSON else _decode_binary(header, body)


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def decode_long_header(serialize_type: int, header: bytes, body: bytes) -> RemotingCommand:
    """Decode a request's header of more than `HEADER_LIMIT_BYTES`. The cost of decoding is checked first.

    Raises:
        ProtocolError: The header cannot be read, has too many fields, or is not the header of a PUT_KV_CONFIG.
    """
    if serialize_type == _JSON:
        texts = sum(1 for _ in islice(_STRING.finditer(header), _LONG_HEADER_TEXTS + 1))
        may_be = b"100" in header and texts <= _LONG_HEADER_TEXTS
    else:
        may_be = header[:2] == _SHORT.pack(RequestCode.PUT_KV_CONFIG)
    if may_be:
        command = decode_header(serialize_type, header, body)
        if command.code == RequestCode.PUT_KV_CONFIG:
            return command
    raise ProtocolError(
        f"header of {len(header)} bytes is over the limit of {HEADER_LIMIT_BYTES}: "
        f"only PUT_KV_CONFIG may have more, for its value. {CHECK_ENCODER}"
    )


class _JsonHeader(msgspec.Struct, rename={"ext_fields": "extFields"}):
    """A JSON header as stock peers write it."""

    code: _Int = 0
    ext_fields: dict[str, str] | None = None
    flag: _Int = 0
    language: str | None = "JAVA"
    opaque: _Int = 0
    remark: str | None = None
    version: _Int = 0
    body: None = None


_decode_strict = msgspec.json.Decoder(_JsonHeader).decode


def _decode_json(header: bytes, body: bytes) -> RemotingCommand:
    try:
        fields = _decode_strict(header)
    except (ValueError, RecursionError) as error:
        if len(header) > HEADER_LIMIT_BYTES:
            raise _undecoded("JSON", error) from error
        return _decode_json_loosely(header, body)
    name = fields.language
    return RemotingCommand(
        fields.code,
        fields.ext_fields,
        body,
        fields.remark,
        fields.flag,
        fields.opaque,
        fields.version,
        None if name is None else _LANGUAGES.get(name),
    )


def _undecoded(kind: str, reason: Exception) -> ProtocolError:
    return ProtocolError(f"cannot decode the {kind} header: {reason}. {CHECK_ENCODER}")


class _Number(str):
    """A JSON number in its original notation."""

    __slots__ = ()


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_decode_loosely = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_no_json).decode


def _decode_json_loosely(header: bytes, body: bytes) -> RemotingCommand:
    """Decode a header that has values of other types than declared, as fastjson2 does."""
    try:
        fields = _decode_loosely(header.decode())
        if not isinstance(fields, dict):
            raise ValueError("it is not an object")
        embedded = fields.get("body")
        if embedded not in (None, "") and not isinstance(embedded, list):
            raise ValueError("'body' does not hold bytes")
        return RemotingCommand(
            _int(fields.get("code"), "code"),
            _ext_fields(fields.get("extFields")),
            body,
            _text(fields.get("remark")),
            _int(fields.get("flag"), "flag"),
            _int(fields.get("opaque"), "opaque"),
            _int(fields.get("version"), "version"),
            _language(fields.get("language", "JAVA")),
        )
    except (ValueError, RecursionError) as error:
        raise _undecoded("JSON", error) from error


def _ext_fields(value: object) -> dict[str, str] | None:
    """Convert extFields: an object, or a list with one object. Empty text, null and the text "null" become None."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, dict):
        texts = {_writable(name): _text(field) for name, field in value.items()}
        return {name: text for name, text in texts.items() if text is not None}
    if value is None or (value in ("", "null") and not isinstance(value, _Number)):
        return None
    raise ValueError("'extFields' is not an object")


def _writable(text: str) -> str:
    """Replace half of a surrogate pair by a question mark, as String.getBytes does."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _text(value: object) -> str | None:
    """JSONReader.readString: a text, or the text in a list of one. Null becomes None, any other value becomes JSON."""
    if value is None or (isinstance(value, str) and not isinstance(value, _Number)):
        return None if value is None else _writable(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) and not isinstance(value[0], _Number):
        return _writable(value[0])
    return _json(value)


def _json(value: object) -> str:
    """JSON.toJSONString: no blanks, and no null values in objects."""
    match value:
        case _Number():
            return _java_number(value)
        case dict():
            kept = (f"{_quoted(name)}:{_json(item)}" for name, item in value.items() if item is not None)
            return f"{{{','.join(kept)}}}"
        case list():
            return f"[{','.join(map(_json, value))}]"
        case str():
            return _quoted(value)
        case _:
            return "null" if value is None else str(value).lower()


def _quoted(text: str) -> str:
    return json.dumps(_writable(text), ensure_ascii=False)


_LONGEST_NUMBER: Final = 1_000
"""Maximum length of a number, in characters. The cost of a number grows with the square of its length."""


def _java_number(written: str) -> str:
    """Integer.toString or BigDecimal.toString, and Double.toString for a number with an exponent."""
    if len(written) > _LONGEST_NUMBER:
        raise ValueError(f"a number has {len(written)} characters, more than {_LONGEST_NUMBER}")
    mantissa, _, exponent = written.lower().partition("e")
    if not int(exponent or "0"):
        written = mantissa
    if written.lstrip("-").isdigit():
        return "0" if written == "-0" else written
    if "e" not in written.lower():
        decimal = Decimal(written)
        return str(decimal if decimal else abs(decimal))
    double = float(written)
    if math.isinf(double):
        return "Infinity" if double > 0 else "-Infinity"
    if not double or 1e-3 <= abs(double) < 1e7:
        return repr(double)
    mantissa, _, exponent = f"{Decimal(repr(double)).normalize():e}".partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(exponent)}"


_INTEGER = re.compile(r"[+-]?[0-9]{1,11}(?:\.[0-9]*)?")
_DOUBLE = re.compile(r"[+-]?[0-9]{1,32}(?:\.[0-9]{0,32})?[eE][+-]?[0-9]{1,9}")
_NOT_NUMBERS: Final = {"": 0, "-": 0, "null": 0, "true": 1, "false": 0}


def _int(value: object, name: str) -> int:
    """JSONReader.readInt32Value: drop a fraction, and limit a number with an exponent to the bounds of an int.

    A text is read as a number without its commas. A list of one counts as its element, an object as 0.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None or isinstance(value, bool | dict):
        return int(value is True)
    if isinstance(value, str):
        text = value.replace(",", "") if not isinstance(value, _Number) else value
        if text in _NOT_NUMBERS:
            return _NOT_NUMBERS[text]
        if _DOUBLE.fullmatch(text):
            return int(max(MIN_INT, min(MAX_INT, float(text))))
        if _INTEGER.fullmatch(text) and MIN_INT <= (number := int(text.partition(".")[0])) <= MAX_INT:
            return number
    raise ValueError(f"{name!r} is not a 32-bit number: {str(value)[:40]}")


def _language(value: object) -> LanguageCode | None:
    """Return a language by its name or number. An unknown name becomes None."""
    if value is None or (isinstance(value, str) and not isinstance(value, _Number)):
        return _LANGUAGES.get(value or "")
    language = _LANGUAGES_BY_CODE.get(_int(value, "language")) if isinstance(value, _Number) else None
    if language is None:
        raise ValueError(f"'language' is unknown: {str(value)[:40]!r}")
    return language


def _decode_binary(header: bytes, body: bytes) -> RemotingCommand:
    """RocketMQSerializable.rocketMQProtocolDecode."""
    try:
        code, language, version, opaque, flag = _BINARY_START.unpack_from(header)
        remark, at = _read_text(header, _BINARY_START.size, INT)
        (length,) = INT.unpack_from(header, at)
        if length > len(header):
            raise ValueError(f"its extFields have {length} bytes, and the header has {len(header)}")
        ext_fields = _decode_entries(header, at + 4, at + 4 + length) if length > 0 else None
    except (struct.error, ValueError) as error:
        raise _undecoded("ROCKETMQ", error) from error
    return RemotingCommand(
        code,
        ext_fields,
        body,
        remark,
        flag,
        opaque,
        version,
        _LANGUAGES_BY_CODE.get(language),
        SerializeType.ROCKETMQ,
    )


def _decode_entries(header: bytes, at: int, end: int) -> dict[str, str]:
    """RocketMQSerializable.mapDeserialize. Entries with a null key or value are left out."""
    entries = {}
    most = _LONG_HEADER_TEXTS if len(header) > HEADER_LIMIT_BYTES else HEADER_LIMIT_BYTES
    while at < end:
        most -= 1
        if most < 0:
            raise ValueError(f"it has too many extFields for {len(header)} bytes")
        key, at = _read_text(header, at, _SHORT)
        value, at = _read_text(header, at, INT)
        if key is not None and value is not None:
            entries[key] = value
    return entries


def _read_text(header: bytes, at: int, length_format: struct.Struct) -> tuple[str | None, int]:
    """Read a text after its length, and the offset of its end. Length zero becomes None. Invalid UTF-8 is replaced."""
    (length,) = length_format.unpack_from(header, at)
    start = at + length_format.size
    end = start + length
    if length < 0 or end > len(header):
        raise ValueError(f"a text has {length} bytes, and the header has {len(header)}")
    return (header[start:end].decode("utf-8", "replace") if length else None), end


def fields_problem(command: RemotingCommand) -> str | None:
    """Return the reason to refuse header fields, or None. Refused are more or longer fields than any peer needs.

    The value of PUT_KV_CONFIG has its own bound.
    """
    fields = command.ext_fields
    if not fields:
        return None
    size = sum(map(len, fields)) + sum(map(len, fields.values()))
    if command.code == RequestCode.PUT_KV_CONFIG:
        size -= len(fields.get("value", ""))
    if size > MAX_HEADER_FIELDS_BYTES:
        return f"the header fields have {size} characters: send at most {MAX_HEADER_FIELDS_BYTES}"
    if len(fields) > MAX_HEADER_FIELDS:
        return f"the request has {len(fields)} header fields: send at most {MAX_HEADER_FIELDS}"
    return None


# --- encoding ---

_encode_value = msgspec.json.Encoder(order="sorted").encode


def encode_frame(command: RemotingCommand, serialize_type: SerializeType | None = None) -> bytes:
    """Encode a whole frame of a request or response.

    Args:
        command: Command to encode.
        serialize_type: Encoding of the header. None: the command's own.

    Raises:
        ProtocolError: Header or frame are too long for their length fields, or a value has no binary form.
    """
    return encode_header(command, serialize_type) + command.body


def encode_header(command: RemotingCommand, serialize_type: SerializeType | None = None) -> bytes:
    """Encode a frame without its body.

    Raises:
        ProtocolError: As `encode_frame`.
    """
    kind = command.serialize_type if serialize_type is None else serialize_type
    if kind == SerializeType.JSON:
        head, tail = json_header_around_opaque(command)
        header = b"%b%d%b" % (head, command.opaque, tail)
    else:
        head, tail = binary_header_around_opaque(command)
        header = b"%b%b%b" % (head, INT.pack(command.opaque), tail)
    return frame_start(kind, len(header), len(command.body)) + header


def frame_start(serialize_type: int, header_length: int, body_length: int) -> bytes:
    """The eight bytes before the header.

    Raises:
        ProtocolError: Header or body are too long for the length fields.
    """
    if header_length > MAX_HEADER_BYTES or 4 + header_length + body_length > MAX_INT:
        raise ProtocolError(f"a header of {header_length} and a body of {body_length} bytes do not fit into one frame")
    return _FRAME_START.pack(4 + header_length + body_length, serialize_type << 24 | header_length)


def json_header_around_opaque(command: RemotingCommand) -> tuple[bytes, bytes]:
    """Encode a JSON header without the digits of its opaque: the parts before and after the digits."""
    language = command.language
    parts = [b'{"code":%d' % command.code]
    if command.ext_fields is not None:
        parts.append(b',"extFields":%b' % _encode_value(command.ext_fields))
    parts.append(b',"flag":%d' % command.flag)
    if language is not None:
        parts.append(b',"language":"%b"' % language.name.encode())
    parts.append(b',"opaque":')
    remark = b"" if command.remark is None else b',"remark":%b' % _encode_value(command.remark)
    return b"".join(parts), b'%b,"serializeTypeCurrentRPC":"JSON","version":%d}' % (remark, command.version)


def binary_header_around_opaque(command: RemotingCommand) -> tuple[bytes, bytes]:
    """Encode a ROCKETMQ header without the four bytes of its opaque: the parts before and after these bytes.

    Raises:
        ProtocolError: A number or key is too large for its field.
    """
    language = LanguageCode.OTHER if command.language is None else command.language
    remark = (command.remark or "").encode()
    try:
        entries = b"".join(_encode_entry(key, value) for key, value in sorted((command.ext_fields or {}).items()))
        start = _BINARY_START.pack(command.code, language, command.version, 0, command.flag)
        return start[:5], start[9:] + INT.pack(len(remark)) + remark + INT.pack(len(entries)) + entries
    except struct.error as error:
        raise ProtocolError(f"cannot encode this as a ROCKETMQ header: {error}. Use a JSON header.") from error


def _encode_entry(key: str, value: str) -> bytes:
    raw_key, raw_value = key.encode(), value.encode()
    return _SHORT.pack(len(raw_key)) + raw_key + INT.pack(len(raw_value)) + raw_value
