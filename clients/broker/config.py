# SPDX-License-Identifier: Apache-2.0
"""What can be set of a broker, under RocketMQ's own names (broker.conf).

Sources (5.5.0): org.apache.rocketmq.common.BrokerConfig, org.apache.rocketmq.broker.BrokerStartup.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from schemas.broker import MASTER_ID, PERM_READ, PERM_WRITE, Int, Long
from schemas.errors import SetupError

DEFAULT_LISTEN_PORT: Final = 10911


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of one broker; the wire name of each is its key in broker.conf. Defaults are RocketMQ's."""

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_id: Long = MASTER_ID
    broker_ip1: str = msgspec.field(default="127.0.0.1", name="brokerIP1")
    """Registered with `listen_port` as the broker's address."""
    broker_ip2: str = msgspec.field(default="", name="brokerIP2")
    """Registered with `ha_listen_port` as the HA address; empty means `broker_ip1`."""
    listen_port: Int = DEFAULT_LISTEN_PORT
    ha_listen_port: Int = 0
    """0 means one above `listen_port`."""
    namesrv_addr: str = ""
    store_path_root_dir: str = ""
    """topics.json is in its folder ``config``."""

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
    """Send everything in each round; without it, ask first whether anything changed."""
    register_name_server_period: Int = 30_000
    """Milliseconds; kept to 10,000 to 60,000."""
    register_broker_timeout_mills: Int = 24_000
    compressed_register: bool = False
    enable_single_topic_register: bool = False
    enable_split_registration: bool = False
    split_registration_size: Int = 800
    enable_split_metadata: bool = True
    split_metadata_size: Int = 2_000

    enable_slave_acting_master: bool = False
    """Sends heartbeats between registrations, and lets the group's smallest id act as master."""
    broker_not_active_timeout_millis: Long = 10_000
    broker_heartbeat_interval: Int = 1_000
    send_heartbeat_timeout_millis: Int = 1_000
    compatible_with_old_name_srv: bool = True
    """Heartbeats are QUERY_DATA_VERSION, which every NameServer knows, instead of BROKER_HEARTBEAT."""

    @property
    def broker_addr(self) -> str:
        """What is registered as the broker's address (BrokerController.getBrokerAddr)."""
        return f"{self.broker_ip1}:{self.listen_port}"

    @property
    def ha_server_addr(self) -> str:
        """BrokerController.getHAServerAddr."""
        return f"{self.broker_ip2 or self.broker_ip1}:{self.ha_listen_port or self.listen_port + 1}"

    @property
    def heartbeat_timeout_ms(self) -> int | None:
        """What is registered as heartbeatTimeoutMillis; None leaves it to the NameServer."""
        return self.broker_not_active_timeout_millis if self.enable_slave_acting_master else None

    @property
    def topics_file(self) -> Path:
        """BrokerPathConfigHelper.getTopicConfigPath."""
        return Path(self.store_path_root_dir) / "config" / "topics.json"

    def properties(self) -> str:
        """Every setting as ``key=value`` lines in order (Configuration.getAllConfigsFormatString)."""
        settings = msgspec.to_builtins(self)
        return "".join(f"{key}={_text(settings[key])}\n" for key in sorted(settings))


KNOWN_KEYS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(BrokerConfig))


def parse_properties(text: str, source: str = "broker.conf") -> dict[str, str]:
    """The settings of a broker.conf: ``key=value`` lines, ``#`` and ``!`` for comments, the last of a key wins.

    Raises:
        SetupError: A line without ``=``.
    """
    settings = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, equals, value = stripped.partition("=")
        if not equals:
            raise SetupError(f"{source}, line {number}: {stripped[:60]!r} is no key=value")
        settings[key.strip()] = value.strip()
    return settings


def broker_config(settings: dict[str, str], source: str = "broker.conf") -> tuple[BrokerConfig, list[str]]:
    """A configuration of settings as text.

    Returns:
        It, and the keys that mean nothing here: a stock broker.conf has many that are about messages.

    Raises:
        SetupError: A value that its setting cannot have.
    """
    known = {key: value for key, value in settings.items() if key in KNOWN_KEYS}
    try:
        config = msgspec.convert(known, BrokerConfig, strict=False)
    except msgspec.ValidationError as error:
        raise SetupError(f"{source}: {error}") from error
    return check(config), sorted(settings.keys() - known.keys())


def check(config: BrokerConfig) -> BrokerConfig:
    """The configuration, if a broker can run with it.

    Raises:
        SetupError: It cannot; the message names the setting.
    """
    wrong = None
    if not config.broker_name or not config.broker_cluster_name:
        wrong = "brokerName and brokerClusterName must not be empty"
    elif config.broker_ip1 in ("", "0.0.0.0", "::"):  # noqa: S104 (refused, not bound)
        wrong = (
            f"brokerIP1 {config.broker_ip1!r} is what clients are told to connect to: name one address of this machine"
        )
    elif config.broker_id < 0:
        wrong = f"brokerId {config.broker_id}: 0 is a master, 1 and above are slaves"
    elif not 0 <= config.broker_permission <= PERM_READ | PERM_WRITE:
        wrong = f"brokerPermission {config.broker_permission}: 2 is write, 4 read, 6 both"
    elif config.default_topic_queue_nums < 1 or config.revive_queue_num < 1:
        wrong = "defaultTopicQueueNums and reviveQueueNum must be at least 1"
    elif config.split_registration_size < 1 or config.split_metadata_size < 1:
        wrong = "splitRegistrationSize and splitMetadataSize must be at least 1"
    if wrong is not None:
        raise SetupError(f"this broker cannot start: {wrong}")
    return config


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
