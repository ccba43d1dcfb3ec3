# SPDX-License-Identifier: Apache-2.0
"""Changes to the processes of a run, planted by a folder at the start of their PYTHONPATH. Only the test kit sets it.

TORTURE_PLANTS names the changes: defects (`MUTANTS`) and helpers of tests. A change is planted when its module is
imported. Spark's Python workers have a path of their own. So changes are in the gateway, the process that writes the
event log, and the fold's driver.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Plant = Callable[[Any], None]

VARIABLE = "TORTURE_PLANTS"


def _now_and_then(every: int) -> Callable[[], bool]:
    count = 0

    def due() -> bool:
        nonlocal count
        count += 1
        return count % every == 0

    return due


def _lost_append(module: Any) -> None:
    """Acknowledge events without writing them."""
    append, due = module.ResumingLog.append, _now_and_then(60)

    def lose(self: Any, entries: Any) -> Any:
        if not entries or not due():
            return append(self, entries)
        end = self._log.end()
        return [module.Appended(end.next_offset + n, end.last_event_time_ms or 0) for n in range(len(entries))]

    module.ResumingLog.append = lose


def _doubled_append(module: Any) -> None:
    """A group goes down twice."""
    append, due = module.ResumingLog.append, _now_and_then(60)

    def double(self: Any, entries: Any) -> Any:
        if not entries or not due():
            return append(self, entries)
        written = append(self, [*entries, *entries])
        return written[: len(written) - len(entries)]

    module.ResumingLog.append = double


def _stale_view(module: Any) -> None:
    """Now and then the view does not move, and waiting requests go on as if it did."""
    move, due = module.WatchedView.move, _now_and_then(40)

    def stay(self: Any, view: Any, offset: int) -> None:
        if due():
            self.reach(offset)
        else:
            move(self, view, offset)

    module.WatchedView.move = stay


def _early_expiry(module: Any) -> None:
    """The gateway's rules let a broker expire two seconds early."""
    expire = module.expire
    module.expire = lambda group, now_ms: expire(group, now_ms + 2_000)


def _batch_expiry(module: Any) -> None:
    """A shard expires who is overdue at the end of its batch, instead of at the watermark of the event log."""
    finish = module.ShardFold.finish

    def expire(self: Any) -> Any:
        state = self._state
        clock = module.events.Clock(actor=module.events.Actor(gateway="planted", via="routelake"))
        done = module.step(state, clock, module.At(self._offset, self._event_time_ms))
        for change in done.changes:
            self._record(change)
        watermark_ms = state.watermark_ms
        module.apply(state, done)
        state.watermark_ms = watermark_ms
        return finish(self)

    module.ShardFold.finish = expire


def _wipe_ignored(module: Any) -> None:
    """A rule of the gateway does nothing, and counts all the same."""
    module.without_write_perm = lambda group: group


def _half_an_epoch(module: Any) -> None:
    """The writer leaves one table out, and commits the epoch."""
    commit, due = module.LakeWriter._commit_partitions, _now_and_then(3)

    def leave_out(self: Any, *arguments: Any) -> None:
        if not due():
            commit(self, *arguments)

    module.LakeWriter._commit_partitions = leave_out


def _another_past(module: Any) -> None:
    """as_of=N answers from epoch N - 1."""
    resolve = module.History.resolve

    def before(self: Any, as_of: str, *rest: Any, **more: Any) -> Any:
        return resolve(self, str(int(as_of) - 1) if as_of.isdigit() and as_of != "1" else as_of, *rest, **more)

    module.History.resolve = before


def _early_ack(module: Any) -> None:
    """Acknowledge events for half a second before they are written: a kill loses those of that time."""
    append = module.ResumingLog.append
    held: list[Any] = []
    since_s: list[float] = []

    def later(self: Any, entries: Any) -> Any:
        now_s = time.monotonic()
        since_s[:] = since_s if held else [now_s]
        if entries and now_s - since_s[0] < 0.5:
            end = self._log.end()
            first = end.next_offset + len(held)
            held.extend(entries)
            return [module.Appended(first + n, end.last_event_time_ms or 0) for n in range(len(entries))]
        written = append(self, [*held, *entries])
        held.clear()
        return written[len(written) - len(entries) :] if entries else written

    module.ResumingLog.append = later


def _no_clock(module: Any) -> None:
    """No CLOCK: a silent broker stays until another one of its group sends something."""
    begin = module.GroupCommit.__init__

    def without(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        self._clock_interval_s = 1e6

    module.GroupCommit.__init__ = without


def _no_resume(module: Any) -> None:
    """RESUME is written at the start only: later time without a gateway counts against brokers."""
    append = module.ResumingLog.append

    def at_once(self: Any, entries: Any) -> Any:
        if self._last is not None:
            self._last = module.Last(module.steady_s(), 2**62)
        return append(self, entries)

    module.ResumingLog.append = at_once


def _impatient(module: Any) -> None:
    """Tell a client that waits for an offset at once that it is there."""

    async def at_once(self: Any, offset: int, timeout_s: float, *, is_read: bool = False) -> bool:
        return True

    def finish(self: Any, future: Any, offset: int, timeout_s: float, *, shown: Any, late: Any) -> None:
        future.set_result(shown)

    module.WatchedView.wait_for, module.WatchedView.finish = at_once, finish


def _folded_twice(module: Any) -> None:
    """Changes are in the history twice."""
    append, due = module.LakeWriter._append, _now_and_then(3)

    def twice(self: Any, table: Any, parts: Any, transaction: Any) -> None:
        rows = [*parts]
        append(self, table, rows * 2 if table.name == "routeChangeTable" and due() else rows, transaction)

    module.LakeWriter._append = twice


def _lost_rows(module: Any) -> None:
    """A change of brokerAddrTable is not written, and counts as written."""
    apply, due = module.LakeWriter._apply, _now_and_then(5)

    def leave_out(self: Any, table: Any, *arguments: Any) -> None:
        if table.name != "brokerAddrTable" or not due():
            apply(self, table, *arguments)

    module.LakeWriter._apply = leave_out


def _skipped_event(module: Any) -> None:
    """Listeners are not told of an epoch."""
    text, due = module._text, _now_and_then(7)
    module._text = lambda event: b"" if due() else text(event)


def _short_diff(module: Any) -> None:
    """A difference is left out."""
    diff, due = module.diff, _now_and_then(4)

    def shorter(*arguments: Any, **named: Any) -> Any:
        found = diff(*arguments, **named)
        return module.Diff(found.before, found.after, found.differences[:-1], None) if due() else found

    module.diff = shorter


def _haste(module: Any) -> None:
    """Not a defect: maintenance has something to do after each batch."""
    module.CHECKPOINT_EVERY_COMMITS, module.COMPACT_EVERY_COMMITS, module.COMPACT_WHEN_FILES = 3, 5, 4
    module.SWEEP_INTERVAL_S, module.FIRST_SWEEP_S, module.TRIM_INTERVAL_S = 20.0, 5.0, 5.0


def _early_trim(module: Any) -> None:
    """Not a defect: the event log is trimmed every two seconds, and of the rest of maintenance there is some."""
    module.CHECKPOINT_EVERY_COMMITS, module.COMPACT_EVERY_COMMITS, module.COMPACT_WHEN_FILES = 25, 15, 4
    module.TRIM_INTERVAL_S = 2.0


def _small_fold(module: Any) -> None:
    """Not a defect: the fold process without Spark."""
    from dev.fault_injection import small_fold

    module.spark_session = lambda settings: None
    module._fold = small_fold.fold


def _lost_topic(module: Any) -> None:
    """A registration is written without one of its topics."""
    register, due = module.Registrations._register, _now_and_then(5)

    async def less(self: Any, event: Any, sender: Any) -> Any:
        table = event.topic_config_table
        if table and len(table) > 2 and due():
            from schemas.events import topic_config_digest

            table = dict([*table.items()][:-1])
            event = module.msgspec.structs.replace(
                event, topic_config_table=table, topic_config_digest=topic_config_digest(table)
            )
        return await register(self, event, sender)

    module.Registrations._register = less


def _ignores_closing(module: Any) -> None:
    """A connection that ends removes no broker."""
    module.NameServerHandler.on_close = lambda self, connection: None


def _false_close(module: Any) -> None:
    """Now and then a heartbeat counts as the end of its connection."""
    beat, due = module.NameServerHandler._heartbeat, _now_and_then(20)

    async def close(self: Any, request: Any) -> Any:
        answer = await beat(self, request)
        if due():
            fields = request.command.ext_fields
            broker = fields["clusterName"], fields["brokerName"], fields["brokerAddr"]
            await self._unbind(request.connection, request.sender.actor, [broker])
        return answer

    module.NameServerHandler._heartbeat = close


def _generous_resume(module: Any) -> None:
    """Now and then a RESUME comes in the middle of all."""
    append, due = module.ResumingLog.append, _now_and_then(40)

    def more(self: Any, entries: Any) -> Any:
        if not entries or not due():
            return append(self, entries)
        return append(self, [self._resume, *entries])[-len(entries) :]

    module.ResumingLog.append = more


def _deaf(module: Any) -> None:
    """After a while subscribers receive nothing more."""
    moved = module.EventHub.view_moved
    count: list[int] = []

    def once(self: Any) -> None:
        count.append(1)
        if len(count) == 12:
            at = self._at
            self._newest = lambda: at
        moved(self)

    module.EventHub.view_moved = once


def _coy_http(module: Any) -> None:
    """Every third read over HTTP is refused."""
    begin, due = module.begin, _now_and_then(3)

    async def refuse(*arguments: Any, **named: Any) -> Any:
        if due():
            from schemas.errors import UnavailableError

            raise UnavailableError("not now")
        return await begin(*arguments, **named)

    module.begin = refuse


def _coy(module: Any) -> None:
    """Every third request over port 9876 is refused."""
    handle, due = module.NameServerHandler.handle, _now_and_then(3)

    async def refuse(self: Any, command: Any, connection: Any) -> Any:
        if due():
            from schemas.errors import UnavailableError

            raise UnavailableError("not now")
        return await handle(self, command, connection)

    module.NameServerHandler.handle = refuse


def _sleepy_clock(module: Any) -> None:
    """A CLOCK comes every 13 s."""
    begin = module.GroupCommit.__init__

    def late(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        self._clock_interval_s = 13.0

    module.GroupCommit.__init__ = late


def _shy_past(module: Any) -> None:
    """Every other question for the past gets the answer that it is no longer kept."""
    resolve, due = module.History.resolve, _now_and_then(2)

    def gone(self: Any, *a: Any, **more: Any) -> Any:
        if due():
            from schemas.errors import VacuumedError

            raise VacuumedError("no longer kept")
        return resolve(self, *a, **more)

    module.History.resolve = gone


def _late_write(module: Any) -> None:
    """Refuse some of the first writes, and write them all the same: half a minute later."""
    append, due = module.ResumingLog.append, _now_and_then(4)
    held: list[Any] = []
    until_s: list[float] = []

    def later(self: Any, entries: Any) -> Any:
        now_s = time.monotonic()
        if entries and due() and (not until_s or now_s < until_s[0] - 31.0):
            until_s[:] = until_s or [now_s + 34.0]
            held.extend(entries)
            raise module.UnavailableError("not now")
        if not held or now_s < until_s[0]:
            return append(self, entries)
        late = [*held]
        held.clear()
        return append(self, [*entries, *late])[: len(entries)] if entries else append(self, entries)

    module.ResumingLog.append = later


def _hurried_status(module: Any) -> None:
    """After a while the fold commits nothing more, and says how far it would be."""
    write = module.LakeWriter.write
    count: list[int] = []

    def stay(self: Any, query_id: str, batch_id: int, batch: Any) -> Any:
        count.append(1)
        if len(count) < 20:
            return write(self, query_id, batch_id, batch)
        self._take_progress(batch)
        return None

    module.LakeWriter.write = stay


def _wrong_receipt(module: Any) -> None:
    """Now and then the answer to a write has the time of another one."""
    time, due = module.rfc3339_ms, _now_and_then(5)
    module.rfc3339_ms = lambda time_ms: time(time_ms - 60_000 if due() else time_ms)


def _stale_304(module: Any) -> None:
    """Now and then answer 304 to a client with an ETag of other contents."""
    matches, due = module.matches, _now_and_then(3)
    module.matches = lambda if_none_match, digest: matches(if_none_match, digest) or (bool(if_none_match) and due())


def _unsynced_trim(module: Any) -> None:
    """Let the event log forget events before their results are on the disk: `test_power_cut.py` finds it."""
    _early_trim(module)
    module.sync_lake = lambda *arguments: None


def _overwritten_commit(module: Any) -> None:
    """An entry is put whatever stands there: `tests/lake/test_publisher.py` finds it."""

    def into_folder(self: Any, path: str, data: Any) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        os.link(data, target)

    def into_store(self: Any, path: str, data: Any) -> Any:
        self.put(path, data)
        return self.find(path).tag

    module.Folder.put_new = into_folder
    module.Store.put_new = into_store


def _smuggled_body(module: Any) -> None:
    """The body of a request that asks for an upgrade is no part of it: what comes in a later packet is the next request."""
    goes_on = module.GuardedProtocol._goes_on

    def drop(self: Any, error: Exception, data: bytes) -> Any:
        if isinstance(error, module.httptools.HttpParserUpgrade):
            self.headers = [header for header in self.headers if header[0] != b"content-length"]
            data = data[: error.args[0]]
        return goes_on(self, error, data)

    module.GuardedProtocol._goes_on = drop


def _clock_ahead(module: Any) -> None:
    """Believe every time of the clock."""
    module.Stamps.next = lambda self, last_ms: max(self._clock(), last_ms or 0)


def _stale_resume(module: Any) -> None:
    """A RESUME goes by an older time than that of the record before it."""
    resume = module._resume

    def stale(state: Any, event: Any, at: Any) -> Any:
        now_ms, state.now_ms = state.now_ms, max(1, state.now_ms - 3_000)
        try:
            return resume(state, event, at)
        finally:
            state.now_ms = now_ms

    module._resume = stale


MUTANTS: dict[str, tuple[str, Plant]] = {
    "clock-ahead": ("eventlog.stamps", _clock_ahead),
    "stale-resume": ("nameserver.state_machine.step", _stale_resume),
    "lost-append": ("eventlog.worker", _lost_append),
    "doubled-append": ("eventlog.worker", _doubled_append),
    "stale-view": ("api.gateway.watched_view", _stale_view),
    "early-expiry": ("nameserver.state_machine.liveness", _early_expiry),
    "batch-expiry": ("pipelines.shard_fold", _batch_expiry),
    "wipe-ignored": ("nameserver.state_machine.commands", _wipe_ignored),
    "half-an-epoch": ("lake.write.writer", _half_an_epoch),
    "another-past": ("lake.history.history", _another_past),
    "early-ack": ("eventlog.worker", _early_ack),
    "no-clock": ("eventlog.group_commit", _no_clock),
    "no-resume": ("eventlog.worker", _no_resume),
    "folded-twice": ("lake.write.writer", _folded_twice),
    "lost-rows": ("lake.write.writer", _lost_rows),
    "impatient": ("api.gateway.watched_view", _impatient),
    "skipped-event": ("api.http.events", _skipped_event),
    "short-diff": ("lake.history.diff", _short_diff),
    "lost-topic": ("api.gateway.registrations", _lost_topic),
    "late-write": ("eventlog.worker", _late_write),
    "ignores-closing": ("api.remoting.handlers", _ignores_closing),
    "false-close": ("api.remoting.handlers", _false_close),
    "coy": ("api.remoting.handlers", _coy),
    "coy-http": ("api.http.reads", _coy_http),
    "generous-resume": ("eventlog.worker", _generous_resume),
    "sleepy-clock": ("eventlog.group_commit", _sleepy_clock),
    "deaf": ("api.http.events", _deaf),
    "hurried-status": ("lake.write.writer", _hurried_status),
    "shy-past": ("lake.history.history", _shy_past),
    "wrong-receipt": ("api.http.writes", _wrong_receipt),
    "stale-304": ("api.http.routes_topics", _stale_304),
    "smuggled-body": ("api.http.protocol", _smuggled_body),
}
"""Name -> the module that it breaks, and how."""

FOUND_BY: dict[str, str] = {
    "clock-ahead": "clocks_and_resumes",
    "stale-resume": "tables_are_a_replay",
    "lost-append": "once",
    "doubled-append": "once",
    "stale-view": "never_back",
    "early-expiry": "equals_the_model",
    "batch-expiry": "expiry",
    "wipe-ignored": "equals_the_model",
    "half-an-epoch": "tables_are_a_replay",
    "another-past": "the_past_stays",
    "early-ack": "once",
    "no-clock": "clocks_and_resumes",
    "no-resume": "clocks_and_resumes",
    "folded-twice": "once",
    "lost-rows": "tables_are_a_replay",
    "impatient": "never_back",
    "skipped-event": "every_epoch_is_told",
    "short-diff": "differences",
    "lost-topic": "as_sent",
    "late-write": "in_order",
    "ignores-closing": "connections",
    "false-close": "connections",
    "coy": "refusals",
    "coy-http": "refusals",
    "generous-resume": "clocks_and_resumes",
    "sleepy-clock": "clocks_and_resumes",
    "deaf": "every_epoch_is_told",
    "hurried-status": "tables_are_a_replay",
    "shy-past": "the_past_stays",
    "wrong-receipt": "receipts",
    "stale-304": "headers",
    "smuggled-body": "once",
}
"""Name -> the rule that finds it, whatever others do."""

WITHOUT_SPARK: frozenset[str] = frozenset({"batch-expiry"})
"""Defects of a shard: Spark's Python workers are not planted, so that the fold has to be without Spark."""

SHOWN_BY: dict[str, tuple[str, ...]] = {
    "early-ack": ("kill-log",),
    "no-resume": ("clock-forward",),
    "clock-ahead": ("clock-leap",),
    "stale-resume": ("kill-gateway",),
}
"""The faults that it takes for a defect to show; the others need none."""


PLANTS = {
    **MUTANTS,
    "haste": ("lake.write.maintenance", _haste),
    "early-trim": ("lake.write.maintenance", _early_trim),
    "small-fold": ("pipelines.main", _small_fold),
    "unsynced-trim": ("lake.write.maintenance", _unsynced_trim),
    "overwritten-commit": ("lake.publisher", _overwritten_commit),
}


class _Planting(Loader):
    def __init__(self, loader: Loader, plant: Plant) -> None:
        self._loader, self._plant = loader, plant

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._plant(module)


class _Finder(MetaPathFinder):
    def __init__(self, name: str, plant: Plant) -> None:
        self._name, self._plant = name, plant

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Planting(spec.loader, self._plant)
        return spec


for _plant in filter(None, os.environ.get(VARIABLE, "").split(",")):
    sys.meta_path.insert(0, _Finder(*PLANTS[_plant]))
