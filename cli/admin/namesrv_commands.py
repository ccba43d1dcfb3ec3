# SPDX-License-Identifier: Apache-2.0
"""wipeWritePerm, addWritePerm, getNamesrvConfig, updateNamesrvConfig.

Sources (5.5.0): org.apache.rocketmq.tools.command.namesrv.WipeWritePermSubCommand, AddWritePermSubCommand,
GetNamesrvConfigCommand, UpdateNamesrvConfigCommand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from cli.admin import answers, requests, values
from cli.admin.command import command
from cli.admin.report import CommandResult
from cli.admin.session import Admin
from remoting.codec.frame import RemotingCommand
from remoting.errors import NothingDoneError

BrokerName = Annotated[str, typer.Option("-b", "--brokerName", help="Broker name.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "wipeWritePerm")(wipe_write_perm)
    command(app, "addWritePerm")(add_write_perm)
    command(app, "getNamesrvConfig")(get_namesrv_config)
    command(app, "updateNamesrvConfig")(update_namesrv_config)


async def wipe_write_perm(admin: Admin, broker_name: BrokerName) -> CommandResult:
    """Remove the write permission of all topics of a broker, on every NameServer."""
    name = values.not_blank(broker_name, "-b")
    await admin.change_each_name_server(requests.wipe_write_perm(name), lambda answer: _topics(answer, "wipe", name))
    return CommandResult()


async def add_write_perm(admin: Admin, broker_name: BrokerName) -> CommandResult:
    """Set permission 6 (read and write) for all topics of a broker, on every NameServer."""
    name = values.not_blank(broker_name, "-b")
    await admin.change_each_name_server(requests.add_write_perm(name), lambda answer: _topics(answer, "add", name))
    return CommandResult()


def _topics(answer: RemotingCommand, prefix: str, broker_name: str) -> str:
    """Number of topics in an answer. Raises NothingDoneError for none: stock and routelake know no such broker."""
    count = answer.ext(f"{prefix}TopicCount")
    if count == "0":
        raise NothingDoneError(f"no topic of a broker {broker_name!r} is known there: nothing was changed")
    return f"{count} topics"


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
    request = requests.update_namesrv_config(key, values.one_line(value, "-v"))
    # a stock NameServer says OK to a key that it does not know, and forgets it
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
