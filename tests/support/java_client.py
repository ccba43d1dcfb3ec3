# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own Java producer and consumer, each in a JVM of its own, driven from here through Py4J.

No compiler is needed: Py4J's gateway server runs beside the client's jars, and PySpark brings it along.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from py4j.java_gateway import GatewayParameters, JavaGateway

from deploy.jars import pyspark_jars
from peers.java import JavaProcess, free_port, port_answers
from peers.rocketmq import Stock

_CLIENT = "org.apache.rocketmq.client"
_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
_ROUTE_INTERVAL_MS = 1_000
"""How often a client asks for its routes again; RocketMQ's default is 30 s."""


class JavaClient(Stock):
    """A JVM with RocketMQ's client on its class path; `jvm` reaches its classes.

    Args:
        jar_set: "rocketmq" for 5.5.0 or "rocketmq-4" for 4.9.7.
    """

    def __init__(self, jar_set: str) -> None:
        super().__init__(jar_set)
        home = pyspark_jars()
        assert home is not None
        (py4j,) = home.glob("py4j-*.jar")
        self._port = free_port()
        self.process = JavaProcess(
            "py4j.GatewayServer",
            [str(self._port)],
            os.pathsep.join((self._classpath, str(py4j))),
            self.home,
            ready=lambda process: port_answers(self._port),
        )
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._stop = threading.Event()
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.close)
            self.process.start()
            self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=self._port, auto_convert=True))
            stack.callback(self._gateway.close)
            self._begin(self._gateway.jvm)
            self._thread.start()
            self._open = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._open:
            self.stop()

    def stop(self) -> None:
        """End the thread that drives the client."""
        self._stop.set()
        self._thread.join(60)

    def _main(self) -> None:
        try:
            while not self._stop.is_set():
                self._turn()
        except BaseException as error:
            self.error = error

    def _begin(self, jvm: Any) -> None:
        raise NotImplementedError

    def _turn(self) -> None:
        raise NotImplementedError


class JavaProducer(JavaClient):
    """DefaultMQProducer 5.5.0, without retries; sends numbered messages until it is stopped or one fails.

    Attributes:
        sent: body -> brokerName that took it; only what was acknowledged as SEND_OK.
    """

    def __init__(self, namesrv_addr: str, topic: str, pause_s: float = 0.01) -> None:
        super().__init__("rocketmq")
        self._namesrv_addr, self._topic, self._pause_s = namesrv_addr, topic, pause_s
        self.sent: dict[str, str] = {}

    def _begin(self, jvm: Any) -> None:
        self._message = getattr(jvm, "org.apache.rocketmq.common.message.Message")
        producer = getattr(jvm, f"{_CLIENT}.producer.DefaultMQProducer")("e2e-producers")
        producer.setNamesrvAddr(self._namesrv_addr)
        producer.setPollNameServerInterval(_ROUTE_INTERVAL_MS)
        producer.setRetryTimesWhenSendFailed(0)
        producer.start()
        self._producer = producer

    def _turn(self) -> None:
        body = f"message {len(self.sent)}"
        result = self._producer.send(self._message(self._topic, body.encode()))
        status = result.getSendStatus().name()
        assert status == "SEND_OK", f"{body}: {status}"
        self.sent[body] = result.getMessageQueue().getBrokerName()
        self._stop.wait(self._pause_s)


class JavaConsumer(JavaClient):
    """DefaultLitePullConsumer, as old as its jars; takes what there is from the first offset on.

    Attributes:
        received: Every body, in the order of arrival.
    """

    def __init__(self, namesrv_addr: str, topic: str, jar_set: str = "rocketmq-4") -> None:
        super().__init__(jar_set)
        self._namesrv_addr, self._topic = namesrv_addr, topic
        self.received: list[str] = []

    def _begin(self, jvm: Any) -> None:
        where = getattr(jvm, "org.apache.rocketmq.common.consumer.ConsumeFromWhere")
        consumer = getattr(jvm, f"{_CLIENT}.consumer.DefaultLitePullConsumer")("e2e-consumers")
        consumer.setNamesrvAddr(self._namesrv_addr)
        consumer.setPollNameServerInterval(_ROUTE_INTERVAL_MS)
        consumer.setConsumeFromWhere(getattr(where, _FIRST_OFFSET))
        consumer.subscribe(self._topic, "*")
        consumer.start()
        self._consumer = consumer

    def _turn(self) -> None:
        self.received += [bytes(message.getBody()).decode() for message in self._consumer.poll(500)]
