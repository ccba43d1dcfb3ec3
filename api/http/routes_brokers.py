# SPDX-License-Identifier: Apache-2.0
"""Endpoints for brokers and clusters: registration, heartbeat and unregistration, and reads of the view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Final

import msgspec
from fastapi import Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from api.http.answers import (
    BrokerAnswer,
    BrokerListAnswer,
    HeartbeatAnswer,
    LiveBroker,
    ReceiptAnswer,
    RegistrationAnswer,
)
from api.http.context import Router, Writer, context_of
from api.http.etag import NOTHING, read_headers
from api.http.models import BrokerHeartbeatBody, RegisterBrokerBody, UnregisterBrokerBody
from api.http.openapi import PAST_PROBLEMS, describe_read, describe_write
from api.http.parameters import Cluster
from api.http.problems import NOT_FOUND, REFUSED, Problem
from api.http.reads import PastQuery, answer, requested_view
from api.http.writes import command, read_body, receipt_answer
from lake.history import history as past
from nameserver.route_queries import broker_data, cluster_info
from nameserver.state_machine.state import LiveInfo, LiveKey
from nameserver.view.snapshot import RouteView
from schemas.events import RegisterBroker
from schemas.kv import existing
from schemas.rocketmq_json import encode_cluster_info
from schemas.route import ClusterInfo

ingest = Router(prefix="/v1", tags=["ingest"])
router = Router(prefix="/v1", tags=["clusters"])

_encode = msgspec.json.Encoder().encode

_OFF_LOOP_GROUPS: Final = 500
"""With more groups, an answer about all groups takes some 10 ms."""


class BrokersQuery(PastQuery):
    """Parameters of the broker list."""

    cluster: Cluster = Field(None, description="Only brokers that registered into this cluster.")


# --- ingest ---


@ingest.post(
    "/brokers/register",
    summary="Register a broker",
    **describe_write(RegistrationAnswer, REFUSED, body=RegisterBrokerBody),
)
async def register_broker(request: Request, sender: Writer) -> Response:
    """REGISTER_BROKER (103): register a broker with its address and topics.

    If you send a registration again, it is a heartbeat. Rows of known topics are written only if `dataVersion` differs
    from the last one. Absent topics stay, unless deleteTopicWithBrokerRegistration is on. Two registrations are refused
    with 409: a first one with exactly one topic (SINGLE_TOPIC_REFUSED), and one with the brokerId of a live address
    with a higher stateVersion (STATE_VERSION_CONFLICT).
    """
    context = context_of(request)
    delete_absent = context.gateway.settings.delete_topic_with_broker_registration

    def convert(model: RegisterBrokerBody) -> RegisterBroker:
        return model.event(sender.actor, delete_absent_topics=delete_absent)

    event, size = await read_body(request, RegisterBrokerBody, convert, max_bytes=context.settings.max_body_bytes)
    registered = await context.registrations.register(event, sender, size)
    return receipt_answer(
        context,
        registered.receipt,
        RegistrationAnswer,
        master_addr=registered.master.master_addr,
        ha_server_addr=registered.master.ha_server_addr,
        order_topic_conf=existing(registered.order_topic_config),
    )


@ingest.post(
    "/brokers/heartbeat",
    summary="Send the heartbeat of a broker",
    **describe_write(HeartbeatAnswer, body=BrokerHeartbeatBody),
)
async def heartbeat(request: Request, sender: Writer) -> Response:
    """BROKER_HEARTBEAT (904): move the deadline of a registered broker.

    The gateway answers when the heartbeat is durable. If `known` is false, the broker is not live and has to register.
    """
    context = context_of(request)
    event, _ = await read_body(request, BrokerHeartbeatBody, lambda model: model.event(sender.actor))
    row = context.gateway.live_view.view.live_row(event.broker_name, event.cluster_name, event.broker_addr)
    receipt = await context.gateway.propose(event, sender)
    return receipt_answer(context, receipt, HeartbeatAnswer, known=row is not None)


@ingest.post(
    "/brokers/unregister", summary="Unregister a broker", **describe_write(ReceiptAnswer, body=UnregisterBrokerBody)
)
async def unregister_broker(request: Request, sender: Writer) -> Response:
    """UNREGISTER_BROKER (104): remove an address, and with the last one of a brokerName its queue rows.

    `outcome` is unchanged if the broker was not known.
    """
    event, _ = await read_body(request, UnregisterBrokerBody, lambda model: model.event(sender.actor))
    return await command(request, sender, event)


# --- reads ---


@router.get("/clusters", summary="List broker groups and clusters", **describe_read(ClusterInfo, *PAST_PROBLEMS))
async def get_clusters(request: Request, query: Annotated[PastQuery, Query()]) -> Response:
    """GET_BROKER_CLUSTER_INFO (106), in standard JSON. Broker ids are the registered ones, also for acting masters."""
    view, position = await requested_view(request, query, past.clusters_at)
    found = await _in_a_thread_if_large(view, lambda: encode_cluster_info(cluster_info(view), numeric_keys=False))
    return answer(request, found, position)


@router.get("/brokers", summary="List live brokers", **describe_read(BrokerListAnswer, *PAST_PROBLEMS))
async def list_brokers(request: Request, query: Annotated[BrokersQuery, Query()]) -> Response:
    """Every live broker address with the time of its last heartbeat, its timeout and its last registration.

    In the live view `lastUpdateTimestamp` is at most a quarter of a second old. With `reads=committed` it is at most
    ten seconds old, because times of heartbeats reach the tables that often. Expiry does not depend on it.
    """
    view, position = await requested_view(request, query, past.brokers_at)
    rows = (row for row in view.all_live_rows() if query.cluster is None or row[0][1] == query.cluster)
    found = await _in_a_thread_if_large(view, lambda: _encode(BrokerListAnswer(brokers=_live_list(view, rows))))
    return answer(request, found, position)


@router.get(
    "/brokers/{brokerName:name}",
    summary="Return a broker group",
    **describe_read(BrokerAnswer, NOT_FOUND, *PAST_PROBLEMS),
)
async def get_broker(
    request: Request,
    broker_name: Annotated[str, Path(alias="brokerName", description="The broker group.", examples=["broker-a"])],
    query: Annotated[PastQuery, Query()],
) -> Response:
    """A broker group: its addresses by brokerId, its number of topics, and its live rows."""
    view, position = await requested_view(request, query, partial(past.broker_at, broker_name=broker_name))
    rows = (((broker_name, *key), live) for key, live in view.live_rows(broker_name).items())
    if broker_name not in view.groups:
        when = "now" if query.past is None else "then"
        text = f"there is no broker group {broker_name!r} {when}; GET /v1/changes?brokerName= has its changes"
        raise Problem(NOT_FOUND, text, headers=read_headers(position, NOTHING))
    if query.past is None:
        topic_count = await context_of(request).topic_counts.get(view, broker_name)
    else:
        topic_count = len(view.topics)  # the view has only the topics of this group
    found = BrokerAnswer(
        **msgspec.structs.asdict(broker_data(view.groups[broker_name])),
        topic_count=topic_count,
        live=_live_list(view, rows),
    )
    return answer(request, found, position)


async def _in_a_thread_if_large(view: RouteView, encode: Callable[[], bytes]) -> bytes:
    """Encode an answer about all groups."""
    return await asyncio.to_thread(encode) if len(view.groups) > _OFF_LOOP_GROUPS else encode()


def _live_list(view: RouteView, rows: Iterable[tuple[LiveKey, LiveInfo]]) -> list[LiveBroker]:
    found = dict(rows)
    ids = {
        (name, addr): broker_id
        for name in {name for name, _, _ in found}
        for broker_id, addr in view.broker_member_group(name).items()
    }
    return [
        LiveBroker(
            cluster_name=cluster,
            broker_name=name,
            broker_addr=addr,
            broker_id=ids.get((name, addr)),
            ha_server_addr=live.ha_server_addr,
            last_update_timestamp=live.last_update_ms,
            heartbeat_timeout_millis=live.heartbeat_timeout_ms,
            expire_timestamp=live.expire_ms,
            data_version=live.data_version,
        )
        for (name, cluster, addr), live in sorted(found.items(), key=lambda row: (row[0][1], row[0]))
    ]
