# SPDX-License-Identifier: Apache-2.0
"""clusterList.

Source (5.5.0): org.apache.rocketmq.tools.command.cluster.ClusterListSubCommand.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final

import msgspec
import typer

from cli.admin import answers, values
from cli.admin.clusters import NoSuchClusterError, Server
from cli.admin.java_hash import hash_order
from cli.admin.report import CommandResult, show_report
from cli.admin.session import Admin
from remoting.codec.frame import RemotingCommand
from schemas.codes import RequestCode
from schemas.errors import SetupError
from schemas.route import ClusterInfo

_MS_PER_HOUR: Final = 3_600_000


class _Member(msgspec.Struct, rename="camel"):
    """One broker. Its ``runtime_info`` is the KVTable of GET_BROKER_RUNTIME_INFO, or None without an answer."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    runtime_info: dict[str, str] | None


async def cluster_list(
    admin: Admin,
    more_stats: Annotated[
        bool, typer.Option("-m", "--moreStats", help="Show the number of messages of yesterday and today.")
    ] = False,
    interval: Annotated[
        int | None, typer.Option("-i", "--interval", help="Time between two lists, in seconds. Default: one list only.")
    ] = None,
    cluster_name: Annotated[str | None, typer.Option("-c", "--clusterName", help="List only this cluster.")] = None,
) -> CommandResult:
    """List all brokers of all clusters with their statistics."""
    if interval is not None and interval < 1:
        raise SetupError(f"-i {interval}: expected at least 1 second")
    cluster = None if cluster_name is None else values.not_blank(cluster_name, "-c")
    while True:
        report = await _report(admin, cluster, more_stats=more_stats)
        if interval is None or admin.dry_run:
            return report
        show_report(report, admin.outcomes, admin.output)
        admin.outcomes.clear()
        await asyncio.sleep(interval)


async def _report(admin: Admin, cluster: str | None, *, more_stats: bool) -> CommandResult:
    info = await admin.cluster_info()
    if cluster is not None and cluster not in info.cluster_addr_table:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise NoSuchClusterError(f"no cluster {cluster!r}: the NameServer knows {known}")
    places = _places(info, [cluster] if cluster is not None else hash_order(info.cluster_addr_table))
    servers = [Server(name, address) for _, name, _, address in places]
    answered = await admin.read_each(servers, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO), answers.kv_table)
    members = [_Member(*place, runtime) for place, (_, runtime) in zip(places, answered, strict=True)]
    report = _more(members) if more_stats else _base(members)
    if not members:
        report.empty = "no broker is registered with this NameServer"
    return report


def _places(info: ClusterInfo, clusters: list[str]) -> list[tuple[str, str, int, str]]:
    """Return (cluster, brokerName, brokerId, address) of every broker, in the order of stock mqadmin's requests."""
    return [
        (cluster, name, broker_id, data.broker_addrs[broker_id])
        for cluster in clusters
        for name in sorted(info.cluster_addr_table.get(cluster, ()))
        if (data := info.broker_addr_table.get(name)) is not None
        for broker_id in hash_order(data.broker_addrs)
    ]


_WHO: Final = ("Cluster Name", "Broker Name", "BID", "Addr")

_MORE: Final = (
    ("InTotalYest", "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning"),
    ("OutTotalYest", "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning"),
    ("InTotalToday", "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
    ("OutTotalToday", "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
)
"""Title and two counters of each column. The column shows their difference."""


def _more(members: list[_Member]) -> CommandResult:
    def differences(runtime: Mapping[str, str]) -> list[int | str]:
        try:
            return [int(runtime[later]) - int(runtime[earlier]) for _, later, earlier in _MORE]
        except (KeyError, ValueError):
            return ["?"] * len(_MORE)

    return _result(members, [title for title, _, _ in _MORE], lambda one: differences(one.runtime_info or {}))


def _base(members: list[_Member]) -> CommandResult:
    titles = ("Version", "InTPS(LOAD)", "OutTPS(LOAD)", "Timer(Progress)", "PCWait(ms)", "Hour", "SPACE", "ACTIVATED")
    now_ms = time.time() * 1000
    return _result(members, titles, lambda one: _cells(one.runtime_info, now_ms))


def _result(
    members: list[_Member], titles: Sequence[str], cells: Callable[[_Member], Sequence[object]]
) -> CommandResult:
    rows: list[Sequence[object]] = [(*msgspec.structs.astuple(one)[:-1], *cells(one)) for one in members]
    return CommandResult(tables=[((*_WHO, *titles), rows)], data=msgspec.to_builtins(members))


def _cells(runtime: Mapping[str, str] | None, now_ms: float) -> tuple[str, ...]:
    if runtime is None:
        return ("?",) * 8

    def load(pool: str) -> str:
        return f"{runtime.get(f'{pool}ThreadPoolQueueSize', 'N')},{_wait_ms(runtime, pool)}ms"

    earliest = _number(runtime.get("earliestMessageTimeStamp"))
    hours = (now_ms - earliest) / _MS_PER_HOUR if earliest is not None else 0.0
    timer = f"{_text(runtime, 'timerReadBehind')}-{_text(runtime, 'timerOffsetBehind')}"
    congestion = (_number(runtime.get("timerCongestNum")) or 0) / 10_000
    rates = f"{_text(runtime, 'timerEnqueueTps')}, {_text(runtime, 'timerDequeueTps')}"
    return (
        runtime.get("brokerVersionDesc", ""),
        f"{_first(runtime.get('putTps')):.2f}({load('send')})",
        f"{_first(runtime.get('getTransferredTps')):.2f}({load('pull')}|{load('ack')})",
        f"{timer}({congestion:.1f}w, {rates})",
        runtime.get("pageCacheLockTimeMills", ""),
        f"{hours:.2f}",
        f"{_number(runtime.get('commitLogDiskRatio')) or 0:.4f}",
        runtime.get("brokerActive", "false"),
    )


def _wait_ms(runtime: Mapping[str, str], pool: str) -> str:
    return runtime.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", "N")


def _text(runtime: Mapping[str, str], key: str) -> str:
    return f"{_number(runtime.get(key)) or 0:g}"


def _first(rates: str | None) -> float:
    """Return the first of several numbers, which is the rate of the last ten seconds."""
    return _number((rates or "").partition(" ")[0]) or 0.0


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
