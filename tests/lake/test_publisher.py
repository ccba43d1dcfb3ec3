# SPDX-License-Identifier: Apache-2.0
"""The commit protocol of a lake in an object store: one writer, whatever is stopped where; without Spark, in memory."""

from __future__ import annotations

import importlib
import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore

from dev.fault_injection.planted.sitecustomize import PLANTS
from dev.support import events as make
from dev.support import lakes
from dev.support.fold import Fold
from dev.support.intervals import assert_kept
from dev.support.memory_log import MemoryLog
from dev.support.sampled import sampled
from dev.support.stores import SteppingStore, objects, store
from lake.history.intervals import IntervalKeeper, rebuild
from lake.publisher import FENCE, FencedError, Publisher
from lake.store import StoreError
from lake.write import maintenance as maintenance_module
from lake.write.maintenance import SWEEP_INTERVAL_S, Maintenance
from schemas.errors import SetupError, UnavailableError
from schemas.events import AnyEvent, EventEncoder, routing_key
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import FOLD_STATUS_FILE, ROUTE_CHANGE_TABLE, ROUTE_COMMIT_TABLE

_encode = EventEncoder().encode


class World:
    """A log and a store, which folds share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = MemoryStore()
        self.log = MemoryLog()
        self._folds = 0
        self.tell(make.register(), make.register("x:1", name="x"))

    def tell(self, *events: AnyEvent) -> None:
        self.log.append([(routing_key(event), _encode(event)) for event in events])

    def fold(self, own: SteppingStore | None = None, **options: Any) -> Fold:
        """Another fold that takes the lake."""
        self._folds += 1
        return Fold(
            self.log, self.folder / f"f{self._folds}", store=own or store(self.memory), term=self._folds, **options
        )

    def stepping(self) -> SteppingStore:
        return SteppingStore(self.memory)

    def read(self) -> Path:
        """A copy of the lake as the store has it, for who reads folders."""
        self._folds += 1
        folder = self.folder / f"r{self._folds}"
        Publisher(store(self.memory), folder).fetch()
        return folder

    def check(self, epochs: int) -> None:
        """The lake is whole, and its tables are what the log says."""
        lake_dir = self.read()
        lakes.check_epochs(lake_dir)
        assert len(lakes.commits(lake_dir)) == epochs
        undisturbed = Fold(self.log, self.folder / f"u{self._folds}", store=store(MemoryStore()))
        undisturbed.fold()
        assert lakes.last_epoch_tables(lake_dir) == lakes.last_epoch_tables(undisturbed.lake_dir)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_store_has_every_epoch_and_a_new_fold_goes_on(world: World) -> None:
    one = world.fold(intervals=True)
    one.fold()
    world.tell(make.put("n", "k"))
    one.fold()
    two = world.fold(intervals=True)
    assert two.writer.epoch == 2
    world.tell(make.wipe("x"), make.put("n", "k2"))
    epoch = two.fold()
    assert epoch is not None and epoch.epoch == 3
    world.check(epochs=3)


def test_nothing_new_asks_the_store_for_nothing(world: World) -> None:
    own = world.stepping()
    one = world.fold(own)
    one.fold()
    steps = own.steps
    one.publisher.publish()
    assert own.steps == steps


def test_a_batch_whose_answer_was_lost_is_published_once(world: World) -> None:
    own = world.stepping()
    one = world.fold(own)
    one.fold()
    world.tell(make.put("n", "k"))
    own.lose_answer_of = {f"{ROUTE_COMMIT_TABLE.name}/_delta_log/00000000000000000002.json"}
    with pytest.raises(StoreError, match="lost"):
        one.fold()
    one.publisher.publish()
    world.check(epochs=2)


def test_a_report_whose_answer_was_lost_is_no_other_writer_s(world: World) -> None:
    """A store that took a PUT in longer than obstore waits; the next report says something else."""
    own = world.stepping()
    one = world.fold(own)
    one.fold()

    def report(text: str) -> bytes:
        (one.lake_dir / FOLD_STATUS_FILE).write_text(text)
        one.publisher._reported_s = 0.0
        one.publisher.publish_rest()
        return store(world.memory).get(FOLD_STATUS_FILE)

    for first in (b"0", b"3"):  # where none stands, and in another's place
        own.lose_answer_of = {FOLD_STATUS_FILE}
        assert report(first.decode()) == first
        own.before = lambda number, path: _fail(path)
        assert report("of no account") == first  # nor did this one come through
        own.before = lambda number, path: None
        assert report("2") == b"2"
    store(world.memory).put(FOLD_STATUS_FILE, b"of another")
    with pytest.raises(FencedError):
        report("4")


def _fail(path: str) -> None:
    raise StoreError(f"PUT {path}: timed out")


def _second_epoch(world: World, before: Callable[[int, str], None]) -> tuple[Fold, SteppingStore, FencedError | None]:
    """A fold writes a second epoch; ``before`` is called at each of its steps."""
    own = world.stepping()
    one = world.fold(own, intervals=True)
    one.fold()
    own.steps = 0
    own.before = before
    world.tell(make.wipe("x"), make.put("n", "k"))
    try:
        one.fold()
    except FencedError as error:
        return one, own, error
    return one, own, None


def _steps(folder: Path) -> list[str]:
    paths: list[str] = []
    _second_epoch(World(folder), lambda number, path: paths.append(path))
    return paths


def _stopped_at(folder: Path, step: int) -> None:
    """A fold stops before a step of its commit; another takes the lake and writes; then the first one goes on."""
    world = World(folder)
    after: dict[str, bytes] = {}
    stopped = threading.Lock()

    def take_over(number: int, path: str) -> None:
        with stopped:  # steps side by side all wait
            if number == step:
                other = world.fold(intervals=True)
                world.tell(make.put("n", "of the other"))
                other.fold()
                after.update(objects(world.memory))

    one, own, error = _second_epoch(world, take_over)
    own.before = lambda number, path: None
    if error is None:  # it stopped when all was done that others look at
        world.tell(make.put("n", "late"))
        with pytest.raises(FencedError):
            one.fold()
    with pytest.raises(FencedError):
        one.publisher.publish()
    now = objects(world.memory)
    assert {path: data for path, data in now.items() if path in after} == after, "it changed what stood there"
    new = [path for path in now if path not in after]
    assert all(path.endswith(".parquet") and "_delta_log" not in path for path in new), "others than data files"
    epochs = len(lakes.commits(world.read()))
    world.tell(make.put("n", "after all"))
    last = world.fold(intervals=True)
    last.fold()
    assert last.writer.epoch == epochs + 1
    world.check(epochs=epochs + 1)


def test_a_fold_that_was_stopped_within_a_commit_changes_nothing(tmp_path: Path) -> None:
    paths = _steps(tmp_path / "steps")
    commit = next(
        number for number, path in enumerate(paths, 1) if path.startswith(f"{ROUTE_COMMIT_TABLE.name}/_delta_log")
    )
    for step in (1, commit):
        _stopped_at(tmp_path / str(step), step)


@pytest.mark.parametrize("into", ["folder", "store"])
def test_a_publisher_that_overwrites_a_commit_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, into: str
) -> None:
    name, plant = PLANTS["overwritten-commit"]
    module = importlib.import_module(name)
    for target in (module.Folder, module.Store):
        monkeypatch.setattr(target, "put_new", target.put_new)
    plant(module)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        if into == "store":
            _stopped_at(tmp_path, 1)
        else:
            _writes_beside_another(tmp_path)


def _writes_beside_another(folder: Path) -> None:
    """Another process writes a version of a table that a fold has open."""
    log = MemoryLog()
    one = Fold(log, folder / "lake")
    other = DeltaTable(str(folder / "lake" / "kvConfigTable"))
    other.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    event = make.put("n", "k")
    log.append([(routing_key(event), _encode(event))])
    with pytest.raises(UnavailableError, match="written by another program"):
        one.fold()


@pytest.mark.deep
def test_whatever_step_it_was_stopped_at(tmp_path: Path) -> None:
    for step in range(1, len(_steps(tmp_path / "steps")) + 1):
        _stopped_at(tmp_path / str(step), step)


def _race(world: World, chance: random.Random) -> None:
    """One folds on while another takes the lake: one of them goes on, and no epoch is there twice or half."""
    one = world.fold()
    begun, ended = threading.Event(), []

    def go_on() -> None:
        for number in range(1_000):
            world.tell(make.put("n", f"k{chance.random()}", str(number)))
            try:
                one.fold(1)
            except FencedError:
                ended.append(number)
                return
            begun.set()

    writing = threading.Thread(target=go_on)
    writing.start()
    assert begun.wait(30)
    threading.Event().wait(chance.random() * 0.2)
    two = world.fold()
    writing.join(60)
    assert ended, "it was never told that the lake is another's"
    two.fold()
    lakes.check_epochs(world.read())


def test_two_folds_race(world: World) -> None:
    _race(world, random.Random(5))


@pytest.mark.deep
@pytest.mark.timeout(3_000)
def test_two_folds_race_two_hundred_times(tmp_path: Path) -> None:
    chance = random.Random(21)
    for number in range(200):
        _race(World(tmp_path / str(number)), chance)


def test_two_that_make_the_same_new_lake(world: World) -> None:
    one, two = world.fold(), world.fold()
    one.fold()
    with pytest.raises(FencedError):
        two.fold()
    world.check(epochs=1)


def test_a_fence_is_no_epoch_and_changes_no_table(world: World) -> None:
    world.fold().fold()
    before = world.read()
    Publisher(store(world.memory), world.folder / "m").fetch()
    world.fold()
    fences = [path for path, data in objects(world.memory).items() if f'"{FENCE}"'.encode() in data]
    assert len(fences) == len(list(before.glob("*/_delta_log")))
    assert lakes.commits(world.read()) == lakes.commits(before)
    assert lakes.last_epoch_tables(world.read()) == lakes.last_epoch_tables(before)


def test_a_copy_is_made_whole_whatever_an_earlier_run_left(world: World) -> None:
    one = world.fold()
    one.fold()
    world.tell(make.put("n", "k"))
    one.fold()
    wanted = lakes.last_epoch_tables(world.read())
    copy = one.lake_dir
    data = next((copy / "kvConfigTable").glob("*.parquet"))
    data.write_bytes(b"torn")
    (copy / "kvConfigTable" / "part-old.parquet").write_bytes(b"of no use")
    (copy / "kvConfigTable" / "part-1.parquet.0123.part").write_bytes(b"of a fetch that was killed")
    (copy / ROUTE_COMMIT_TABLE.name / "_delta_log" / f"{9:020d}.json").write_bytes(b"")
    (copy / "fold-status.json").write_text("{}")
    Publisher(store(world.memory), copy).fetch()
    assert lakes.last_epoch_tables(copy) == wanted
    assert len(list((copy / "kvConfigTable").glob("part-*"))) == len(lakes.state_tables(copy)["kvConfigTable"])
    lakes.check_epochs(copy)


def test_a_fold_goes_on_from_checkpoints_and_reads_versions_before_them(world: World) -> None:
    one = world.fold()
    one.fold()
    for number in range(3):
        world.tell(make.put("n", f"k{number}"))
        one.fold()
    for table in one.writer.tables.values():
        table.checkpoint()
    one.publisher.publish_rest()
    world.tell(make.put("n", "k"))
    one.fold()
    for table in one.writer.tables.values():  # ahead of the last epoch, and with a checkpoint there
        if table.path.name != ROUTE_COMMIT_TABLE.name:
            table.delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 29 days"})
            table.checkpoint()
    one.publisher.publish()
    one.publisher.publish_rest()
    two = world.fold()
    world.tell(make.wipe("x"))
    two.fold()
    world.check(epochs=6)


def test_intervals_that_were_made_anew_are_so_in_the_store(world: World) -> None:
    one = world.fold(intervals=True)
    one.fold()
    wanted = objects(world.memory)
    _made_anew(one)
    world.tell(make.wipe("x"))
    one.fold()
    assert wanted.keys() <= objects(world.memory).keys()  # its log goes on
    assert_kept(world.read())
    two = world.fold(intervals=True)
    assert two._keeper is not None and two._keeper._epochs["topicQueueHistory"] == 2


def _files(folder: Path) -> set[str]:
    """Of all tables, but not their logs."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {
        str(path) for path in found if len(path.parts) > 1 and not {"_delta_log", "_staging", "spool"} & {*path.parts}
    }


def test_a_copy_keeps_what_the_newest_version_needs_while_it_runs(world: World) -> None:
    one = world.fold(intervals=True)
    one.fold()
    for _ in range(4):
        for event in (make.wipe("x"), make.add("x"), make.put("n", "k"), make.delete("n", "k")):
            world.tell(event)
            one.fold()
    fresh = _files(world.read())
    assert len(_files(one.lake_dir)) > len(fresh) + 20
    assert one._keeper is not None
    tables = {**one.writer.tables, **one._keeper.tables}
    maintenance = Maintenance(tables, world.log, 30, 24.0, one.publisher)

    def sweep() -> None:
        maintenance._swept_at = time.monotonic() - SWEEP_INTERVAL_S
        for _ in range(100):
            maintenance.step(one.writer)
            one.publisher.publish_all()

    before = _files(one.lake_dir)
    sweep()
    assert _files(one.lake_dir) == before  # they are young
    for path in one.lake_dir.rglob("*.parquet"):
        os.utime(path, (0, 0))
    sweep()
    assert _files(one.lake_dir) == fresh
    world.tell(make.wipe("b"), make.put("n", "k2"))
    one.fold()
    world.check(epochs=18)


def test_old_files_of_the_copy_go_in_the_step_that_compacts_their_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And after a step of the interval tables. Their commits are published later than the epochs."""
    monkeypatch.setattr(maintenance_module, "COMPACT_WHEN_FILES", 3)
    monkeypatch.setattr(maintenance_module, "STEP_S", 3_600.0)
    one = world.fold(intervals=True)
    keeper, one._keeper = one._keeper, None
    assert keeper is not None
    maintenance = Maintenance({**one.writer.tables, **keeper.tables}, world.log, 30, 24.0, one.publisher)

    def sweep_after_epochs(key: str) -> dict[str, set[str]]:
        """Make some epochs, sweep in one step, and return the files of the tables that were compacted."""
        for number in range(5):
            world.tell(make.put("n", key, str(number)))
            one.fold()
            keeper._next_step_s = 0.0
            keeper.step(one.writer.epoch, one.writer.tables[ROUTE_CHANGE_TABLE.name].version)
        for path in one.lake_dir.rglob("*.parquet"):
            os.utime(path, (0, 0))
        maintenance._swept_at = time.monotonic() - SWEEP_INTERVAL_S
        maintenance.step(one.writer)
        tables = (ROUTE_COMMIT_TABLE.name, ROUTE_CHANGE_TABLE.name, "kvHistory")
        return {name: {path for path in _files(one.lake_dir) if path.startswith(f"{name}/")} for name in tables}

    before, after = sweep_after_epochs("k"), sweep_after_epochs("k2")
    for name, files in before.items():
        assert len(files & after[name]) <= 1, name
    one.publisher.publish_all()
    world.check(epochs=10)


def test_what_is_not_published_yet_stays_in_the_copy(world: World) -> None:
    own = world.stepping()
    one = world.fold(own)
    one.fold()

    def fail(number: int, path: str) -> None:
        raise StoreError(f"PUT {path}: 503")

    own.before = fail
    for value in ("1", "2"):
        world.tell(make.put("n", "k", value))
        with pytest.raises(StoreError):
            one.fold()
    for path in one.lake_dir.rglob("*.parquet"):
        os.utime(path, (0, 0))
    one.publisher.copy.remove_old_files("kvConfigTable")
    own.before = lambda number, path: None
    one.fold()
    world.check(epochs=3)


class Counting(SteppingStore):
    """Notes which entries and checkpoints are fetched."""

    def __init__(self, memory: MemoryStore) -> None:
        super().__init__(memory)
        self.fetched: list[str] = []

    def fetch(self, path: str, target: Path) -> None:
        if "/_delta_log/" in path:
            self.fetched.append(path)
        super().fetch(path, target)

    def asked(self) -> int:
        """How many since it was last asked."""
        count = len(self.fetched)
        self.fetched.clear()
        return count


def test_who_stands_by_fetches_what_is_new(world: World) -> None:
    one = world.fold(intervals=True)
    for number in range(10):
        world.tell(make.put("n", f"k{number}"))
        one.fold()
    own = Counting(world.memory)
    standby = Publisher(own, world.folder / "standby")
    standby.fetch()
    assert own.asked() > 30
    standby.fetch()
    assert own.asked() == 0
    world.tell(make.wipe("x"))
    before = dict(one.publisher.copy.versions)
    one.fold()
    standby.fetch()
    assert own.asked() == sum(one.publisher.copy.versions[name] - version for name, version in before.items())
    assert one._keeper is not None
    for table in (*one.writer.tables.values(), *one._keeper.tables.values()):
        table.checkpoint()
    one.publisher.publish_rest()
    world.tell(make.put("n", "k"))  # in which epoch all of them are past their checkpoints
    one.fold()
    standby.fetch()
    for name in standby.copy.versions:
        assert (
            min((standby.copy.folder / name / "_delta_log").glob("*.json")).stem
            == f"{standby.copy.checkpoints[name]:020d}"
        )
    assert standby.copy.versions == one.publisher.copy.versions
    _made_anew(one)  # by the same fold, which goes on
    world.tell(make.put("n", "k0", "again"))
    one.fold()
    standby.fetch()
    standby.fence("standby", 9)
    (standby.copy.folder / FOLD_STATUS_FILE).write_text("{}")
    standby.publish_all()
    with pytest.raises(FencedError):
        world.tell(make.put("n", "late"))
        one.fold()
    world.fold(intervals=True).fold()
    assert_kept(world.read())
    world.check(epochs=14)


def _made_anew(one: Fold) -> None:
    """As by a keeper that finds them of no use."""
    rebuild(one.lake_dir, lambda epoch, last: None)
    one._keeper = IntervalKeeper(one.lake_dir)


def _checkpoint_intervals(one: Fold) -> None:
    assert one._keeper is not None
    for table in one._keeper.tables.values():
        table.checkpoint()
    one.publisher.publish_all()


class Cut(SteppingStore):
    """Deletes so many objects, one by one, and then fails."""

    left = 1_000

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            if self.left == 0:
                raise StoreError(f"DELETE {path}: 503")
            self.left -= 1
            super().delete([path])


@pytest.mark.parametrize(
    ("with_checkpoint", "cut"), sampled(product((False, True), (0, 1, 2, 3, 5)), [(False, 1), (True, 3)])
)
def test_intervals_of_no_use_may_be_deleted_in_parts(world: World, with_checkpoint: bool, cut: int) -> None:
    one = world.fold(intervals=True)
    one.fold()
    world.tell(make.put("n", "k"))
    one.fold()
    if with_checkpoint:
        _checkpoint_intervals(one)
    own = Cut(world.memory)
    own.delete([path for path in objects(world.memory) if "History/" in path and "_delta_log" not in path])
    own.left = cut
    with pytest.raises(StoreError, match="503"):
        world.fold(own, intervals=True)
    two = world.fold(intervals=True)
    world.tell(make.wipe("x"))
    two.fold()
    assert_kept(world.read())
    world.check(epochs=3)


def test_intervals_of_the_fold_that_has_taken_over_are_left_alone(world: World) -> None:
    one = world.fold(intervals=True)
    one.fold()
    _made_anew(one)
    two = world.fold(intervals=True)
    world.tell(make.wipe("x"))
    two.fold()
    before = _logs(world)
    with pytest.raises(FencedError):
        one.publisher.publish_rest()
    assert _logs(world) == before


def _logs(world: World) -> dict[str, bytes]:
    return {path: data for path, data in objects(world.memory).items() if "/_delta_log/" in path}


def test_a_table_that_was_begun_again_in_the_copy_is_not_published(world: World) -> None:
    one = world.fold(intervals=True)
    one.fold()
    shutil.rmtree(one.lake_dir / INTERVAL_TABLES[0].name)
    before = _logs(world)
    with pytest.raises(RuntimeError, match="was replaced by a new table"):
        one.publisher.publish_all()
    assert _logs(world) == before
    world.tell(make.wipe("x"))
    world.fold(intervals=True).fold()
    assert_kept(world.read())


def test_intervals_that_lack_a_file_keep_nobody_from_starting(world: World) -> None:
    one = world.fold(intervals=True)
    one.fold()
    _checkpoint_intervals(one)
    there = store(world.memory)
    lost = next(path for path in objects(world.memory) if "topicQueueHistory" in path and path.endswith(".parquet"))
    there.delete([lost])
    two = world.fold(intervals=True)
    world.tell(make.wipe("x"))
    for _ in range(2):
        two.fold()
    _checkpoint_intervals(two)
    assert_kept(world.read())
    world.check(epochs=2)


def test_a_lake_of_a_newer_format_is_refused(world: World) -> None:
    world.fold().fold()
    store(world.memory).put("lake.json", b'{"format": 99}')
    with pytest.raises(SetupError, match="format 99"):
        world.fold()
