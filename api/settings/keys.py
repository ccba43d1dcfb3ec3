# SPDX-License-Identifier: Apache-2.0
"""Every key that a namesrv.properties may hold, and what it means here. Pure.

A stock NameServer hands the file to NamesrvConfig, NettyServerConfig and NettyClientConfig, and to ControllerConfig and
JraftConfig if it also runs the controller. Each setter of these classes is a key (MixAll.properties2Object); the test
`tests/api/settings/test_namesrv.py` holds this list against the 5.5.0 jars. What becomes of a key:

========  ==============================================================================================================
use       what happens
========  ==============================================================================================================
LIVE      takes effect; UPDATE_NAMESRV_CONFIG may change it, for all gateways at once
START     takes effect at the start of a gateway
REFUSED   set to true, it asks for something that is not here: the start is refused
IGNORED   thread pools, buffers and files of a JVM: named in one warning
========  ==============================================================================================================

needWaitForService and waitSecondsForService are START although the stock server reads them live: after the first
seconds of a process a change could only do harm (a gate that never opens).

`OWN_KEYS` are routelake's: live as well, but of no namesrv.properties.
"""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from typing import Final, NamedTuple


class Use(StrEnum):
    """What becomes of a key."""

    LIVE = "live"
    START = "start"
    REFUSED = "refused"
    IGNORED = "ignored"


class Key(NamedTuple):
    """One key. ``kind`` is boolean, int or String, as its Java setter takes it; ``field`` its name in Python."""

    name: str
    kind: str
    use: Use
    field: str = ""


def _key(name: str, kind: str, use: Use) -> Key:
    return Key(name, kind, use, re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name))


_LIVE: Final = (
    "supportActingMaster",
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "deleteTopicWithBrokerRegistration",
    "enableAllTopicList",
    "enableTopicList",
    "notifyMinBrokerIdChanged",
)

_START: Final = {
    "needWaitForService": "boolean",
    "waitSecondsForService": "int",
    "scanNotActiveBrokerInterval": "int",
    "bindAddress": "String",
    "listenPort": "int",
    "serverChannelMaxIdleTimeSeconds": "int",
    "serverSocketBacklog": "int",
    "configBlackList": "String",
}

REFUSED: Final = {
    "clusterTest": "with it a NameServer asks another environment for topics it does not know, and answers nothing "
    "else; routelake has no such mode",
    "enableControllerInNamesrv": "routelake is no controller; run RocketMQ's own (mqcontroller), and leave this out",
}
"""Key to why ``true`` is refused."""

_IGNORED: Final = (
    # NamesrvConfig
    "rocketmqHome", "configStorePath", "kvConfigPath", "productEnvName", "clientRequestThreadPoolNums",
    "defaultThreadPoolNums", "clientRequestThreadPoolQueueCapacity", "defaultThreadPoolQueueCapacity",
    "unRegisterBrokerQueueCapacity",
    # NettyServerConfig; requests in flight are always finished at a stop
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
        *(_key(name, "boolean", Use.LIVE) for name in _LIVE),
        *(_key(name, kind, Use.START) for name, kind in _START.items()),
        *(_key(name, "boolean", Use.REFUSED) for name in REFUSED),
        *(_key(name, "", Use.IGNORED) for name in _IGNORED),
    )
}
"""By name."""

LIVE_KEYS: Final = {key.name: key for key in KEYS.values() if key.use is Use.LIVE}
"""Switches of RocketMQ that UPDATE_NAMESRV_CONFIG may change."""

SELF_PRESERVATION: Final = "selfPreservationPercent"
OWN_KEYS: Final = {SELF_PRESERVATION: _key(SELF_PRESERVATION, "percent", Use.LIVE)}
"""Switches that RocketMQ does not have."""

SWITCHES: Final = LIVE_KEYS | OWN_KEYS
"""What UPDATE_NAMESRV_CONFIG may change."""

_PERCENT = re.compile(r"([0-9]{1,2})%?", re.ASCII)


BLACK_LIST: Final = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""What nobody may change while it runs. NamesrvConfig.configBlackList adds to it.

Source: DefaultRequestProcessor.initConfigBlackList."""


def to_text(value: object) -> str:
    """As Java writes it: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_percent(text: str) -> int | None:
    """A share that is less than all, ``15%`` or ``15``; ``off`` is 0. None for anything else."""
    if text.lower() == "off":
        return 0
    found = _PERCENT.fullmatch(text)
    return None if found is None else int(found[1])


def nearest(name: str) -> str | None:
    """The key most like an unknown name; None when nothing comes near."""
    lowered = {key.lower(): key for key in KEYS}
    found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None
