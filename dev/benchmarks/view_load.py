# SPDX-License-Identifier: Apache-2.0
"""Figures of the reading side at full size: ``python -m dev.benchmarks.view_load [--topics 10000] [--groups 300]``.

Writes a lake of topics x groups queue rows (no two topics alike: the worst case for sharing), then measures, each in a
process of its own:

- load: a view from nothing, seconds and resident memory;
- storm: nothing happens (the machine's own lateness), all rows appear in one epoch, then one topic changes on every
  group, then every group changes one topic, while an event loop in the same process measures how late its timers fire;
- answers: hot, encoded again, after a swap;
- history: the route of a topic ``--epochs`` epochs ago, first and repeated, and its changes.

Where other things run on the machine, the processor times tell more. Prints one line a figure; ``--json FILE`` writes
them as well.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from api.gateway.follower import Follower
from dev.benchmarks.harness.lake_writer import START, LakeWriter
from dev.peers.procfs import memory_bytes
from lake.commits import last_commit
from lake.delta.types import arrow_schema
from lake.history.changelog import ChangesAsked, list_changes
from lake.history.filters import Filters
from lake.history.history import History
from lake.view_loader import load_view
from nameserver.answers import RouteAnswers
from nameserver.view.model import Changes
from schemas.errors import BeforeHistoryError
from schemas.route_commit import RouteCommit
from schemas.tables import ROUTE_CHANGE_TABLE, ROUTE_COMMIT_TABLE, TOPIC_QUEUE_TABLE

Figures = dict[str, float]


def main() -> None:
    """Write the lake, run each part in a process of its own, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=1_000, help="single-row epochs before the history is asked")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--lake", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(PARTS[arguments.part](arguments.lake, arguments.topics, arguments.groups)))
        return
    figures: Figures = {"rows": arguments.topics * arguments.groups, "epochs": arguments.epochs}
    with tempfile.TemporaryDirectory(prefix="routelake-view-") as folder:
        lake = Path(folder)
        writer = write_lake(lake, arguments.topics, arguments.groups)
        for part in ("load", "storm", "answers"):
            figures |= run_part(part, lake, arguments.topics, arguments.groups)
        write_epochs(writer, arguments.topics, arguments.groups, arguments.epochs)
        for part in ("history", "load"):
            found = run_part(part, lake, arguments.topics, arguments.groups)
            figures |= found if part == "history" else {f"{name}_later": value for name, value in found.items()}
    for name, value in figures.items():
        print(f"{name:36} {value:14,.3f}" if value != int(value) else f"{name:36} {int(value):10,}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def run_part(part: str, lake: Path, topics: int, groups: int) -> Figures:
    """One part, in a fresh process: its memory is its own."""
    command = [sys.executable, "-m", "dev.benchmarks.view_load", "--part", part]
    options = ["--lake", str(lake), "--topics", str(topics), "--groups", str(groups)]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


# --- the lake ---


def broker(number: int) -> str:
    """Name of a group."""
    return f"broker-{number:03d}"


def topic(number: int) -> str:
    """Name of a topic."""
    return f"topic-{number:05d}"


def queue_rows(topics: int, groups: int) -> pa.Table:
    """All rows of topicQueueTable; queue numbers are random, so that topics differ."""
    dice = random.Random(7)
    names = pa.array([broker(number) for number in range(groups)])
    of_group = pa.array([number for number in range(groups) for _ in range(topics)], pa.int32())
    nums = pa.array(dice.choices((4, 8, 16), k=topics * groups), pa.int32())
    columns = [
        names.take(of_group),
        pa.concat_arrays([pa.array([topic(number) for number in range(topics)])] * groups),
        *(nums, nums, pa.repeat(pa.scalar(6, pa.int32()), len(nums)), pa.repeat(pa.scalar(0, pa.int32()), len(nums))),
    ]
    return pa.table(columns, schema=arrow_schema(TOPIC_QUEUE_TABLE))


def write_lake(lake: Path, topics: int, groups: int) -> LakeWriter:
    """Epoch 1: the brokers. Epoch 2: every queue row, and its history."""
    writer = LakeWriter(lake)
    writer.commit(
        {
            "brokerAddrTable": {
                (broker(number),): {
                    "cluster": "c1",
                    "brokerAddrs": {0: f"10.0.{number // 200}.{number % 200}:10911"},
                    "enableActingMaster": False,
                }
                for number in range(groups)
            },
            "clusterAddrTable": {("c1", broker(number)): {} for number in range(groups)},
        }
    )
    rows = queue_rows(topics, groups)
    write_deltalake(writer.table(TOPIC_QUEUE_TABLE.name), rows, mode="append")
    for number in range(groups):
        write_deltalake(writer.table(ROUTE_CHANGE_TABLE.name), first_changes(number, topics), mode="append")
    writer.commit({})
    return writer


def first_changes(group: int, topics: int) -> pa.Table:
    """Rows of routeChangeTable for one group's first registration."""
    names = [topic(number) for number in range(topics)]
    values: dict[str, Any] = {
        "epoch": 2,
        "offset": group,
        "eventTime": START + timedelta(seconds=2),
        "command": "REGISTER_BROKER",
        "outcome": "applied",
        "reason": None,
        "actor": '{"gateway":"g1","via":"remoting","peer":"10.0.0.1:5555"}',
        "tableName": TOPIC_QUEUE_TABLE.name,
        "brokerName": broker(group),
        "before": None,
        "after": '{"readQueueNums":8,"writeQueueNums":8,"perm":6,"topicSysFlag":0}',
    }
    schema = arrow_schema(ROUTE_CHANGE_TABLE)
    own: dict[str, list[Any]] = {
        "seq": list(range(topics)),
        "topic": names,
        "key": [f'{{"brokerName":"{broker(group)}","topic":"{name}"}}' for name in names],
    }
    return pa.table(
        [
            pa.array(own[field.name], field.type)
            if field.name in own
            else pa.repeat(pa.scalar(values[field.name], field.type), topics)
            for field in schema
        ],
        schema=schema,
    )


def change(writer: LakeWriter, pairs: list[tuple[str, str]], nums: int) -> None:
    """An epoch that changes some existing rows."""
    state = writer.state[TOPIC_QUEUE_TABLE.name]
    for pair in pairs:
        state.setdefault(pair, {"readQueueNums": -1})
    row = {"readQueueNums": nums, "writeQueueNums": nums, "perm": 6, "topicSysFlag": 0}
    history = [
        {
            **{"offset": writer.log_offset + 1, "seq": seq, "eventTime": START + timedelta(seconds=writer.epoch + 1)},
            **{"command": "REGISTER_BROKER", "outcome": "applied", "tableName": TOPIC_QUEUE_TABLE.name},
            **{"brokerName": pair[0], "topic": pair[1], "key": "{}", "after": "{}"},
        }
        for seq, pair in enumerate(pairs)
    ]
    writer.commit({TOPIC_QUEUE_TABLE.name: dict.fromkeys(pairs, row)}, history=history)


def write_epochs(writer: LakeWriter, topics: int, groups: int, epochs: int) -> None:
    """Many small epochs, with checkpoints as maintenance makes them."""
    dice = random.Random(8)
    for number in range(epochs):
        change(writer, [(broker(dice.randrange(groups)), topic(dice.randrange(topics)))], 100 + number)
        if number % 50 == 49:
            for name in (TOPIC_QUEUE_TABLE.name, ROUTE_COMMIT_TABLE.name, ROUTE_CHANGE_TABLE.name):
                writer.table(name).create_checkpoint()


# --- the parts ---


def resident_mb() -> float:
    """Resident memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def peak_mb() -> float:
    """Largest resident memory of this process; getrusage would count what its parent had before exec."""
    return memory_bytes(os.getpid()) / 1e6


def newest_commit(lake: Path) -> RouteCommit:
    """The last commit."""
    commit = last_commit(lake)
    if commit is None:
        raise SystemExit("the lake is empty")
    return commit


def measure_load(lake: Path, topics: int, groups: int) -> Figures:
    """From nothing to a view."""
    before = resident_mb()
    began, worked = time.perf_counter(), time.process_time()
    view = load_view(str(lake), newest_commit(lake))
    took, worked = time.perf_counter() - began, time.process_time() - worked
    peak = peak_mb()
    if len(view.topics) != topics:
        raise SystemExit(f"{len(view.topics)} topics instead of {topics}")
    pa.default_memory_pool().release_unused()
    began = time.perf_counter()
    gc.collect()
    return {
        "load_s": took,
        "load_processor_s": worked,
        "load_base_mb": before,
        "load_peak_mb": peak,
        "load_settled_mb": resident_mb(),
        "load_full_collection_ms": (time.perf_counter() - began) * 1000,
    }


def measure_storm(lake: Path, topics: int, groups: int) -> Figures:
    """Large epochs on the follower's thread, and how late the timers of an event loop fire meanwhile."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="routelake-storm-") as folder:
        storm = LakeWriter(Path(folder))
        storm.commit({"kvConfigTable": {("ns", "k"): {"value": "v"}}})
        follower = Follower(folder, lambda view, outcomes: None)
        follower.poll()
        table = storm.table(TOPIC_QUEUE_TABLE.name)
        write_deltalake(table, queue_rows(topics, groups), mode="append")
        storm.commit({})
        figures |= asyncio.run(_while_serving("storm_nothing", lambda: time.sleep(2)))
        figures |= asyncio.run(_while_serving("storm_all_rows", follower.poll))
        change(storm, [(broker(number), topic(0)) for number in range(groups)], 3)
        figures |= asyncio.run(_while_serving("storm_one_topic_everywhere", follower.poll))
        change(storm, [(broker(number), topic(number % topics)) for number in range(groups)], 5)
        figures |= asyncio.run(_while_serving("storm_a_topic_per_group", follower.poll))
        change(storm, [(broker(0), topic(number)) for number in range(topics)], 7)
        figures |= asyncio.run(_while_serving("storm_one_group_whole", follower.poll))
        change(storm, [(broker(0), topic(0))], 9)
        figures |= asyncio.run(_while_serving("storm_one_row", follower.poll))
        if follower.errors or follower.reloads != 1:
            raise SystemExit(f"{follower.errors} errors, {follower.reloads} reloads: {follower.last_error}")
    return figures


async def _while_serving(name: str, work: Callable[[], object]) -> Figures:
    """Run work on a thread, while a loop sleeps 1 ms and computes 0.3 ms, again and again."""
    late: list[float] = []
    own_s = 0.0

    def timed() -> None:
        nonlocal own_s
        before_s = time.thread_time()
        work()
        own_s = time.thread_time() - before_s

    thread = threading.Thread(target=timed)
    began = time.perf_counter()
    thread.start()
    while thread.is_alive():
        start = time.perf_counter()
        await asyncio.sleep(0.001)
        woke = time.perf_counter()
        late.append(woke - start - 0.001)
        while time.perf_counter() - woke < 0.0003:
            pass
    late.sort()
    return {
        f"{name}_s": time.perf_counter() - began,
        f"{name}_processor_s": own_s,
        f"{name}_loop_late_p99_ms": late[int(0.99 * (len(late) - 1))] * 1000,
        f"{name}_loop_late_max_ms": late[-1] * 1000,
    }


def measure_answers(lake: Path, topics: int, groups: int) -> Figures:
    """Microseconds an answer."""
    commit = newest_commit(lake)
    view = load_view(str(lake), commit)
    answers = RouteAnswers()
    names = [topic(number) for number in range(min(1000, topics))]

    def per_call(count: int, call: Callable[[str], object]) -> float:
        began = time.perf_counter()
        for number in range(count):
            call(names[number % len(names)])
        return (time.perf_counter() - began) / count * 1e6

    answer = answers.route(view, names[0])
    figures = {
        "answer_bytes": float(len(answer.body) if answer else 0),
        "answer_encode_us": per_call(len(names), lambda name: answers.route(view, name)),
        "answer_hot_us": per_call(100_000, lambda name: answers.route(view, name)),
    }
    swapped = view.apply(Changes(commit))
    figures["answer_after_swap_us"] = per_call(len(names), lambda name: answers.route(swapped, name))
    return figures


def measure_history(lake: Path, topics: int, groups: int) -> Figures:
    """A route of long ago, and the changes of a topic."""
    history = History(lake)
    figures: Figures = {}

    def took(name: str, ask: Callable[[], object]) -> None:
        began, worked = time.perf_counter(), time.process_time()
        ask()
        figures[f"{name}_ms"] = (time.perf_counter() - began) * 1000
        figures[f"{name}_processor_ms"] = (time.process_time() - worked) * 1000

    took("history_first", lambda: history.route(topic(7), "2"))
    took("history_repeated", lambda: history.route(topic(7), "2"))
    took("history_other_topic", lambda: history.route(topic(8), "2"))
    took("history_newest", lambda: history.route(topic(8), str(history.epochs(1)[0].epoch)))
    took("changes_first", lambda: list_changes(history, ChangesAsked(filters=Filters(concerning=topic(7)))))
    took("changes_repeated", lambda: list_changes(history, ChangesAsked(filters=Filters(concerning=topic(7)))))
    took("before_the_first", lambda: _refused(history))
    return figures


def _refused(history: History) -> None:
    try:
        history.resolve("0")
    except BeforeHistoryError:
        return


PARTS: dict[str, Callable[[Path, int, int], Figures]] = {
    "load": measure_load,
    "storm": measure_storm,
    "answers": measure_answers,
    "history": measure_history,
}

if __name__ == "__main__":
    main()
