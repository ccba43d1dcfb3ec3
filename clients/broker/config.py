# SPDX-License-Identifier: Apache-2.0
"""Settings of a broker, under RocketMQ's own names (broker.conf).

Sources (5.5.0): org.apache.rocketmq.common.BrokerConfig, org.apache.rocketmq.broker.BrokerStartup.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from schemas.broker import MASTER_ID, PERM_READ, PERM_WRITE, Int, Long
from schemas.errors import SetupError
from schemas.properties import is_true, parse_int

DEFAULT_LISTEN_PORT: Final = 10911


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of one broker. The wire name of a setting is its key in broker.conf. The defaults are RocketMQ's."""

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_id: Long = MASTER_ID
    broker_ip1: str = msgspec.field(default="127.0.0.1", name="brokerIP1")
    """Host of the broker's address, which is registered with `listen_port`."""
    broker_ip2: str = msgspec.field(default="", name="brokerIP2")
    """Host of the HA address, which is registered with `ha_listen_port`. Empty: `broker_ip1`."""
    listen_port: Int = DEFAULT_LISTEN_PORT
    ha_listen_port: Int = 0
    """Port of the HA address. 0: one above `listen_port`."""
    namesrv_addr: str = ""
    store_path_root_dir: str = ""
    """Directory of the broker. topics.json is in its folder ``config``."""

    broker_permission: Int = PERM_READ | PERM_WRITE
    default_topic_queue_nums: Int = 8
    auto_create_topic_enable: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    revive_queue_num: Int = 8
    timer_wheel_enable: bool = True
    validate_system_topic_when_update_topic: bool = True
    enable_mixed_message_type: bool = False

    force_register: bool = True
    """Send all topics in each round. If false, ask first whether anything changed."""
    register_name_server_period: Int = 30_000
    """Time between two rounds, in milliseconds, limited to 10,000 to 60,000."""
    register_broker_timeout_mills: Int = 24_000
    compressed_register: bool = False
    enable_single_topic_register: bool = False
    enable_split_registration: bool = False
    split_registration_size: Int = 800
    enable_split_metadata: bool = True
    split_metadata_size: Int = 2_000

    enable_slave_acting_master: bool = False
    """Send heartbeats between registrations, and let the broker with the group's smallest id act as master."""
    broker_not_active_timeout_millis: Long = 10_000
    broker_heartbeat_interval: Int = 1_000
    send_heartbeat_timeout_millis: Int = 1_000
    compatible_with_old_name_srv: bool = True
    """Send heartbeats as QUERY_DATA_VERSION, which every NameServer supports, instead of BROKER_HEARTBEAT."""

    @property
    def broker_addr(self) -> str:
        """Address that the broker registers (BrokerController.getBrokerAddr)."""
        return f"{self.broker_ip1}:{self.listen_port}"

    @property
    def ha_server_addr(self) -> str:
        """BrokerController.getHAServerAddr."""
        return f"{self.broker_ip2 or self.broker_ip1}:{self.ha_listen_port or self.listen_port + 1}"

    @property
    def heartbeat_timeout_ms(self) -> int | None:
        """The heartbeatTimeoutMillis that the broker registers. None: the NameServer uses its own."""
        return self.broker_not_active_timeout_millis if self.enable_slave_acting_master else None

    @property
    def topics_file(self) -> Path:
        """BrokerPathConfigHelper.getTopicConfigPath."""
        return Path(self.store_path_root_dir) / "config" / "topics.json"

    def properties(self) -> str:
        """Every setting as ``key=value`` lines in order (Configuration.getAllConfigsFormatString)."""
        settings = msgspec.to_builtins(self)
        return "".join(f"{key}={_text(settings[key])}\n" for key in sorted(settings))


_FIELDS: Final = {field.encode_name: field for field in msgspec.structs.fields(BrokerConfig)}


def broker_config(settings: dict[str, str], source: str = "broker.conf") -> tuple[BrokerConfig, list[str]]:
    """Create a configuration from settings as text.

    If RocketMQ cannot read a value, it uses the default without a message. The broker that it then registers is not the
    configured one. So here such a value is an error.

    Returns:
        The configuration, and the keys that have no effect here. A stock broker.conf has many keys about messages.

    Raises:
        SetupError: Some values are not valid. The message names all of them.
    """
    values: dict[str, object] = {}
    wrong: list[str] = []
    for key in settings.keys() & _FIELDS.keys():
        try:
            values[_FIELDS[key].name] = _value(settings[key], _FIELDS[key].type)
        except ValueError as error:
            wrong.append(f"{key}={settings[key]!r}: {error}")
    config = BrokerConfig(**values)  # type: ignore[arg-type]
    wrong = sorted(wrong) + objections(config)
    if wrong:
        raise SetupError(f"{source}: {'; '.join(wrong)}")
    return config, sorted(settings.keys() - _FIELDS.keys())


def _value(text: str, kind: object) -> str | int | bool:
    """Parse a value as MixAll.properties2Object does.

    Raises:
        ValueError: The value is not valid.
    """
    if kind is str:
        return text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("Expected `bool`: true or false, without blanks after it")
        return is_true(text)
    number = parse_int(text, 64 if kind == Long else 32)
    if number is None:
        raise ValueError("Expected `int`, without blanks after it")
    return number


def check(config: BrokerConfig) -> BrokerConfig:
    """Return the configuration if a broker can run with it.

    Raises:
        SetupError: A broker cannot run with it. The message names the settings.
    """
    if wrong := objections(config):
        raise SetupError(f"this broker cannot start: {'; '.join(wrong)}")
    return config


def objections(config: BrokerConfig) -> list[str]:
    """Return the reasons why a broker cannot run with a configuration, or an empty list."""
    wrong = []
    if not config.broker_name or not config.broker_cluster_name:
        wrong.append("brokerName and brokerClusterName must not be empty")
    if config.broker_ip1 in ("", "0.0.0.0", "::"):  # noqa: S104 (refused, not bound)
        wrong.append(
            f"brokerIP1 {config.broker_ip1!r} is the address that clients connect to: set one address of this machine"
        )
    if config.broker_id < 0:
        wrong.append(f"brokerId {config.broker_id}: 0 is a master, 1 and above are slaves")
    if not 0 <= config.broker_permission <= PERM_READ | PERM_WRITE:
        wrong.append(f"brokerPermission {config.broker_permission}: 2 is write, 4 read, 6 both")
    if config.default_topic_queue_nums < 1 or config.revive_queue_num < 1:
        wrong.append("defaultTopicQueueNums and reviveQueueNum must be at least 1")
    if config.split_registration_size < 1 or config.split_metadata_size < 1:
        wrong.append("splitRegistrationSize and splitMetadataSize must be at least 1")
    return wrong


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
