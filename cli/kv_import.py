# SPDX-License-Identifier: Apache-2.0
"""``routelake import-kv``: import of a stock NameServer's kvConfig.json into a running routelake, or any NameServer.

A stock NameServer stores its KV configuration in this file (kvConfigPath, ``~/namesrv/kvConfig.json``)::

    {"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:8;broker-b:8"}}}

Each entry becomes a PUT_KV_CONFIG request, so it is on the event log with its sender, like any other request. A second
import of the same file changes nothing.

RocketMQ reads the file with fastjson2, which accepts more than JSON. There are files with comments, single quotes,
commas before a closing bracket, a byte order mark, or values that are not texts. This module loads the same values as
RocketMQ. A value of null is left out, because RocketMQ answers it like a missing value.

Source: org.apache.rocketmq.namesrv.kvconfig.KVConfigManager.load, KVConfigSerializeWrapper (5.5.0).
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from cli.client_options import ClientOptions
from cli.options import Namesrv, namesrv_source, with_options
from clients.addresses import namesrv_addresses
from clients.credentials import Credentials
from clients.tls import ClientTls
from remoting.client import RemotingClient
from remoting.codec.frame import RemotingCommand
from schemas.codes import V5_5_0, RequestCode
from schemas.errors import SetupError
from schemas.kv import table_bytes
from schemas.limits import KV_ENTRY_BYTES, MAX_KV_BYTES, MAX_KV_VALUE_BYTES

ANSWER_TIMEOUT_S: Final = 10.0

KvTables = dict[str, dict[str, str]]
"""Values by namespace and key."""


_TOKEN: Final = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<plus>\+(?=[0-9]))|.""",
    re.DOTALL,
)
_TRAILING_COMMA: Final = re.compile(r",\s*([}\]])")
_ESCAPE: Final = re.compile(r"\\x([0-9a-fA-F]{2})|\\'|\\.", re.DOTALL)


def read_kv_config(path: Path) -> KvTables:
    """Read the entries of a kvConfig.json.

    Raises:
        SetupError: The file cannot be read, is not a kvConfig.json, or has entries that routelake would refuse.
    """
    try:
        tables = _tables(path.read_bytes().decode(errors="replace").removeprefix("\ufeff"))
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror or error}. Name the kvConfig.json of a stock NameServer.") from error
    except (ValueError, RecursionError) as error:
        raise SetupError(f"{path} is not a kvConfig.json: {error}.") from error
    for namespace, table in tables.items():
        for key, value in table.items():
            if len(value.encode()) > MAX_KV_VALUE_BYTES:
                raise SetupError(
                    f"{path}: the value of {key!r} in {namespace!r} has {len(value.encode())} bytes; routelake takes "
                    f"{MAX_KV_VALUE_BYTES}. Nothing was put. Shorten the value in a copy of the file."
                )
    if table_bytes(tables) > MAX_KV_BYTES:
        raise SetupError(
            f"{path} holds {table_bytes(tables)} bytes of entries, {KV_ENTRY_BYTES} for each counted in; routelake "
            f"takes {MAX_KV_BYTES}. Nothing was put. Remove entries that are not needed from a copy of the file."
        )
    return tables


def _tables(text: str) -> KvTables:
    """KVConfigSerializeWrapper.fromJson.

    Raises:
        ValueError: The text is not a kvConfig.json.
    """
    found = json.loads(_as_json(text), parse_int=_Number, parse_float=_Number, parse_constant=_refuse, strict=False)
    tables = found.get("configTable") if isinstance(found, dict) else None
    if not isinstance(tables, dict):
        raise ValueError('it has no object "configTable"')
    kept: KvTables = {}
    for namespace, table in tables.items():
        if table is None:
            continue
        if isinstance(table, list) and len(table) == 1:
            (table,) = table
        if not isinstance(table, dict):
            raise ValueError(f"namespace {namespace!r} is not an object")
        alone = {key: value[0] if _is_one_text(value) else value for key, value in table.items()}
        kept[namespace] = {key: _as_text(value) for key, value in alone.items() if value is not None}
    return kept


def _as_json(text: str) -> str:
    """Convert a text that fastjson2 accepts to JSON."""
    pieces: list[str] = []
    strings: list[str] = []
    for token in _TOKEN.finditer(text):
        if token["string"] is not None:
            strings.append(_quoted(token["string"]))
            pieces.append("\0")  # hides commas in the string; JSON has no such character elsewhere
        elif token["comment"] is None and token["plus"] is None:
            pieces.append(token[0].replace("\0", "\1"))
        elif token["comment"] is not None:
            pieces.append(" ")
    bare = _TRAILING_COMMA.sub(r"\1", "".join(pieces))
    rest = iter(strings)
    return re.sub("\0", lambda _: next(rest), bare)


def _quoted(string: str) -> str:
    """Convert a text in single or double quotes to a JSON string."""

    def escaped(found: re.Match[str]) -> str:
        return f"\\u00{found[1]}" if found[1] else "'" if found[0] == "\\'" else found[0]

    inner = _ESCAPE.sub(escaped, string[1:-1])
    return f'"{inner}"' if string[0] == '"' else '"' + re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', inner) + '"'


class _Number(str):
    """A number in Java's notation. A number with an exponent is a double. Other numbers keep all their digits."""

    def __new__(cls, text: str) -> _Number:
        if "e" not in text.lower():
            exact = Decimal(text)
            return super().__new__(cls, str(exact if exact else abs(exact)))
        number = float(text)
        if number == 0:
            return super().__new__(cls, "0")
        if math.isinf(number):
            return super().__new__(cls, "Infinity" if number > 0 else "-Infinity")
        if 1e-3 <= abs(number) < 1e7:
            return super().__new__(cls, repr(number))
        digits, _, exponent = f"{Decimal(repr(number)):e}".partition("e")
        digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
        return super().__new__(cls, f"{digits}{'' if '.' in digits else '.0'}E{int(exponent)}")


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a value")


def _is_one_text(value: object) -> bool:
    """Return True for an array of one text or null. fastjson2 reads such an array as its element."""
    return (
        isinstance(value, list)
        and len(value) == 1
        and isinstance(value[0], str | None)
        and type(value[0]) is not _Number
    )


def _as_text(value: Any) -> str:  # noqa: ANN401 (JSON)
    """Convert a value to text, as fastjson2 does."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dict):
        members = (f"{_json(key)}:{_json(each)}" for key, each in value.items() if each is not None)
        return "{" + ",".join(members) + "}"
    return _json(value)


def _json(value: Any) -> str:  # noqa: ANN401 (JSON)
    if isinstance(value, _Number):
        return "null" if value.endswith("Infinity") else str(value)
    if isinstance(value, dict):
        return _as_text(value)
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


async def put_all(address: str, tables: KvTables, keys: Credentials | None = None, tls: ClientTls | None = None) -> int:
    """Send every entry, and return the number of entries.

    Raises:
        ClientError: An entry was not accepted. The earlier entries were accepted.
    """
    count = 0
    async with RemotingClient(
        sign=None if keys is None else keys.sign, tls=None if tls is None else tls.context()
    ) as client:
        for namespace, table in tables.items():
            for key, value in table.items():
                fields = {"namespace": namespace, "key": key, "value": value}
                command = RemotingCommand(RequestCode.PUT_KV_CONFIG, fields, version=V5_5_0)
                await client.call(address, command, ANSWER_TIMEOUT_S)
                count += 1
    return count


@with_options
def import_kv(
    file: Annotated[Path, typer.Argument(help="File kvConfig.json of a stock NameServer.")],
    namesrv: Namesrv = "127.0.0.1:9876",
    *,
    client: ClientOptions,
) -> None:
    """Import the KV configuration (order topics) of a stock NameServer."""
    addresses = namesrv_addresses(namesrv, namesrv_source(namesrv, "--namesrv"))
    keys = client.keys()
    encryption = client.encryption()
    tables = read_kv_config(file)
    for address in addresses:
        count = asyncio.run(put_all(address, tables, keys, encryption))
        print(f"{count} entries of {file} put into {address}")
