# SPDX-License-Identifier: Apache-2.0
"""topics.json: written as a stock broker reads it, read as a stock broker writes it.

A change is written in four steps, each of which leaves a readable topics.json behind:

    1. the new content into ``topics.json.tmp``, synced
    2. the present file becomes ``topics.json.bak``, too (a second name for it, put there by one rename)
    3. ``topics.json.tmp`` is renamed to ``topics.json``
    4. the folder is synced

RocketMQ renames the file to ``.bak`` and then writes a new one, so that for a moment only the backup is there.

Sources (5.5.0): org.apache.rocketmq.common.ConfigManager, TopicConfigManager.encode and decode.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from clients.broker.topic_config import TopicConfig, TopicTable, decode_topic_table
from schemas.errors import BadRequestError, SetupError

BACKUP: Final = ".bak"
BROKEN: Final = ".broken"
_TEMPORARY: Final = ".tmp"

_encode = msgspec.json.Encoder().encode


class Loaded(NamedTuple):
    """Contents of topics.json.

    Attributes:
        table: None when there is no file: a new broker.
        warning: What a person should know; "" for nothing.
    """

    table: TopicTable | None
    warning: str = ""


class TopicFile:
    """One broker's topics.json and its backup."""

    def __init__(self, path: Path) -> None:
        """Touches nothing yet.

        Args:
            path: Of topics.json.
        """
        self.path = path
        self.backup = path.with_name(path.name + BACKUP)

    def load(self) -> Loaded:
        """Read the file, or its backup if it is missing, empty or broken (ConfigManager.load).

        A broken file is moved aside, lest the next change make it the backup. RocketMQ deletes it, and starts with the
        built-in topics alone when there is no backup either; here that needs a person.

        Raises:
            SetupError: Neither can be read, or the folder cannot be used.
        """
        try:
            trouble = ""
            if self.path.exists():
                try:
                    return Loaded(_read(self.path))
                except BadRequestError as error:
                    trouble = f"{self.path} cannot be read ({error})"
            if not self.backup.exists():
                if not trouble:
                    return Loaded(None)
                raise SetupError(
                    f"{trouble}, and there is no backup {self.backup.name} next to it. Put a good copy there, or "
                    "remove the file to start with the built-in topics alone."
                )
            try:
                table = _read(self.backup)
            except BadRequestError as error:
                raise SetupError(
                    f"{trouble or f'{self.path} is missing'}, and neither can its backup {self.backup.name} ({error}). "
                    "Put a good copy there, or remove both to start with the built-in topics alone."
                ) from error
            if trouble:
                aside = self.path.with_name(self.path.name + BROKEN)
                self.path.replace(aside)
                trouble += f"; it is now {aside.name}"
            else:
                trouble = f"{self.path} is missing"
            return Loaded(table, f"{trouble}. Started from {self.backup.name}: the last change may be lost.")
        except OSError as error:
            raise SetupError(f"cannot use {self.path}: {error.strerror}. Choose another --store.") from error

    def persist(self, table: TopicTable) -> None:
        """Write a table; the present file becomes the backup.

        Raises:
            OSError: It could not be written; the file is as it was.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(self.path.name + _TEMPORARY)
        with temporary.open("wb") as file:
            file.write(encode_topics_file(table))
            file.flush()
            os.fsync(file.fileno())
        self._back_up()
        temporary.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _back_up(self) -> None:
        if not self.path.exists():
            return
        coming = self.backup.with_name(self.backup.name + _TEMPORARY)
        with contextlib.suppress(FileNotFoundError):
            coming.unlink()
        try:
            os.link(self.path, coming)
        except OSError:  # a file system without hard links
            shutil.copyfile(self.path, coming)
        coming.replace(self.backup)


def _read(path: Path) -> TopicTable:
    """Raises BadRequestError, OSError."""
    data = path.read_bytes()
    if not data.strip():
        raise BadRequestError("it is empty")
    return decode_topic_table(data)


# --- the file's text ---


def encode_topics_file(table: TopicTable) -> bytes:
    """The file as a stock broker writes it: fastjson's order, one value a line, tabs."""
    version = table.data_version
    topics = b",".join(_entry(name, config) for name, config in table.topic_config_table.items())
    return (
        b'{\n\t"dataVersion":{\n\t\t"counter":%d,\n\t\t"stateVersion":%d,\n\t\t"timestamp":%d\n\t},\n'
        b'\t"topicConfigTable":{%b%b}\n}'
    ) % (version.counter, version.state_version, version.timestamp, topics, b"\n\t" if topics else b"")


def _entry(name: str, config: TopicConfig) -> bytes:
    lines = [
        b'"attributes":%b' % _attributes(config.attributes),
        b'"order":%b' % (b"true" if config.order else b"false"),
        b'"perm":%d' % config.perm,
        b'"readQueueNums":%d' % config.read_queue_nums,
        b'"topicFilterType":"%b"' % config.topic_filter_type.encode(),
        b'"topicName":%b' % _encode(config.topic_name),
        b'"topicSysFlag":%d' % config.topic_sys_flag,
        b'"writeQueueNums":%d' % config.write_queue_nums,
    ]
    return b"\n\t\t%b:{\n\t\t\t%b\n\t\t}" % (_encode(name), b",\n\t\t\t".join(lines))


def _attributes(attributes: dict[str, str]) -> bytes:
    if not attributes:
        return b"{}"
    lines = [b"%b:%b" % (_encode(key), _encode(value)) for key, value in sorted(attributes.items())]
    return b"{\n\t\t\t\t%b\n\t\t\t}" % b",\n\t\t\t\t".join(lines)
