# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own Java client in a JVM of its own, driven from here through Py4J.

No compiler is needed: Py4J's gateway server runs with the client's jars, and PySpark brings it along.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway

from dev.peers.java import QUICK_JVM, JavaProcess, free_port, port_answers
from dev.peers.rocketmq import JAR_SETS, Stock
from runtime.jars import pyspark_jars


def leave(gateway: JavaGateway | None) -> None:
    """Close the connections to a JVM that ends, and call it no more.

    Py4J reports each collected proxy to the JVM, also after `close`. That may be in the middle of another test, with a
    JVM at the same port.
    """
    if gateway is not None:
        gateway.close()
        gateway._gateway_client.is_connected = False


_CLIENT: Final = "org.apache.rocketmq.client"
_FIRST_OFFSET: Final = "CONSUME_FROM_FIRST_OFFSET"


class JavaClient(Stock):
    """A JVM with RocketMQ's client on its class path; holds any number of producers and consumers.

    Args:
        release: "5.5.0" or "4.9.7".
        java_options: More of the JVM's.

    Attributes:
        jvm: Py4J's view of the JVM; `getattr(jvm, class)` is a class.
    """

    jvm: Any

    def __init__(self, release: str, java_options: Sequence[str] = ()) -> None:
        super().__init__(JAR_SETS[release])
        home = pyspark_jars()
        assert home is not None
        (py4j,) = home.glob("py4j-*.jar")
        self._port = free_port()
        self._gateway: JavaGateway | None = None
        self.process = JavaProcess(
            "py4j.GatewayServer",
            [str(self._port)],
            os.pathsep.join((self._classpath, str(py4j))),
            self.home,
            jvm_args=(*QUICK_JVM, *self._options, *java_options),
            ready=lambda process: port_answers(self._port),
        )

    def start(self) -> None:
        """Start the JVM and connect to it."""
        leave(self._gateway)
        super().start()
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=self._port, auto_convert=True))
        self.jvm = self._gateway.jvm

    def close(self) -> None:
        """Kill it; nothing in it is shut down in order."""
        leave(self._gateway)
        super().close()

    def signing(self, access_key: str, secret_key: str) -> Any:  # noqa: ANN401 (Java's)
        """An AclClientRPCHook, which signs what a producer or a consumer sends."""
        acl = "org.apache.rocketmq.acl.common"
        keys = getattr(self.jvm, f"{acl}.SessionCredentials")(access_key, secret_key)
        return getattr(self.jvm, f"{acl}.AclClientRPCHook")(keys)

    def producer(
        self,
        namesrv_addr: str,
        group: str,
        poll_ms: int | None = None,
        hook: Any = None,  # noqa: ANN401 (Java's)
    ) -> Any:  # noqa: ANN401 (Java's)
        """A DefaultMQProducer that was started; it sends a message once or fails.

        Args:
            namesrv_addr: Addresses as setNamesrvAddr takes them.
            group: Group of the producer.
            poll_ms: Interval between its route queries, in milliseconds; None for RocketMQ's 30 s.
            hook: Hook from `signing`; None: no signatures.
        """
        producer = getattr(self.jvm, f"{_CLIENT}.producer.DefaultMQProducer")(*_hooked(group, hook))
        producer.setNamesrvAddr(namesrv_addr)
        producer.setRetryTimesWhenSendFailed(0)
        if poll_ms is not None:
            producer.setPollNameServerInterval(poll_ms)
        producer.start()
        return producer

    def consumer(
        self,
        namesrv_addr: str,
        group: str,
        topic: str,
        poll_ms: int | None = None,
        hook: Any = None,  # noqa: ANN401 (Java's)
    ) -> Any:  # noqa: ANN401 (Java's)
        """A DefaultLitePullConsumer that was started and takes what there is from the first offset on.

        Args:
            namesrv_addr: Addresses as setNamesrvAddr takes them.
            group: Group of the consumer.
            topic: Topic to subscribe to.
            poll_ms: Interval between its route queries, in milliseconds; None for RocketMQ's 30 s.
            hook: Hook from `signing`; None: no signatures.
        """
        where = getattr(self.jvm, "org.apache.rocketmq.common.consumer.ConsumeFromWhere")
        consumer = getattr(self.jvm, f"{_CLIENT}.consumer.DefaultLitePullConsumer")(*_hooked(group, hook))
        consumer.setNamesrvAddr(namesrv_addr)
        consumer.setConsumeFromWhere(getattr(where, _FIRST_OFFSET))
        if poll_ms is not None:
            consumer.setPollNameServerInterval(poll_ms)
        consumer.subscribe(topic, "*")
        consumer.start()
        return consumer

    def message(self, topic: str, body: str) -> Any:  # noqa: ANN401 (Java's)
        """A Message."""
        return getattr(self.jvm, "org.apache.rocketmq.common.message.Message")(topic, body.encode())


def _hooked(group: str, hook: Any) -> tuple[Any, ...]:  # noqa: ANN401 (Java's)
    """Arguments of a constructor, which has no name for a hook that is null."""
    return (group,) if hook is None else (group, hook)


def bodies(messages: Any) -> list[str]:  # noqa: ANN401 (Java's)
    """The bodies of a list of MessageExt."""
    return [bytes(message.getBody()).decode() for message in messages]
