# SPDX-License-Identifier: Apache-2.0
"""Commands for NameServers: KV configuration, write permission of brokers, settings.

Sources (5.5.0): org.apache.rocketmq.tools.command.topic.UpdateOrderConfCommand,
org.apache.rocketmq.tools.command.namesrv.UpdateKvConfigCommand, DeleteKvConfigCommand, WipeWritePermSubCommand,
AddWritePermSubCommand, GetNamesrvConfigCommand, UpdateNamesrvConfigCommand.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from cli.admin import answers, requests, values
from cli.admin.command import TopicName
from cli.admin.report import CommandResult
from cli.admin.session import Admin
from remoting.codec.frame import RemotingCommand
from remoting.errors import NothingDoneError
from schemas.codes import RequestCode, ResponseCode
from schemas.errors import RoutelakeError, SetupError
from schemas.kv import ORDER_TOPIC_CONFIG

Namespace = Annotated[str, typer.Option("-s", "--namespace", help="Namespace.")]
Key = Annotated[str, typer.Option("-k", "--key", help="Key.")]


class Method(StrEnum):
    """Action on an order configuration."""

    PUT = "put"
    GET = "get"
    DELETE = "delete"


# --- KV configuration ---


async def update_order_conf(
    admin: Admin,
    topic: TopicName,
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
    """Delete a key. A NameServer answers OK even if it lacks the key, so each one is asked first."""
    unknown = await admin.is_unknown(requests.get_kv_config(namespace, key), ResponseCode.QUERY_NOT_FOUND)
    await admin.change_each_name_server(
        RemotingCommand(RequestCode.DELETE_KV_CONFIG, {"namespace": namespace, "key": key})
    )
    return CommandResult(failed=unknown, empty=f"{nothing}: there was nothing to delete" if unknown else "")


# --- brokers and settings ---

BrokerName = Annotated[str, typer.Option("-b", "--brokerName", help="Broker name.")]


async def wipe_write_perm(admin: Admin, broker_name: BrokerName) -> CommandResult:
    """Remove the write permission of all topics of a broker, on every NameServer."""
    return await _change_write_perm(admin, RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker_name, "wipeTopicCount")


async def add_write_perm(admin: Admin, broker_name: BrokerName) -> CommandResult:
    """Set permission 6 (read and write) for all topics of a broker, on every NameServer."""
    return await _change_write_perm(admin, RequestCode.ADD_WRITE_PERM_OF_BROKER, broker_name, "addTopicCount")


async def _change_write_perm(admin: Admin, code: RequestCode, broker_name: str, counted: str) -> CommandResult:
    """Send a command about a broker's topics. An answer that counts no topic is a failure: the broker is unknown."""
    name = values.not_blank(broker_name, "-b")

    def topics(answer: RemotingCommand) -> str:
        count = answer.ext(counted)
        if count == "0":
            raise NothingDoneError(f"no topic of a broker {name!r} is known there: nothing was changed")
        return f"{count} topics"

    await admin.change_each_name_server(RemotingCommand(code, {"brokerName": name}), topics)
    return CommandResult()


async def get_namesrv_config(admin: Admin) -> CommandResult:
    """Show the configuration of every NameServer."""
    configs = {
        server.address: config
        for server, config in await admin.read_each(
            admin.name_servers, requests.get_namesrv_config(), answers.properties
        )
        if config is not None
    }
    keys = list(dict.fromkeys(key for config in configs.values() for key in config))
    rows: list[Sequence[object]] = [(key, *(config.get(key, "-") for config in configs.values())) for key in keys]
    return CommandResult(tables=[(("Key", *configs), rows)] if configs else [], data=configs)


async def update_namesrv_config(
    admin: Admin,
    key: Annotated[str, typer.Option("-k", "--key", help="Key.")],
    value: Annotated[str, typer.Option("-v", "--value", help="Value.")],
) -> CommandResult:
    """Change one setting on every NameServer."""
    key = values.one_line(key, "-k")
    line = f"{key}={values.one_line(value, '-v')}\n"
    request = RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, body=line.encode())
    # a stock NameServer answers OK for an unknown key, and does not store it
    found = (await admin.look(requests.get_namesrv_config())).items()
    without = [
        address
        for address, answer in found
        if isinstance(answer, RemotingCommand) and key not in answers.properties(answer.body)
    ]
    await admin.change_each_name_server(request)
    if without and not admin.failed:
        return CommandResult(
            failed=True, empty=f"{', '.join(without)}: there is no setting {key!r}; nothing was changed"
        )
    return CommandResult()
