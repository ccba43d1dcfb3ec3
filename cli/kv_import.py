# SPDX-License-Identifier: Apache-2.0
"""``routelake import-kv``: a stock NameServer's kvConfig.json, put once into a running routelake (or any NameServer).

A stock NameServer keeps its KV configuration in this file (kvConfigPath, ``~/namesrv/kvConfig.json``)::

    {"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:8;broker-b:8"}}}

Each entry becomes a PUT_KV_CONFIG request, so it is on the log with its sender like any other. Putting the same file
twice changes nothing the second time.

Source: org.apache.rocketmq.namesrv.kvconfig.KVConfigManager.load, KVConfigSerializeWrapper (5.5.0).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from cli.client_tls import with_tls
from cli.credentials import AccessKey, SecretKey, credentials
from cli.options import Namesrv
from clients.addresses import namesrv_addresses
from clients.credentials import Credentials
from clients.tls import ClientTls
from remoting.client import RemotingClient
from remoting.frame import RemotingCommand
from schemas.codes import V5_5_0, RequestCode
from schemas.errors import SetupError
from schemas.kv import table_bytes
from schemas.limits import KV_ENTRY_BYTES, MAX_KV_BYTES, MAX_KV_VALUE_BYTES

ANSWER_TIMEOUT_S: Final = 10.0

KvTables = dict[str, dict[str, str]]
"""namespace -> key -> value."""


class _Wrapper(msgspec.Struct, rename="camel"):
    config_table: KvTables


def read_kv_config(path: Path) -> KvTables:
    """The entries of a kvConfig.json.

    Raises:
        SetupError: The file cannot be read, or is no kvConfig.json; or routelake would not take all of it.
    """
    try:
        tables = msgspec.json.decode(path.read_bytes(), type=_Wrapper).config_table
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror or error}. Name the kvConfig.json of a stock NameServer.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SetupError(f"{path} is no kvConfig.json: {error}.") from error
    for namespace, table in tables.items():
        for key, value in table.items():
            if len(value.encode()) > MAX_KV_VALUE_BYTES:
                raise SetupError(
                    f"{path}: the value of {key!r} in {namespace!r} has {len(value.encode())} bytes; routelake takes "
                    f"{MAX_KV_VALUE_BYTES}. Nothing was put: shorten it in a copy of the file."
                )
    if table_bytes(tables) > MAX_KV_BYTES:
        raise SetupError(
            f"{path} holds {table_bytes(tables)} bytes of entries, {KV_ENTRY_BYTES} for each counted in; routelake "
            f"takes {MAX_KV_BYTES}. Nothing was put: leave out what nobody needs in a copy of the file."
        )
    return tables


async def put_all(address: str, tables: KvTables, keys: Credentials | None = None, tls: ClientTls | None = None) -> int:
    """Put every entry. Returns how many there were.

    Raises:
        ClientError: One was not accepted; those before it were.
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


@with_tls
def import_kv(
    file: Annotated[Path, typer.Argument(help="kvConfig.json of a stock NameServer.")],
    namesrv: Namesrv = "127.0.0.1:9876",
    access_key: AccessKey = "",
    secret_key: SecretKey = "",
    tls: ClientTls | None = None,
) -> None:
    """Take over the KV configuration (order topics) of a stock NameServer."""
    addresses = namesrv_addresses(namesrv, "--namesrv")
    keys = credentials(access_key, secret_key)
    tables = read_kv_config(file)
    for address in addresses:
        count = asyncio.run(put_all(address, tables, keys, tls))
        print(f"{count} entries of {file} put into {address}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import-kv")(import_kv)
