# SPDX-License-Identifier: Apache-2.0
"""topics.json: what is written can be read, and what cannot be read has one clear message."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.broker.broker_topics import Loaded, TopicFile, encode_topics_file
from clients.broker.topic_config import TopicConfig, TopicTable, decode_topic_table
from dev.support.patches import in_this_thread
from schemas.broker import DataVersion
from schemas.errors import SetupError

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
CONFIGS = st.builds(
    TopicConfig,
    topic_name=TEXT,
    attributes=st.dictionaries(TEXT, TEXT, max_size=2),
    order=st.booleans(),
    perm=INTS,
    read_queue_nums=INTS,
    write_queue_nums=INTS,
    topic_sys_flag=INTS,
    topic_filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
)


def table(*names: str, counter: int = 1) -> TopicTable:
    topics = {name: TopicConfig(topic_name=name, attributes={"message.type": "FIFO"}) for name in names}
    return TopicTable(DataVersion(1, 1_700_000_000_000, counter), topics)


@pytest.fixture
def file(tmp_path: Path) -> TopicFile:
    return TopicFile(tmp_path / "config" / "topics.json")


@given(st.builds(DataVersion, LONGS, LONGS, LONGS), st.lists(CONFIGS, max_size=3))
def test_what_is_written_is_read(version: DataVersion, configs: list[TopicConfig]) -> None:
    written = TopicTable(version, {config.topic_name: config for config in configs})
    data = encode_topics_file(written)
    assert decode_topic_table(data) == written
    assert json.loads(data)["dataVersion"]["counter"] == version.counter


def test_the_text_is_fastjsons() -> None:
    assert encode_topics_file(table("orders")).decode() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":1,\n\t\t"timestamp":1700000000000\n\t},\n'
        '\t"topicConfigTable":{\n\t\t"orders":{\n\t\t\t"attributes":{\n\t\t\t\t"message.type":"FIFO"\n\t\t\t},\n'
        '\t\t\t"order":false,\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":16,\n\t\t\t"topicFilterType":"SINGLE_TAG",\n'
        '\t\t\t"topicName":"orders",\n\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":16\n\t\t}\n\t}\n}'
    )


def test_files_of_other_releases_are_read() -> None:
    """4.x wrote neither attributes nor stateVersion; null and absent take the defaults."""
    found = decode_topic_table(
        b'{"dataVersion":{"counter":3,"timestamp":17},"topicConfigTable":{"a":{"order":false,"perm":7,'
        b'"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"a","topicSysFlag":0,"writeQueueNums":4,'
        b'"somethingNew":[1]},"b":{"attributes":null,"topicFilterType":null}}}'
    )
    assert found.data_version == DataVersion(0, 17, 3)
    assert found.topic_config_table["a"] == TopicConfig(topic_name="a", perm=7, read_queue_nums=4, write_queue_nums=4)
    assert found.topic_config_table["b"] == TopicConfig(topic_name="b")


def test_a_new_broker_has_no_file(file: TopicFile) -> None:
    assert file.load() == Loaded(None)


def test_the_backup_is_one_change_behind(file: TopicFile) -> None:
    for counter in (1, 2, 3):
        file.persist(table("orders", counter=counter))
    assert file.load() == Loaded(table("orders", counter=3))
    assert decode_topic_table(file.backup.read_bytes()) == table("orders", counter=2)
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


BROKEN = {
    "truncated": encode_topics_file(table("orders"))[:-40],
    "empty": b"",
    "blank": b"\n",
    "noise": b"\x00\xff\x00",
    "a list": b"[]",
    "no table": b'{"dataVersion":{"counter":1,"timestamp":1}}',
    "no numbers": encode_topics_file(table("orders")).replace(b"16", b'"many"'),
    "a long int": encode_topics_file(table("orders")).replace(b"16", b"99999999999"),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_gives_way_to_its_backup(file: TopicFile, content: bytes) -> None:
    file.persist(table("orders", counter=1))
    file.persist(table("orders", counter=2))
    file.path.write_bytes(content)
    loaded = file.load()
    assert loaded.table == table("orders", counter=1)
    assert "cannot be read" in loaded.warning
    assert "it is now topics.json.broken" in loaded.warning
    assert "Started from topics.json.bak" in loaded.warning
    assert "\n" not in loaded.warning
    assert file.path.with_name("topics.json.broken").read_bytes() == content
    # the next change must not make the broken file the backup
    file.persist(table("orders", counter=2))
    assert file.load() == Loaded(table("orders", counter=2))
    assert decode_topic_table(file.backup.read_bytes()) == table("orders", counter=1)


def test_a_missing_file_gives_way_to_its_backup(file: TopicFile) -> None:
    """A stock broker killed between its two steps leaves this behind."""
    file.persist(table("orders"))
    file.path.rename(file.backup)
    loaded = file.load()
    assert loaded.table == table("orders")
    assert f"{file.path} is missing. Started from topics.json.bak" in loaded.warning


@pytest.mark.parametrize("backup", [None, b"", b"{"])
def test_nothing_readable_is_for_a_person_to_decide(file: TopicFile, backup: bytes | None) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(b'{"dataVersion"')
    if backup is not None:
        file.backup.write_bytes(backup)
    with pytest.raises(SetupError) as error:
        file.load()
    assert str(error.value).startswith(f"{file.path} cannot be read (")
    assert "to start with the built-in topics alone" in str(error.value)
    assert file.path.read_bytes() == b'{"dataVersion"'


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    file = TopicFile(tmp_path / "config" / "topics.json")
    with pytest.raises(OSError, match="File exists"):
        file.persist(table("orders"))
    (tmp_path / "topics.json").mkdir()
    with pytest.raises(SetupError, match="cannot use .*: Is a directory"):
        TopicFile(tmp_path / "topics.json").load()


def test_without_hard_links(file: TopicFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", in_this_thread(refuse, os.link))
    file.persist(table("orders", counter=1))
    file.persist(table("orders", counter=2))
    assert file.load() == Loaded(table("orders", counter=2))
    assert decode_topic_table(file.backup.read_bytes()) == table("orders", counter=1)


@pytest.mark.parametrize("step", ["fsync", "link", "replace backup", "replace"])
def test_killed_between_two_steps(file: TopicFile, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whatever is left, the next start finds the topics, before or after the change."""
    before, after = table("orders", counter=1), table("orders", "payments", counter=2)
    file.persist(before)
    replace = Path.replace

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def stop_at(path: Path, target: Any) -> Path:
        if (target == file.backup) == (step == "replace backup"):
            raise KeyboardInterrupt
        return replace(path, target)

    if step.startswith("replace"):
        monkeypatch.setattr(Path, "replace", in_this_thread(stop_at, replace))
    else:
        monkeypatch.setattr(os, step, in_this_thread(stop, getattr(os, step)))
    with pytest.raises(KeyboardInterrupt):
        file.persist(after)
    monkeypatch.undo()
    assert file.load() == Loaded(before)
    file.persist(after)
    assert file.load() == Loaded(after)
