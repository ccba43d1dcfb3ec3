# SPDX-License-Identifier: Apache-2.0
"""Every key that a namesrv.properties may have, and its meaning in routelake. Pure.

A stock NameServer passes the file to NamesrvConfig, NettyServerConfig and NettyClientConfig. If it also runs the
controller, it passes the file to ControllerConfig and JraftConfig, too. Each setter of these classes is a key
(MixAll.properties2Object). The test `tests/api/settings/test_namesrv.py` compares this list with the 5.5.0 jars. Each
key has one of these uses:

========  ==============================================================================================================
use       effect
========  ==============================================================================================================
LIVE      takes effect; UPDATE_NAMESRV_CONFIG may change it, for all gateways at once
START     takes effect at the start of a gateway
REFUSED   if true, asks for a function that routelake does not have, so the start is refused
IGNORED   thread pools, buffers and files of a JVM; one warning names all of them
========  ==============================================================================================================

needWaitForService and waitSecondsForService are START although the stock server reads them live. After the first
seconds of a process a change could only do harm (a gate that never opens).

`OWN_KEYS` are routelake's. They are live, too, but cannot be in a namesrv.properties.
"""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from typing import Final, NamedTuple


class Use(StrEnum):
    """Use of a key."""

    LIVE = "live"
    START = "start"
    REFUSED = "refused"
    IGNORED = "ignored"


class Key(NamedTuple):
    """One key.

    Attributes:
        name: Name in the file.
        kind: Type that the Java setter accepts: boolean, int or String. For a key of routelake: percent.
        use: Effect of the key.
        field: Name in Python.
        meaning: Sentences for the reference. Empty if the key is ignored.
    """

    name: str
    kind: str
    use: Use
    field: str = ""
    meaning: str = ""


def _key(name: str, kind: str, use: Use, meaning: str = "") -> Key:
    return Key(name, kind, use, re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name), meaning)


_LIVE: Final = {
    "supportActingMaster": "A slave may act for a master that is gone.",
    "orderMessageEnable": "Route answers have the order configuration of KV.",
    "returnOrderTopicConfigToBroker": "The answer to REGISTER_BROKER has the whole ORDER_TOPIC_CONFIG.",
    "deleteTopicWithBrokerRegistration": "A registration deletes the topics that it leaves out. Each registration is "
    "then stored with its topics and waits for its result.",
    "enableAllTopicList": "GET_ALL_TOPIC_LIST_FROM_NAMESERVER is answered.",
    "enableTopicList": "The lists by cluster and by unit are answered.",
    "notifyMinBrokerIdChanged": "Brokers are notified when the smallest brokerId of their group changes.",
}
"""Meaning by key. Each key is a boolean."""

_START: Final = {
    "needWaitForService": (
        "boolean",
        "If the tables have no broker yet, route queries get code 1 for some time. The HTTP API does not wait.",
    ),
    "waitSecondsForService": ("int", "This time, in seconds."),
    "scanNotActiveBrokerInterval": (
        "int",
        "Time between CLOCK events, in milliseconds. A missing heartbeat may be noticed that much later.",
    ),
    "bindAddress": ("String", "Address of the NameServer. `--remoting` wins. The default of RocketMQ is 0.0.0.0."),
    "listenPort": ("int", "Port of the NameServer. `--remoting` wins."),
    "serverChannelMaxIdleTimeSeconds": ("int", "Idle time after which a connection is closed, in seconds. 0: never."),
    "serverSocketBacklog": ("int", "Number of connections that the kernel queues."),
    "configBlackList": ("String", "Keys that UPDATE_NAMESRV_CONFIG cannot change either, separated by `;`."),
}
"""Type and meaning by key."""

REFUSED: Final = {
    "clusterTest": "routelake has no mode in which it asks another environment for topics that it does not know",
    "enableControllerInNamesrv": "routelake has no controller: run RocketMQ's (mqcontroller), and remove this key",
}
"""Reason why ``true`` is refused, by key."""

_IGNORED: Final = (
    # NamesrvConfig
    "rocketmqHome", "configStorePath", "kvConfigPath", "productEnvName", "clientRequestThreadPoolNums",
    "defaultThreadPoolNums", "clientRequestThreadPoolQueueCapacity", "defaultThreadPoolQueueCapacity",
    "unRegisterBrokerQueueCapacity",
    # NettyServerConfig; requests in progress are always finished at a stop
    "serverWorkerThreads", "serverCallbackExecutorThreads", "serverSelectorThreads", "serverOnewaySemaphoreValue",
    "serverAsyncSemaphoreValue", "serverSocketSndBufSize", "serverSocketRcvBufSize", "writeBufferHighWaterMark",
    "writeBufferLowWaterMark", "serverNettyWorkerGroupEnable", "serverPooledByteBufAllocatorEnable",
    "enableShutdownGracefully", "shutdownWaitTimeSeconds", "useEpollNativeSelector",
    # NettyClientConfig
    "clientWorkerThreads", "clientCallbackExecutorThreads", "clientOnewaySemaphoreValue", "clientAsyncSemaphoreValue",
    "connectTimeoutMillis", "channelNotActiveInterval", "scanAvailableNameSrv", "clientChannelMaxIdleTimeSeconds",
    "clientSocketSndBufSize", "clientSocketRcvBufSize", "clientPooledByteBufAllocatorEnable",
    "clientCloseSocketIfTimeout", "useTLS", "socksProxyConfig", "disableCallbackExecutor", "disableNettyWorkerGroup",
    "maxReconnectIntervalTimeSeconds", "enableReconnectForGoAway",
    # ControllerConfig
    "jraftConfig", "controllerType", "controllerThreadPoolNums", "controllerRequestThreadPoolQueueCapacity",
    "controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId", "mappedFileSize",
    "controllerStorePath", "electMasterMaxRetryCount", "enableElectUncleanMaster", "processReadEvent",
    "notifyBrokerRoleChanged", "scanInactiveMasterInterval", "metricsExporterType", "metricsGrpcExporterTarget",
    "metricsGrpcExporterHeader", "metricGrpcExporterTimeOutInMills", "metricGrpcExporterIntervalInMills",
    "metricLoggingExporterIntervalInMills", "metricsPromExporterPort", "metricsPromExporterHost", "metricsLabel",
    "metricsInDelta",
    # JraftConfig
    "jRaftElectionTimeoutMs", "jRaftScanWaitTimeoutMs", "jRaftSnapshotIntervalSecs", "jRaftGroupId", "jRaftServerId",
    "jRaftInitConf", "jRaftControllerRPCAddr",
)  # fmt: skip

KEYS: Final = {
    key.name: key
    for key in (
        *(_key(name, "boolean", Use.LIVE, meaning) for name, meaning in _LIVE.items()),
        *(_key(name, kind, Use.START, meaning) for name, (kind, meaning) in _START.items()),
        *(_key(name, "boolean", Use.REFUSED, f"Refused if true: {why}.") for name, why in REFUSED.items()),
        *(_key(name, "", Use.IGNORED) for name in _IGNORED),
    )
}
"""Keys by name."""

LIVE_KEYS: Final = {key.name: key for key in KEYS.values() if key.use is Use.LIVE}
"""Switches of RocketMQ that UPDATE_NAMESRV_CONFIG may change."""

SELF_PRESERVATION: Final = "selfPreservationPercent"
OWN_KEYS: Final = {
    SELF_PRESERVATION: _key(
        SELF_PRESERVATION, "percent", Use.LIVE, "Share of live brokers, 0 to 99, as `--self-preservation`. 0: off."
    )
}
"""Switches that RocketMQ does not have."""

SWITCHES: Final = LIVE_KEYS | OWN_KEYS
"""Keys that UPDATE_NAMESRV_CONFIG may change."""

_PERCENT = re.compile(r"([0-9]{1,2})%?", re.ASCII)


BLACK_LIST: Final = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""Keys that no command may change while the gateway runs. NamesrvConfig.configBlackList adds to them.

Source: DefaultRequestProcessor.initConfigBlackList."""


def to_text(value: object) -> str:
    """Return a value as Java writes it: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_percent(text: str) -> int | None:
    """Parse a share below 100 percent, such as ``15%`` or ``15``. ``off`` is 0. Return None for other text."""
    if text.lower() == "off":
        return 0
    found = _PERCENT.fullmatch(text)
    return None if found is None else int(found[1])


def nearest(name: str) -> str | None:
    """Return the key most similar to an unknown name. None if no key is similar."""
    lowered = {key.lower(): key for key in KEYS}
    found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None
