# SPDX-License-Identifier: Apache-2.0
"""The topics of a running broker: changed by the rules of `topics` under a lock, stored in a file, and registered.

Each change has the same steps::

    lock (3 s for a creation while sending) -> change the table -> write topics.json -> unlock -> register -> answer

So two senders to the same unknown topic create it once. After the answer, the topic is at all NameServers that could be
reached. A task that holds the registration lock may take the lock of the table, but never the other way round.

Sources (5.5.0): org.apache.rocketmq.broker.topic.TopicConfigManager, AbstractSendMessageProcessor.

A stock broker can read the topics.json of this module, and this module the topics.json of a stock broker.

A change is written in four steps. After each step there is a readable topics.json:

    1. the new content into ``topics.json.tmp``, synced
    2. the present file also gets the name ``topics.json.bak`` (a second link, put there by one rename)
    3. ``topics.json.tmp`` is renamed to ``topics.json``
    4. the folder is synced

RocketMQ renames the file to ``.bak`` and then writes a new one, so that for a short time only the backup exists.

Sources (5.5.0): org.apache.rocketmq.common.ConfigManager, TopicConfigManager.encode and decode.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
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


class Loaded(NamedTuple):
    """Contents of topics.json.

    Attributes:
        table: The table, or None without a file, for a new broker.
        warning: Warning for an operator, or "".
    """

    table: TopicTable | None
    warning: str = ""


class TopicFile:
    """One broker's topics.json and its backup."""

    def __init__(self, path: Path) -> None:
        """Create an object for a file, without access to the file.

        Args:
            path: Path of topics.json.
        """
        self.path = path
        self.backup = path.with_name(path.name + BACKUP)

    def load(self) -> Loaded:
        """Read the file, or its backup if the file is missing, empty or broken (ConfigManager.load).

        A broken file is renamed, so that the next change does not make it the backup. RocketMQ deletes it, and without
        a backup starts with only the built-in topics. Here an operator has to decide.

        Raises:
            SetupError: Neither file nor backup can be read, or the folder cannot be used.
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
        """Write a table. The present file becomes the backup.

        Raises:
            OSError: The table could not be written. The file is unchanged.
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
    """Read a topics.json. Raises BadRequestError, OSError."""
    data = path.read_bytes()
    if not data.strip():
        raise BadRequestError("it is empty")
    return decode_topic_table(data)


# --- the file's text ---


def encode_topics_file(table: TopicTable) -> bytes:
    """Encode topics.json as a stock broker does: fastjson's order, one value in each line, tabs."""
    topics = table.topic_config_table.items()
    found = {
        "dataVersion": msgspec.to_builtins(table.data_version, order="sorted"),
        "topicConfigTable": {name: msgspec.to_builtins(topic, order="deterministic") for name, topic in topics},
    }
    return json.dumps(found, indent="\t", separators=(",", ":"), ensure_ascii=False).encode()


log = structlog.get_logger("routelake.broker")

LOCK_TIMEOUT_S: Final = 3.0
"""Maximum wait of a creation for the table, in seconds (TopicConfigManager.LOCK_TIMEOUT_MILLIS)."""


class BrokerTopics:
    """The topics of one broker and their changes.

    Attributes:
        topics: The topics. Read them freely, but change them only with the methods of this class.
        lock: Lock that is held during a change.
    """

    def __init__(
        self,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        register_changed: Callable[[Sequence[TopicConfig], DataVersion], Awaitable[object]],
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        """Start with the built-in topics.

        Args:
            config: Settings of the broker. Without `store_path_root_dir`, topics are in memory only.
            now_ms: Clock in milliseconds since 1970, for versions.
            register_changed: Callback with the created or changed topics, and the version after the change.
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
        """Load the topics of topics.json.

        Raises:
            SetupError: topics.json cannot be read.
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
        """Return the topic of a message. Create it if needed (msgCheck).

        Raises:
            RefusedError: The message is refused.
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
        """Return a topic of the broker itself: %RETRY%group, %DLQ%group, half topic. None: the table stays locked."""
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
            BadRequestError: An attribute edit does not apply.
        """
        async with self.lock:
            changed = self.topics.update_topic_configs(edited, self._now_ms())
            version = self.topics.data_version
            await self._persist()
        await self._register_changed(changed, version)

    async def mark_ordered(self, order_topics: Iterable[str]) -> None:
        """Mark the topics in a NameServer's ORDER_TOPIC_CONFIG as ordered. The next round registers them."""
        async with self.lock:
            if self.topics.update_order_topics(order_topics, self._now_ms()):
                await self._persist()

    async def delete(self, topic: str) -> None:
        """Delete a topic. As in RocketMQ, no request goes to the NameServers."""
        async with self.lock:
            if not self.topics.delete_topic(topic, self._now_ms()):
                return
            await self._persist()
        log.info("topic deleted", topic=topic)

    async def _create(self, topic: str, create: Callable[[int], Creation]) -> TopicConfig | None:
        """Create a topic under the lock. None: the rules refuse the topic, or the lock was not free in time."""
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

        As in RocketMQ, a failure is only logged, because the next change writes everything again.
        """
        if self._file is None:
            return
        try:
            await asyncio.to_thread(self._file.persist, self.topics.snapshot())
        except OSError as error:
            log.error("cannot write topics.json", file=str(self._file.path), error=str(error))
