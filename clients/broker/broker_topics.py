# SPDX-License-Identifier: Apache-2.0
"""The topics of one broker while it runs: the rules of `topics` under a lock, kept in a file, told to the NameServers.

Each change goes the same way::

    lock (3 s for a creation while sending) -> change the table -> write topics.json -> unlock -> register -> answer

so that two senders to the same unknown topic create it once, and whoever is answered finds it at the NameServers that
could be reached. Who holds the registration lock may take the table's, never the other way round.

Sources (5.5.0): org.apache.rocketmq.broker.topic.TopicConfigManager, AbstractSendMessageProcessor.

topics.json: written as a stock broker reads it, read as a stock broker writes it.

A change is written in four steps, each of which leaves a readable topics.json behind:

    1. the new content into ``topics.json.tmp``, synced
    2. the present file becomes ``topics.json.bak``, too (a second name for it, put there by one rename)
    3. ``topics.json.tmp`` is renamed to ``topics.json``
    4. the folder is synced

RocketMQ renames the file to ``.bak`` and then writes a new one, so that for a moment only the backup is there.

Sources (5.5.0): org.apache.rocketmq.common.ConfigManager, TopicConfigManager.encode and decode.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from clients.broker.config import BrokerConfig
from clients.broker.sending import SendRequest, check_name, check_queue
from clients.broker.topic_config import TopicConfig, TopicTable, decode_topic_table
from clients.broker.topics import Creation, TopicConfigManager
from schemas.broker import DataVersion
from schemas.errors import BadRequestError, SetupError
from schemas.topic_names import RETRY_GROUP_TOPIC_PREFIX

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


log = structlog.get_logger("routelake.broker")

LOCK_TIMEOUT_S: Final = 3.0
"""How long a creation waits for the table (TopicConfigManager.LOCK_TIMEOUT_MILLIS)."""


class BrokerTopics:
    """Changes the topics of one broker.

    Attributes:
        topics: Read them at will; change them through the methods here.
        lock: Held while they change.
    """

    def __init__(
        self,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        register_changed: Callable[[Sequence[TopicConfig], DataVersion], Awaitable[object]],
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        """With the built-in topics.

        Args:
            config: Of the broker; without `store_path_root_dir` topics are in memory only.
            now_ms: Milliseconds since the epoch, for versions.
            register_changed: Told the topics that were created or changed, and the version after it.
            lock_timeout_s: See LOCK_TIMEOUT_S.
        """
        self.topics = TopicConfigManager(config, now_ms())
        self.lock = asyncio.Lock()
        self._config = config
        self._now_ms = now_ms
        self._register_changed = register_changed
        self._lock_timeout_s = lock_timeout_s
        self._file = TopicFile(config.topics_file) if config.store_path_root_dir else None

    async def load(self) -> None:
        """Take over what topics.json holds.

        Raises:
            SetupError: It cannot be read.
        """
        if self._file is None:
            return
        loaded = await asyncio.to_thread(self._file.load)
        if loaded.warning:
            log.warning("topics.json is damaged", problem=loaded.warning)
        if loaded.table is not None:
            self.topics.load(loaded.table)
        if loaded.table is None or loaded.warning:
            await self._persist()

    async def for_send(self, request: SendRequest, producer: str) -> TopicConfig:
        """The topic that a message goes to, created if need be (msgCheck).

        Raises:
            RefusedError: The message may not be sent.
        """
        check_name(self._config, self.topics, request.topic)
        found = self.topics.table.get(request.topic)
        if found is None:
            found = await self._create(
                request.topic,
                lambda now_ms: self.topics.create_topic_in_send_message(
                    request.topic,
                    request.default_topic,
                    request.default_topic_queue_nums,
                    request.topic_sys_flag,
                    now_ms,
                ),
            )
        if found is None and request.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            found = await self.needed(request.topic, 1, topic_sys_flag=request.topic_sys_flag)
        return check_queue(request, found, producer)

    async def needed(
        self, topic: str, queue_nums: int, *, is_order: bool = False, topic_sys_flag: int = 0
    ) -> TopicConfig | None:
        """A topic of the broker's own: %RETRY%group, %DLQ%group, half messages; None if the table stays locked."""
        found = self.topics.table.get(topic)
        if found is not None and found.order == is_order:
            return found
        return await self._create(
            topic,
            lambda now_ms: self.topics.create_topic_in_send_message_back(
                topic, queue_nums, now_ms, is_order=is_order, topic_sys_flag=topic_sys_flag
            ),
        )

    async def update(self, edited: Sequence[TopicConfig]) -> None:
        """Create or replace topics.

        Raises:
            BadRequestError: Attribute edits that do not apply.
        """
        async with self.lock:
            changed = self.topics.update_topic_configs(edited, self._now_ms())
            version = self.topics.data_version
            await self._persist()
        await self._register_changed(changed, version)

    async def mark_ordered(self, order_topics: Iterable[str]) -> None:
        """Mark those that a NameServer's ORDER_TOPIC_CONFIG names. They are registered with the next round."""
        async with self.lock:
            if self.topics.update_order_topics(order_topics, self._now_ms()):
                await self._persist()

    async def delete(self, topic: str) -> None:
        """Forget a topic. NameServers are not told, as in RocketMQ."""
        async with self.lock:
            if not self.topics.delete_topic(topic, self._now_ms()):
                return
            await self._persist()
        log.info("topic deleted", topic=topic)

    async def _create(self, topic: str, create: Callable[[int], Creation]) -> TopicConfig | None:
        """Create under the lock; None when it refuses, or the lock cannot be had in time."""
        try:
            async with asyncio.timeout(self._lock_timeout_s):
                await self.lock.acquire()
        except TimeoutError:
            log.warning("topic not created: the topic table stayed locked", topic=topic, seconds=self._lock_timeout_s)
            return None
        try:
            creation = create(self._now_ms())
            version = self.topics.data_version
            if creation.changed:
                await self._persist()
        finally:
            self.lock.release()
        if creation.config is None:
            log.warning("topic not created", topic=topic, reason=creation.refusal)
        elif creation.created:
            log.info("topic created", topic=topic, queues=creation.config.write_queue_nums)
            await self._register_changed([creation.config], version)
        return creation.config

    async def _persist(self) -> None:
        """Write topics.json, under the lock.

        A failure is logged, as in RocketMQ: the next change writes everything again.
        """
        if self._file is None:
            return
        try:
            await asyncio.to_thread(self._file.persist, self.topics.snapshot())
        except OSError as error:
            log.error("cannot write topics.json", file=str(self._file.path), error=str(error))
