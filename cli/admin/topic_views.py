# SPDX-License-Identifier: Apache-2.0
"""topicList, topicRoute, topicClusterList, topicStatus, allocateMQ.

Sources (5.5.0): org.apache.rocketmq.tools.command.topic.TopicListSubCommand, TopicRouteSubCommand,
TopicClusterSubCommand, TopicStatusSubCommand, AllocateMQSubCommand, DefaultMQAdminExtImpl
(examineTopicStats, getTopicClusterList, queryTopicConsumeByWho), AllocateMessageQueueAveragely.

The offsets of a static topic's logical queues are computed from the offsets of its physical queues. This part is pure.

A logical queue is a list of pieces, with the latest piece last. Each piece is on one physical queue of one broker. The
broker of the latest piece is the leader and has the whole list. For example, piece one starts at logical offset 0 on
broker-a, queue 0. Piece two starts at logical offset 100 on broker-b, queue 3. If broker-a's queue begins at 40 and
broker-b's ends at 25, the logical queue goes from 40 to 125.

Sources (5.5.0): org.apache.rocketmq.tools.admin.MQAdminUtils.convertPhysicalTopicStats, org.apache.rocketmq.remoting
.protocol.statictopic.TopicQueueMappingUtils (checkAndBuildMappingItems, findLogicQueueMappingItem),
LogicQueueMappingItem, TopicQueueMappingDetail.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
import typer

from cli.admin import answers, requests, values
from cli.admin.answers import AnswerBodyError, TopicOffset
from cli.admin.clusters import NoSuchClusterError, Server, cluster_of, select_broker_addr
from cli.admin.command import TopicName
from cli.admin.java_hash import hash_order
from cli.admin.report import CommandResult
from cli.admin.session import NAME_SERVER, Admin
from clients.broker.topic_config import perm_text
from clients.route.queues import METADATA_SCOPE_GLOBAL, MessageQueue, mock_broker_name, topic_subscribe_info
from remoting.codec.frame import RemotingCommand
from remoting.errors import AnswerError, ClientError
from schemas.codes import RequestCode, ResponseCode
from schemas.rocketmq_json import decode, encode_topic_route
from schemas.route import BrokerData, ClusterInfo, TopicRouteData
from schemas.topic_names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX


class MappingItem(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One piece of a logical queue. A ``logic_offset`` below 0 is undecided, an ``end_offset`` below the start open."""

    bname: str
    queue_id: int
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1

    def loosely(self, physical_offset: int) -> int:
        """Return the logical offset of a physical one, limited to the piece (computeStaticQueueOffsetLoosely)."""
        end = max(physical_offset, self.start_offset)
        if self.end_offset >= self.start_offset:
            end = min(end, self.end_offset)
        return self.logic_offset + end - self.start_offset

    def strictly(self, physical_offset: int) -> int:
        """Return the logical offset of a physical one, without an upper limit (computeStaticQueueOffsetStrictly)."""
        return self.logic_offset + max(physical_offset - self.start_offset, 0)


class MappingDetail(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Mappings of one broker: lists of pieces by logical queue id (TopicQueueMappingDetail)."""

    bname: str
    scope: str = METADATA_SCOPE_GLOBAL
    epoch: int = 0
    hosted_queues: dict[int, list[MappingItem]] = msgspec.field(default_factory=dict)


class _ConfigAndMapping(msgspec.Struct, rename="camel"):
    mapping_detail: MappingDetail | None = None


_decoder = msgspec.json.Decoder(_ConfigAndMapping, strict=False)


def mapping_detail(body: bytes) -> MappingDetail | None:
    """Decode the mapping in an answer to GET_TOPIC_CONFIG (TopicConfigAndQueueMapping), or None without a mapping.

    Raises:
        AnswerBodyError: The answer is not valid.
    """
    try:
        return decode(body, _decoder).mapping_detail
    except (ValueError, RecursionError) as error:
        raise AnswerBodyError(f"the answer is not a topic configuration: {error}") from error


def logical_offsets(
    topic: str, details: Iterable[MappingDetail], physical: Mapping[MessageQueue, TopicOffset]
) -> dict[MessageQueue, TopicOffset]:
    """Return the logical queues, under their mock brokerName, if the offsets of their first and last piece are known.

    Args:
        topic: Topic of the queues.
        details: Mappings of all brokers. The latest epoch decides which broker leads a queue.
        physical: Offsets of the physical queues.
    """
    found: dict[MessageQueue, TopicOffset] = {}
    led: set[int] = set()
    for detail in sorted(details, key=lambda one: -one.epoch):
        for queue_id, pieces in sorted(detail.hosted_queues.items()):
            if not pieces or pieces[-1].bname != detail.bname or queue_id in led:
                continue
            led.add(queue_id)
            offset = _offset(topic, pieces, physical)
            if offset is not None:
                found[MessageQueue(topic, mock_broker_name(detail.scope), queue_id)] = offset
    return found


def _offset(topic: str, pieces: list[MappingItem], physical: Mapping[MessageQueue, TopicOffset]) -> TopicOffset | None:
    decided = [piece for piece in pieces if piece.logic_offset >= 0]
    if not decided:
        return None
    # The piece with logical offset 0. If several pieces start there, use the latest, because the others are empty.
    first = next((piece for piece in reversed(decided) if piece.logic_offset == 0), decided[0])
    last = decided[-1]
    lowest = physical.get(MessageQueue(topic, first.bname, first.queue_id))
    highest = physical.get(MessageQueue(topic, last.bname, last.queue_id))
    if lowest is None or highest is None:
        return None
    low, high = first.loosely(lowest.min_offset), last.strictly(highest.max_offset)
    return TopicOffset(max(low, 0), max(high, 0), highest.last_update_timestamp)


NO_TOPIC = "this NameServer lists no topic"


async def topic_list(
    admin: Admin,
    cluster_model: Annotated[
        bool, typer.Option("-c", "--clusterModel", help="Also show cluster and consumer groups of each topic.")
    ] = False,
) -> CommandResult:
    """List all topics of a NameServer."""
    if cluster_model:
        return await _topics_with_clusters(admin)
    topics = sorted(await admin.topic_list())
    return CommandResult(lines=topics, data={"topicList": topics}, empty="" if topics else NO_TOPIC)


async def _topics_with_clusters(admin: Admin) -> CommandResult:
    info = await admin.cluster_info()
    found = []
    # The bar counts topics. Each topic needs up to three requests.
    names = [Server(topic, "") for topic in hash_order(await admin.topic_list())]
    for topic, _ in admin.visit(names, "topic"):
        if not topic.startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)):
            found.append((topic, *await _cluster_and_groups(admin, info, topic)))
    found.sort()
    return CommandResult(
        tables=[
            (
                ("Cluster Name", "Topic", "Consumer Group"),
                [(cluster, topic, group) for topic, cluster, groups in found for group in groups or [""]],
            )
        ],
        data=[{"topic": topic, "cluster": cluster, "groups": groups} for topic, cluster, groups in found],
        empty="" if found else NO_TOPIC,
    )


async def _cluster_and_groups(admin: Admin, info: ClusterInfo, topic: str) -> tuple[str, list[str]]:
    """Return a topic's first cluster and its consumer groups. Both are empty for a topic without a route."""
    cluster = ""
    request = requests.get_routeinfo_by_topic(topic)
    server = Server(NAME_SERVER, admin.name_servers[0].address)
    try:
        data = _first_broker(await admin.route(topic), topic)
        cluster = next(iter(cluster_of(info, data.broker_name)), "")
        data_again = _first_broker(await admin.route(topic), topic)  # stock mqadmin asks twice
        request = RemotingCommand(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        server = Server(data_again.broker_name, select_broker_addr(data_again) or "")
        groups = answers.group_list((await admin.read(server, request)).body)
    except (ClientError, AnswerBodyError) as error:
        if not isinstance(error, AnswerError) or error.code != ResponseCode.TOPIC_NOT_EXIST:
            admin.note_failure(server, request, error)
        return cluster, []
    except NoSuchClusterError:
        return cluster, []
    return cluster, sorted(groups)


def _first_broker(route: TopicRouteData, topic: str) -> BrokerData:
    """Return the first broker of a route. Raises NoSuchClusterError for a route without brokers."""
    if not route.broker_datas:
        raise NoSuchClusterError(f"the route of {topic} names no broker")
    return route.broker_datas[0]


async def topic_route(
    admin: Admin,
    topic: TopicName,
    list_format: Annotated[
        bool,
        typer.Option(
            "-l", "--list", help="No effect. The route is always a table. mqadmin prints JSON without this option."
        ),
    ] = False,
) -> CommandResult:
    """Show a topic's route."""
    route = await admin.route(values.not_blank(topic, "-t"))
    rows = {row.broker_name: row for row in route.queue_datas}
    table: list[Sequence[object]] = []
    for data in sorted(route.broker_datas, key=lambda data: data.broker_name):
        row = rows.get(data.broker_name)
        queues = ("", "", "") if row is None else (row.read_queue_nums, row.write_queue_nums, _perm(row.perm))
        addresses = ", ".join(f"{broker_id}={addr}" for broker_id, addr in sorted(data.broker_addrs.items()))
        table.append((data.cluster, data.broker_name, addresses, *queues))
    read = sum(row.read_queue_nums for row in rows.values())
    write = sum(row.write_queue_nums for row in rows.values())
    table.append(("Total:", len(rows), "", read, write, ""))
    lines = [f"Order configuration: {route.order_topic_conf}"] if route.order_topic_conf else []
    return CommandResult(
        tables=[(("ClusterName", "BrokerName", "BrokerAddrs", "ReadQueue", "WriteQueue", "Perm"), table)],
        lines=lines,
        data=json.loads(encode_topic_route(route, numeric_keys=False)),
    )


def _perm(perm: int) -> str:
    return f"{perm} {perm_text(perm)}"


async def topic_cluster_list(admin: Admin, topic: TopicName) -> CommandResult:
    """List the clusters that have a topic."""
    topic = values.not_blank(topic, "-t")
    info = await admin.cluster_info()
    clusters = sorted(cluster_of(info, _first_broker(await admin.route(topic), topic).broker_name))
    empty = "" if clusters else f"the first broker of {topic} is in no cluster"
    return CommandResult(lines=clusters, data={"clusters": clusters}, empty=empty)


async def topic_status(
    admin: Admin,
    topic: TopicName,
    cluster: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--cluster",
            help="Topic with the route that names the brokers, for example a cluster's. Default: --topic.",
        ),
    ] = None,
) -> CommandResult:
    """Show a topic's offsets, queue by queue."""
    topic = values.not_blank(topic, "-t")
    route = await admin.route(topic if cluster is None else values.not_blank(cluster, "-c"))
    servers = [
        Server(data.broker_name, address)
        for data in route.broker_datas
        if (address := select_broker_addr(data)) is not None
    ]
    offsets: dict[MessageQueue, TopicOffset] = {}
    put_tps = 0.0
    request = RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
    for _, stats in await admin.read_each(servers, request, answers.topic_stats):
        if stats is not None:
            offsets.update(stats.offsets)
            put_tps += stats.topic_put_tps
    if cluster is None and not admin.failed:
        offsets.update(logical_offsets(topic, await _mapping_details(admin, servers, topic), offsets))
    names = ("brokerName", "queueId", *(field.encode_name for field in msgspec.structs.fields(TopicOffset)))
    rows = [
        (queue.broker_name, queue.queue_id, *msgspec.structs.astuple(one)) for queue, one in sorted(offsets.items())
    ]
    return CommandResult(
        tables=[
            (
                ("Broker Name", "QID", "Min Offset", "Max Offset", "Last Updated"),
                [(*row[:-1], _when(row[-1])) for row in rows],
            )
        ],
        lines=[f"Topic put TPS: {put_tps:g}", *([] if rows else [f"No broker has statistics of {topic}."])],
        data={"offsets": [dict(zip(names, row, strict=True)) for row in rows], "topicPutTps": put_tps},
        failed=not rows,
    )


async def _mapping_details(admin: Admin, servers: Sequence[Server], topic: str) -> list[MappingDetail]:
    """Return the mappings of a static topic from its brokers, or an empty list for other topics."""
    request = RemotingCommand(RequestCode.GET_TOPIC_CONFIG, {"topic": topic, "lo": "true"})
    found = await admin.read_each(servers, request, mapping_detail, lacking=ResponseCode.TOPIC_NOT_EXIST)
    return [detail for _, detail in found if detail is not None]


def _when(timestamp_ms: int) -> str:
    """Return the local time with milliseconds, or "" for never."""
    if timestamp_ms <= 0:
        return ""
    time = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC).astimezone()
    return time.isoformat(" ", "milliseconds")


async def allocate_mq(
    admin: Admin,
    topic: TopicName,
    ip_list: Annotated[str, typer.Option("-i", "--ipList", help="Addresses of the consumers, separated by commas.")],
) -> CommandResult:
    """Show the queues that each consumer gets from AllocateMessageQueueAveragely."""
    clients = values.consumers(ip_list)
    topic = values.not_blank(topic, "-t")
    queues = sorted(topic_subscribe_info(topic, await admin.route(topic)))
    shares = allocate_averagely(queues, clients)
    return CommandResult(
        tables=[
            (
                ("Client", "Broker Name", "QID"),
                [(client, one.broker_name, one.queue_id) for client in clients for one in shares[client]],
            )
        ],
        data={"result": msgspec.to_builtins(shares)},
        empty="" if queues else f"no queue of {topic} is readable: no consumer gets a queue",
    )


def allocate_averagely(queues: Sequence[MessageQueue], clients: Sequence[str]) -> dict[str, list[MessageQueue]]:
    """Return consecutive queues for each client, the first clients one more, as in AllocateMessageQueueAveragely."""
    shares = {}
    least, more = divmod(len(queues), len(clients))
    start = 0
    for at, client in enumerate(clients):
        end = start + least + (at < more)
        shares[client] = list(queues[start:end])
        start = end
    return shares
