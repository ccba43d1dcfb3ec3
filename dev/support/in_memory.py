# SPDX-License-Identifier: Apache-2.0
"""The gateway, the fold and the view in one process without log, files or threads: every append is visible at once.

All steps of the product for an event are here: it is encoded, decoded and folded as in a Spark worker, its row changes
travel as Arrow tables, and the view advances by them as by a change data feed. The clock is the caller's. Left out are
the log, Delta and Spark, which other tests drive; so a step costs a millisecond, and histories can be long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from api.gateway.gateway import Gateway
from api.gateway.metrics import Metrics
from api.gateway.registrations import Registrations
from api.live_view.live_state import LiveState
from api.remoting.handlers import NameServerHandler
from api.settings.gateway import GatewaySettings
from api.wiring import follow_switches
from dev.model.settings import Settings
from dev.model.wire import Request, Response
from dev.support.log_client import LocalLogClient
from dev.support.memory_files import MemoryShard, changed_topics
from dev.support.memory_log import MemoryLog
from eventlog.base import Appended
from lake.delta.reader import GONE
from lake.view_loader import changes_from
from lake.write.arrow import DELETE, OP
from lake.write.batch import Batch
from nameserver.answers import RouteAnswers
from nameserver.view.snapshot import RouteView
from pipelines.blocks import Record
from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import failure
from schemas.codes import SerializeType
from schemas.errors import RoutelakeError
from schemas.events import Actor, Clock
from schemas.route_commit import NO_COMMIT, CommandOutcome, RouteCommit
from schemas.tables import BROKER_LIVE_TABLE, TOPIC_QUEUE_TABLE, Table

ACTOR = Actor(gateway="memory", via="gateway", peer=None)


class InstantGateway(Gateway):
    """The product's gateway. Its appends are folded before they return."""

    def __init__(self, settings: GatewaySettings) -> None:
        super().__init__(settings, LocalLogClient(MemoryLog(), settings), MemoryLog)
        self._loop = asyncio.get_running_loop()
        self.now_ms = 1_000_000
        self._shard = MemoryShard()
        self._offset = 0

    async def append_encoded(self, key: str, payload: bytes, then: object = None) -> Appended:
        """Fold it now, as the tables do."""
        self._offset += 1
        record = Record(self._offset, self.now_ms, key, payload)
        self._show(self._shard.batch([record]))
        return Appended(self._offset, self.now_ms)

    def _show(self, batch: Batch) -> None:
        time = NO_COMMIT.event_time + timedelta(milliseconds=self.now_ms)
        commit = RouteCommit(self.view.epoch + 1, self._offset, self._offset, time, time, datetime.now(UTC))
        parts = {**batch.operations, BROKER_LIVE_TABLE.name: batch.live}

        def read(table: Table) -> pa.Table | None:
            if table is TOPIC_QUEUE_TABLE:
                return changed_topics(batch)
            found = parts.get(table.name)
            if not found:
                return None
            rows = pa.concat_tables(found)
            return rows.drop_columns([OP]).append_column(GONE, pc.equal(rows[OP], DELETE))

        assert not batch.quarantine, batch.quarantine[0].to_pylist()
        outcomes = [
            CommandOutcome(entry["offset"], entry["outcome"], entry["reason"], entry["result"])
            for entry in batch.outcomes
        ]
        self._on_live_view(self.view.apply(changes_from(commit, read)), self._offset, outcomes)


class InstantHead(InstantGateway):
    """The same at the head of the log: folded by `LiveState`, without tables."""

    def __init__(self, settings: GatewaySettings) -> None:
        super().__init__(settings)
        self._live_state = LiveState(RouteView.empty())

    async def append_encoded(self, key: str, payload: bytes, then: object = None) -> Appended:
        """Fold it now, as the head does."""
        self._offset += 1
        outcome = self._live_state.take(Record(self._offset, self.now_ms, key, payload))
        view = self._live_state.publish(NO_COMMIT)
        self._on_live_view(view, self._offset, [] if outcome is None else [outcome])
        return Appended(self._offset, self.now_ms)


class OneAtATime(Registrations):
    """No request waits for what another may bring: all that came before is shown."""

    async def arrived(self, is_shown: Callable[[], bool], timeout_s: float) -> None:
        """Return at once: a wait of 0.1 s would be most of a run."""


class InMemoryNameServer:
    """The handler of the remoting API over an `InstantGateway`, asked in the words of the oracle.

    Args:
        settings: NamesrvConfig's switches.
        gateway: Answers from the tables, or from the head.
    """

    def __init__(self, settings: Settings, gateway: type[InstantGateway] = InstantGateway) -> None:
        chosen = GatewaySettings(
            gateway_id="memory",
            lake_dir=Path("/nonexistent"),
            support_acting_master=settings.support_acting_master,
            order_message_enable=settings.order_message_enable,
            return_order_topic_config_to_broker=settings.return_order_topic_config_to_broker,
            delete_topic_with_broker_registration=settings.delete_topic_with_broker_registration,
            enable_all_topic_list=settings.enable_all_topic_list,
            enable_topic_list=settings.enable_topic_list,
            notify_min_broker_id_changed=settings.notify_min_broker_id_changed,
            need_wait_for_service=settings.need_wait_for_service,
            wait_seconds_for_service=settings.wait_seconds_for_service,
            allow_config_update=True,
        )
        self.gateway = gateway(chosen)
        answers, metrics = RouteAnswers(), Metrics()
        follow_switches(self.gateway, answers)
        self.handler = NameServerHandler(self.gateway, answers, metrics, OneAtATime(self.gateway, metrics))
        self._connections: dict[str, Any] = {}
        self._serial = 0

    async def handle(self, request: Request, now_ms: int, channel: str, *, binary: bool = False) -> Response:
        """Answer one request at a time."""
        self.gateway.now_ms = now_ms
        command = RemotingCommand(
            request.code,
            dict(request.ext),
            request.body,
            version=request.version,
            serialize_type=SerializeType.ROCKETMQ if binary else SerializeType.JSON,
        )
        try:
            reply = await self.handler.handle(command, self._connection(channel))
            answer = reply if isinstance(reply, RemotingCommand) else reply.command
        except RoutelakeError as error:
            answer = failure(error)
        return Response(answer.code, answer.ext_fields, answer.body, answer.remark)

    async def close_channel(self, channel: str, now_ms: int) -> None:
        """A connection is lost."""
        self.gateway.now_ms = now_ms
        connection = self._connections.pop(channel, None)
        if connection is not None:
            connection.closed = True
            self.handler.on_close(connection)
            while self.handler._closing:
                await asyncio.gather(*self.handler._closing)

    async def advance(self, now_ms: int) -> None:
        """Append the event that gateways write when time passes and no other event comes."""
        self.gateway.now_ms = now_ms
        await self.gateway.write(Clock(actor=ACTOR), None)

    def _connection(self, channel: str) -> Any:
        if channel not in self._connections:
            self._serial += 1
            self._connections[channel] = SimpleNamespace(
                id=f"{channel}#{self._serial}",
                peer="10.9.9.9:1234",
                address="10.9.9.9",
                closed=False,
                known=None,
                heartbeat=None,
            )
        return self._connections[channel]
