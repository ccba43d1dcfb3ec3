# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own client 5.5.0 as a judge: its classes in a JVM, called from here.

The JVM runs py4j's gateway, which PySpark brings along, with the pinned RocketMQ jars; nothing is compiled.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from dev.peers.java import classpath, java_executable
from schemas.rocketmq_json import encode_topic_route
from schemas.route import TopicRouteData

_NO_LOGGING = '<?xml version="1.0" encoding="UTF-8"?>\n<configuration><root level="OFF"/></configuration>\n'


class JavaClient:
    """A JVM with RocketMQ's client. Queues come back as (brokerName, queueId)."""

    def __init__(self, home: Path) -> None:
        (home / "rmq.client.logback.xml").write_text(_NO_LOGGING)
        py4j = [str(path) for path in (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")]
        port, self._process = launch_gateway(
            port=0,
            jarpath=py4j[0],
            classpath=os.pathsep.join([str(home), *py4j, classpath("rocketmq")]),
            javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", f"-Duser.home={home}"],
            die_on_exit=True,
            java_path=java_executable(),
            return_proc=True,
        )
        self.gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        packages = self.gateway.jvm.org.apache.rocketmq
        self.remoting = packages.remoting
        self.instance = packages.client.impl.factory.MQClientInstance
        self.namespace_util = packages.remoting.protocol.NamespaceUtil
        self.mix_all = packages.common.MixAll
        self.packages = packages

    def close(self) -> None:
        if self._process.poll() is None:
            self.gateway.shutdown()
            self._process.stdin.close()
            self._process.kill()
            self._process.wait(20)

    def route(self, route: TopicRouteData) -> Any:
        """A TopicRouteData, by way of its JSON."""
        text = encode_topic_route(route, numeric_keys=False).decode()
        kind = self.gateway.jvm.java.lang.Class.forName("org.apache.rocketmq.remoting.protocol.route.TopicRouteData")
        return self.remoting.protocol.RemotingSerializable.fromJson(text, kind)

    def publish(self, topic: str, route: TopicRouteData) -> tuple[list[tuple[str, int]], bool]:
        info = self.instance.topicRouteData2TopicPublishInfo(topic, self.route(route))
        return queues(info.getMessageQueueList()), info.isOrderTopic()

    def subscribe(self, topic: str, route: TopicRouteData) -> set[tuple[str, int]]:
        return set(queues(self.instance.topicRouteData2TopicSubscribeInfo(topic, self.route(route))))

    def changed(self, old: TopicRouteData, new: TopicRouteData) -> bool:
        found: bool = self.route(new).topicRouteDataChanged(self.route(old))
        return found

    def end_points(self, topic: str, route: TopicRouteData) -> dict[tuple[str, int], str]:
        found = self.remoting.rpc.ClientMetadata.topicRouteData2EndpointsForStaticTopic(topic, self.route(route))
        return {(queue.getBrokerName(), queue.getQueueId()): name for queue, name in dict(found).items()}


def queues(found: Any) -> list[tuple[str, int]]:
    """A Java collection of MessageQueue."""
    return [(queue.getBrokerName(), queue.getQueueId()) for queue in found]
