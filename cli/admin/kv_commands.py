# SPDX-License-Identifier: Apache-2.0
"""updateOrderConf, updateKvConfig, deleteKvConfig.

Sources (5.5.0): org.apache.rocketmq.tools.command.topic.UpdateOrderConfCommand,
org.apache.rocketmq.tools.command.namesrv.UpdateKvConfigCommand, DeleteKvConfigCommand.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cli.admin import requests, values
from cli.admin.command import command
from cli.admin.report import CommandResult
from cli.admin.session import Admin
from schemas.codes import ResponseCode
from schemas.errors import RoutelakeError, SetupError
from schemas.kv import ORDER_TOPIC_CONFIG

Namespace = Annotated[str, typer.Option("-s", "--namespace", help="Namespace.")]
Key = Annotated[str, typer.Option("-k", "--key", help="Key.")]


class Method(StrEnum):
    """Action on an order configuration."""

    PUT = "put"
    GET = "get"
    DELETE = "delete"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "updateOrderConf")(update_order_conf)
    command(app, "updateKvConfig")(update_kv_config)
    command(app, "deleteKvConfig")(delete_kv_config)


async def update_order_conf(
    admin: Admin,
    topic: Annotated[str, typer.Option("-t", "--topic", help="Topic name.")],
    method: Annotated[Method, typer.Option("-m", "--method", help="Action: put, get or delete.")],
    order_conf: Annotated[
        str | None,
        typer.Option("-v", "--orderConf", help="Order configuration for put, such as 'broker-a:4;broker-b:4'."),
    ] = None,
) -> CommandResult:
    """Put, get or delete a topic's order configuration."""
    topic = values.not_blank(topic, "-t")
    if method is Method.PUT:
        if order_conf is None or not order_conf.strip():
            raise SetupError("-m put needs the order configuration: -v 'broker-a:4;broker-b:4'")
        await admin.change_each_name_server(requests.put_order_conf(topic, order_conf.strip()))
        return CommandResult()
    if method is Method.DELETE:
        return await _delete(admin, ORDER_TOPIC_CONFIG, topic, f"{topic} had no order configuration")
    found = await admin.order_conf(topic)
    if found is None:
        raise RoutelakeError(f"{topic} has no order configuration")
    return CommandResult(lines=[found], data={"topic": topic, "orderConf": found})


async def update_kv_config(
    admin: Admin,
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Option("-v", "--value", help="Value.")],
) -> CommandResult:
    """Create or change a KV pair on every NameServer."""
    request = requests.put_kv_config(
        values.not_blank(namespace, "-s"), values.not_blank(key, "-k"), values.not_blank(value, "-v")
    )
    await admin.change_each_name_server(request)
    return CommandResult()


async def delete_kv_config(admin: Admin, namespace: Namespace, key: Key) -> CommandResult:
    """Delete a KV pair from every NameServer."""
    namespace, key = values.not_blank(namespace, "-s"), values.not_blank(key, "-k")
    return await _delete(admin, namespace, key, f"namespace {namespace!r} had no key {key!r}")


async def _delete(admin: Admin, namespace: str, key: str, nothing: str) -> CommandResult:
    """A NameServer says OK to a key that it does not have; so it is asked before."""
    unknown = await admin.is_unknown(requests.get_kv_config(namespace, key), ResponseCode.QUERY_NOT_FOUND)
    await admin.change_each_name_server(requests.delete_kv_config(namespace, key))
    return CommandResult(failed=unknown, empty=f"{nothing}: there was nothing to delete" if unknown else "")
