# SPDX-License-Identifier: Apache-2.0
"""Checks of option values before anything is sent. Pure. Every error is a SetupError (exit code 2).

Sources (5.5.0): TopicValidator, PermName.isValid, Validators.checkTopicConfig, AttributeParser, AdminBrokerProcessor.
"""

from __future__ import annotations

from typing import Final

from cli.options import namesrv_source
from clients.addresses import host_port, namesrv_addresses
from clients.broker.attributes import parse_edits
from clients.broker.topic_config import TopicConfig, decode_topic_list
from schemas.broker import PERM_PRIORITY
from schemas.codes import MAX_INT
from schemas.errors import BadRequestError, SetupError
from schemas.topic_names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS, topic_remark

_UNIT: Final = 1
_HAS_UNIT_SUB: Final = 2


def name_servers(text: str) -> list[str]:
    """Parse the addresses after ``-n``. An empty text has no addresses."""
    return namesrv_addresses(text, namesrv_source(text)) if text.strip() else []


def broker_or_cluster(broker_addr: str | None, cluster: str | None) -> tuple[str | None, str | None]:
    """Check that exactly one of ``-b`` and ``-c`` is set."""
    if (broker_addr is None) == (cluster is None):
        raise SetupError("set either -b, the address of one broker, or -c, a cluster")
    if cluster is not None:
        return None, not_blank(cluster, "-c")
    return host_port((broker_addr or "").strip(), "-b"), None


def not_blank(text: str, option: str) -> str:
    """Check that a text is not blank, and strip it."""
    text = text.strip()
    if not text:
        raise SetupError(f"{option} is blank")
    return text


def one_line(text: str, option: str) -> str:
    """Check that a text fits on one line of a properties file."""
    text = not_blank(text, option)
    if "\n" in text or "\r" in text:
        raise SetupError(f"{option} contains a line break: change one setting at a time")
    return text


def topic_to_change(text: str, option: str = "-t") -> str:
    """Check the name of a topic to create or change: it must be valid, and not a system topic."""
    remark = topic_remark(text)
    if remark is not None:
        raise SetupError(f"{option}: {remark}")
    return _no_system_topic(text, option)


def topic_to_delete(text: str) -> str:
    """Check the name of a topic to delete: not blank and not a system topic. Invalid names are allowed here."""
    return _no_system_topic(not_blank(text, "-t"), "-t")


def _no_system_topic(topic: str, option: str) -> str:
    if topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX):
        raise SetupError(f"{option}: {topic!r} is a system topic: brokers create and keep it themselves")
    return topic


def queue_nums(number: int, option: str) -> int:
    """Check a number of queues: 1 to the largest int."""
    if not 0 < number <= MAX_INT:
        raise SetupError(f"{option} {number}: a topic has at least 1 queue and at most {MAX_INT}")
    return number


def perm(number: int, option: str = "-p") -> int:
    """Check a permission: 0 to 7."""
    if not 0 <= number < PERM_PRIORITY:
        raise SetupError(f"{option} {number} is not a permission: expected 2 (write), 4 (read) or 6 (read and write)")
    return number


def boolean(text: str, option: str) -> bool:
    """Parse ``true`` or ``false``, in any letter case."""
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise SetupError(f"{option} {text!r}: expected true or false")
    return value


def sys_flag(*, unit: bool, has_unit_sub: bool) -> int:
    """topicSysFlag (TopicSysFlag.buildSysFlag)."""
    return (_UNIT if unit else 0) | (_HAS_UNIT_SUB if has_unit_sub else 0)


def attributes(text: str) -> dict[str, str]:
    """Parse edits of attributes such as ``+a=b,-c``. Returns values by signed key."""
    try:
        return parse_edits(text.strip())
    except BadRequestError as error:
        raise SetupError(f"-a {text!r}: {error}; expected +key=value or -key, separated by commas") from error


def topic_configs(content: bytes, file: str) -> list[TopicConfig]:
    """Parse the topics of a file, which has a JSON array of TopicConfig."""
    try:
        listed = decode_topic_list(b'{"topicConfigList":%b}' % content)
    except BadRequestError as error:
        raise SetupError(f"-f {file}: expected a JSON array of TopicConfig: {error}") from error
    if not listed:
        raise SetupError(f"-f {file}: there is no topic in it")
    return [_checked(config, f"-f {file}, topic {at}") for at, config in enumerate(listed, 1)]


def _checked(config: TopicConfig, where: str) -> TopicConfig:
    topic_to_change(config.topic_name, where)
    queue_nums(config.read_queue_nums, f"{where} ({config.topic_name}): readQueueNums")
    queue_nums(config.write_queue_nums, f"{where} ({config.topic_name}): writeQueueNums")
    perm(config.perm, f"{where} ({config.topic_name}): perm")
    return config


def consumers(text: str) -> list[str]:
    """Parse consumers' addresses, ``ip,ip``. An address is any text, but may appear only once."""
    clients = [not_blank(part, "-i") for part in text.split(",")]
    if len(set(clients)) < len(clients):
        raise SetupError(f"-i {text!r} names a client twice")
    return clients
