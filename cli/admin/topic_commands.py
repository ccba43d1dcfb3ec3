# SPDX-License-Identifier: Apache-2.0
"""updateTopic, updateTopicList, updateTopicPerm, deleteTopic.

Sources (5.5.0): org.apache.rocketmq.tools.command.topic.UpdateTopicSubCommand, UpdateTopicListSubCommand,
UpdateTopicPermSubCommand, DeleteTopicSubCommand, DefaultMQAdminExtImpl.createOrUpdateOrderConf.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.admin import requests, values
from cli.admin.clusters import (
    NoSuchClusterError,
    Server,
    broker_name_of,
    cluster_broker_names,
    cluster_masters,
    groups_without_master,
)
from cli.admin.command import TopicName
from cli.admin.java_hash import hash_order
from cli.admin.report import CommandResult
from cli.admin.session import NAME_SERVER, Admin
from cli.output import Output, warn
from clients.broker.topic_config import TopicConfig
from remoting.codec.frame import RemotingCommand
from schemas.broker import MASTER_ID
from schemas.codes import RequestCode, ResponseCode
from schemas.errors import SetupError
from schemas.route import TopicRouteData

DEFAULT_QUEUE_NUMS = 8
DEFAULT_PERM = 6

BrokerAddr = Annotated[str | None, typer.Option("-b", "--brokerAddr", help="Address of one broker, HOST:PORT.")]
ClusterName = Annotated[
    str | None, typer.Option("-c", "--clusterName", help="Cluster. The command goes to all its masters.")
]
Perm = Annotated[int, typer.Option("-p", "--perm", help="Permission: 2 (write), 4 (read) or 6 (both).")]

ONE_BROKER = "broker"
"""Placeholder for the brokerName of the address after -b. The broker need not be registered."""
NO_MASTER = "has no master now"


async def update_topic(
    admin: Admin,
    topic: TopicName,
    broker_addr: BrokerAddr = None,
    cluster_name: ClusterName = None,
    read_queue_nums: Annotated[
        int, typer.Option("-r", "--readQueueNums", help="Number of read queues.")
    ] = DEFAULT_QUEUE_NUMS,
    write_queue_nums: Annotated[
        int, typer.Option("-w", "--writeQueueNums", help="Number of write queues.")
    ] = DEFAULT_QUEUE_NUMS,
    perm: Perm = DEFAULT_PERM,
    order: Annotated[
        list[str] | None,
        typer.Option("-o", "--order", help="Ordered topic: true or false. As elsewhere, json or table is the output."),
    ] = None,
    unit: Annotated[str, typer.Option("-u", "--unit", help="Unit topic: true or false.")] = "false",
    has_unit_sub: Annotated[
        str, typer.Option("-s", "--hasUnitSub", help="Unit subscription: true or false.")
    ] = "false",
    attributes: Annotated[
        str, typer.Option("-a", "--attributes", help="Edits of attributes, such as +key=value,-key: + sets, - removes.")
    ] = "",
) -> CommandResult:
    """Create or change a topic."""
    ordered = _order(admin, order or [])
    config = TopicConfig(
        topic_name=values.topic_to_change(topic.strip()),
        read_queue_nums=values.queue_nums(read_queue_nums, "-r"),
        write_queue_nums=values.queue_nums(write_queue_nums, "-w"),
        perm=values.perm(perm),
        topic_sys_flag=values.sys_flag(
            unit=values.boolean(unit, "-u"), has_unit_sub=values.boolean(has_unit_sub, "-s")
        ),
        order=ordered,
        attributes=values.attributes(attributes),
    )
    addr, cluster = values.broker_or_cluster(broker_addr, cluster_name)
    request = requests.update_and_create_topic(config)
    if ordered:
        _ = admin.name_servers  # needed later: raises an error before anything changes
    missing = await _change_brokers(admin, request, addr, cluster)
    if ordered:
        await _set_order_conf(admin, config, addr, cluster)
    admin.note_missing(missing, request, NO_MASTER)
    return CommandResult(lines=[str(config)])


def _order(admin: Admin, given: list[str]) -> bool:
    """Parse ``-o``: mqadmin's ``--order``, or the output format as in other commands. Raises SetupError."""
    ordered = False
    for text in given:
        if text in tuple(Output):
            admin.output = Output(text)
        else:
            ordered = values.boolean(text, "-o")
    return ordered


async def _change_brokers(
    admin: Admin, request: RemotingCommand, addr: str | None, cluster: str | None, name: str = ONE_BROKER
) -> list[str]:
    """Send a change to the broker at an address, or to every master of a cluster. Returns as `_change_masters`."""
    if addr is None:
        return await _change_masters(admin, cluster or "", request)
    await admin.change_each([Server(name, addr)], request)
    return []


async def _change_masters(admin: Admin, cluster: str, request: RemotingCommand) -> list[str]:
    """Send a change to every master. Returns the broker names without a master, to be noted after all steps."""
    info = await admin.cluster_info()
    await admin.change_each(cluster_masters(info, cluster), request)
    return groups_without_master(info, cluster)


async def _set_order_conf(admin: Admin, config: TopicConfig, addr: str | None, cluster: str | None) -> None:
    """Set the topic's order configuration.

    A broker at an address is added, and the others stay. Otherwise it becomes all brokers of the cluster, with or
    without a master.
    """
    order_conf = ""
    if not admin.failed:  # otherwise the request is only noted and not sent
        info = await admin.cluster_info()
        names = cluster_broker_names(info, cluster or "") if addr is None else [broker_name_of(info, addr)]
        order_conf = ";".join(f"{name}:{config.write_queue_nums}" for name in names)
        if addr is not None:
            order_conf = requests.merge_order_conf(await admin.order_conf(config.topic_name), order_conf)
    await admin.change_each_name_server(requests.put_order_conf(config.topic_name, order_conf), lambda _: order_conf)


async def update_topic_list(
    admin: Admin,
    filename: Annotated[Path, typer.Option("-f", "--filename", help="File with a JSON array of TopicConfig.")],
    broker_addr: BrokerAddr = None,
    cluster_name: ClusterName = None,
) -> CommandResult:
    """Create or change many topics in one request to each broker."""
    addr, cluster = values.broker_or_cluster(broker_addr, cluster_name)
    try:
        content = filename.read_bytes()
    except OSError as error:
        raise SetupError(f"-f {filename}: {error.strerror}") from error
    configs = values.topic_configs(content, str(filename))
    request = requests.update_and_create_topic_list(configs)
    admin.note_missing(await _change_brokers(admin, request, addr, cluster), request, NO_MASTER)
    return CommandResult(lines=[str(config) for config in configs])


async def update_topic_perm(
    admin: Admin,
    topic: TopicName,
    perm: Perm,
    broker_addr: BrokerAddr = None,
    cluster_name: ClusterName = None,
) -> CommandResult:
    """Change a topic's permission. Its queue numbers become those of the route's first broker, on every broker."""
    topic = values.topic_to_change(topic.strip())
    perm = values.perm(perm)
    addr, cluster = values.broker_or_cluster(broker_addr, cluster_name)
    route = await admin.route(topic)
    if not route.queue_datas:
        raise NoSuchClusterError(f"the route of {topic} names no broker")
    first = route.queue_datas[0]
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=first.read_queue_nums,
        write_queue_nums=first.write_queue_nums,
        topic_sys_flag=first.topic_sys_flag,
        perm=perm,
    )
    request = requests.update_and_create_topic(config)
    name = ONE_BROKER if addr is None else _master_name(route, addr)
    if any(row.broker_name == name and row.perm == perm for row in route.queue_datas) and addr is not None:
        return CommandResult(lines=[f"{topic} on {name} has permission {perm} already."], data={"unchanged": True})
    _warn_of_queue_nums(route)
    admin.note_missing(await _change_brokers(admin, request, addr, cluster, name), request, NO_MASTER)
    return CommandResult(lines=[str(config)])


def _warn_of_queue_nums(route: TopicRouteData) -> None:
    first, *others = route.queue_datas
    if any(
        (row.read_queue_nums, row.write_queue_nums, row.topic_sys_flag)
        != (first.read_queue_nums, first.write_queue_nums, first.topic_sys_flag)
        for row in others
    ):
        warn(
            "queue numbers differ between brokers: updateTopicPerm sets those of "
            f"{first.broker_name} (read {first.read_queue_nums}, write {first.write_queue_nums})"
        )


def _master_name(route: TopicRouteData, addr: str) -> str:
    """The brokerName of a master in the route. Raises NoSuchClusterError."""
    for data in route.broker_datas:
        if data.broker_addrs.get(MASTER_ID) == addr:
            return data.broker_name
    raise NoSuchClusterError(f"{addr} is not the master of a broker that has the topic")


async def delete_topic(
    admin: Admin,
    topic: TopicName,
    cluster_name: Annotated[
        str, typer.Option("-c", "--clusterName", help="Cluster with the masters that delete the topic.")
    ],
) -> CommandResult:
    """Delete a topic from the masters of a cluster, then from every NameServer."""
    topic = values.topic_to_delete(topic)
    cluster = values.not_blank(cluster_name, "-c")
    request = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    # brokers and NameServers answer OK for a topic that they do not have
    unknown = await admin.is_unknown(requests.get_routeinfo_by_topic(topic), ResponseCode.TOPIC_NOT_EXIST)
    missing = await _change_masters(admin, cluster, request)
    by_address = {server.address for server in admin.name_servers}
    servers = [Server(NAME_SERVER, address) for address in hash_order(by_address)]
    fields = {"topic": topic, "clusterName": cluster}
    await admin.change_each(servers, RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields))
    admin.note_missing(missing, request, NO_MASTER)
    nothing = f"no NameServer of -n knew a topic {topic!r}: there was nothing to delete" if unknown else ""
    return CommandResult(failed=unknown, empty=nothing)
