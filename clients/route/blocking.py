# SPDX-License-Identifier: Apache-2.0
"""BlockingRouteClient: a `RouteClient` for plain threads, on an event loop in a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import structlog

from clients.route.brokers import FindBrokerResult
from clients.route.cache import RouteChange
from clients.route.caller import Caller
from clients.route.client import RouteClient
from clients.route.queues import MessageQueue, TopicPublishInfo
from clients.route.settings import RouteSettings
from schemas.errors import UnavailableError
from schemas.route import TopicRouteData

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("routelake.route")


class BlockingRouteClient:
    """Route client for any number of threads: ``with BlockingRouteClient("10.0.0.1:9876") as client``.

    The methods are those of `RouteClient` and raise the same errors. After `close` they raise UnavailableError. Each
    thread has its own round robin.
    """

    def __init__(self, namesrv_addr: str | Sequence[str], settings: RouteSettings | None = None) -> None:
        """Start the thread. It sends no request yet.

        Raises:
            SetupError: An address is not valid.
        """
        self._client = RouteClient(namesrv_addr, settings)
        self._local = threading.local()
        self._gate = threading.Lock()  # so that nothing is scheduled on the loop after its end
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        # Listeners have their own thread, because a listener may block or call this client.
        self._news = ThreadPoolExecutor(1, thread_name_prefix="route-listeners")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="route-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Return this client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `close`."""
        self.close()

    def close(self) -> None:
        """Stop following topics, close every connection, and end the threads. A second call does nothing."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        ending.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._news.shutdown(wait=False)

    def route(self, topic: str) -> TopicRouteData:
        """See `RouteClient.route`."""
        return self._run(self._client.route, topic)

    def cached_route(self, topic: str) -> TopicRouteData | None:
        """See `RouteClient.cached_route`."""
        return self._client.cached_route(topic)

    def update(self, topic: str) -> bool:
        """See `RouteClient.update`."""
        return self._run(self._client.update, topic)

    def try_to_find_topic_publish_info(self, topic: str) -> TopicPublishInfo:
        """See `RouteClient.try_to_find_topic_publish_info`."""
        return self._run(self._client.try_to_find_topic_publish_info, topic)

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """See `RouteClient.publish_queues`."""
        return self._run(self._client.publish_queues, topic)

    def subscribe_queues(self, topic: str) -> frozenset[MessageQueue]:
        """See `RouteClient.subscribe_queues`."""
        return self._run(self._client.subscribe_queues, topic)

    def publish_address(self, queue: MessageQueue) -> str:
        """See `RouteClient.publish_address`."""
        return self._run(self._client.publish_address, queue)

    def subscribe_address(
        self, queue: MessageQueue, broker_id: int = 0, *, only_this_broker: bool = False
    ) -> FindBrokerResult:
        """See `RouteClient.subscribe_address`."""
        return self._run(self._client.subscribe_address, queue, broker_id, only_this_broker=only_this_broker)

    def select(self, topic: str, *, last_broker_name: str | None = None) -> MessageQueue:
        """Return the next queue for this thread. See `Caller.select`."""
        return self._run(self._caller().select, topic, last_broker_name=last_broker_name)

    def sent(self, queue: MessageQueue, latency_ms: int, *, isolation: bool = False, reachable: bool = True) -> None:
        """Report the result of a send. See `Caller.sent`."""
        caller = self._caller()

        async def notify() -> None:
            caller.sent(queue, latency_ms, isolation=isolation, reachable=reachable)

        self._run(notify)

    def listen(self, listener: Callable[[RouteChange], None], topic: str | None = None) -> Callable[[], None]:
        """Call a function after every change, on the thread for listeners. It may block and may use this client.

        Returns:
            A function that removes the listener.
        """

        def hand_over(change: RouteChange) -> None:
            self._news.submit(_call, listener, change)

        async def begin() -> Callable[[], None]:
            return self._client.listen(hand_over, topic)

        end = self._run(begin)

        def stop() -> None:
            with self._gate:
                if not self._closed:
                    self._loop.call_soon_threadsafe(end)

        return stop

    @property
    def name_server(self) -> str | None:
        """See `RouteClient.name_server`."""
        return self._client.name_server

    def update_name_servers(self, namesrv_addr: str | Sequence[str]) -> None:
        """See `RouteClient.update_name_servers`."""
        self._run(self._client.update_name_servers, namesrv_addr)

    def _caller(self) -> Caller:
        caller: Caller | None = getattr(self._local, "caller", None)
        if caller is None:
            caller = self._local.caller = self._client.caller()
        return caller

    def _run(self, ask: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method on the loop, and wait for its result."""

        async def tracked() -> T:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                return await ask(*args, **kwargs)
            finally:
                self._tasks.discard(task)

        with self._gate:
            if self._closed:
                raise UnavailableError("the route client is closed")
            future = asyncio.run_coroutine_threadsafe(tracked(), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise UnavailableError("the route client was closed meanwhile") from None
        except BaseException:
            future.cancel()  # also if this thread is interrupted, because no thread waits for the result any more
            raise

    async def _end(self) -> None:
        """Cancel all calls, and close the client after they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()


def _call(listener: Callable[[RouteChange], None], change: RouteChange) -> None:
    try:
        listener(change)
    except Exception:
        log.exception("route change callback failed", topic=change.topic)
