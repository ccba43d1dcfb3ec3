# SPDX-License-Identifier: Apache-2.0
"""The ingest endpoint: what a broker tells a NameServer."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.http.answers import HeartbeatAnswer, ReceiptAnswer, RegistrationAnswer
from api.http.context import context_of
from api.http.models import BrokerHeartbeatBody, RegisterBrokerBody, UnregisterBrokerBody
from api.http.openapi import BODY_PROBLEMS, request_body, write_responses
from api.http.problems import REFUSED
from api.http.writes import read_body, receipt_answer
from schemas.events import RegisterBroker
from schemas.kv import existing

router = APIRouter(prefix="/v1/brokers", tags=["ingest"])


@router.post(
    "/register",
    operation_id="registerBroker",
    summary="Register a broker",
    responses=write_responses(RegistrationAnswer, *BODY_PROBLEMS, REFUSED),
    openapi_extra=request_body(RegisterBrokerBody),
)
async def register(request: Request) -> Response:
    """REGISTER_BROKER (103): register a broker with its address and topics.

    If you send a registration again, it is a heartbeat. Rows of known topics are written only if `dataVersion` differs
    from the last one. Absent topics stay, unless deleteTopicWithBrokerRegistration is on. Two registrations are refused
    with 409: a first one with exactly one topic (SINGLE_TOPIC_REFUSED), and one with the brokerId of a live address
    with a higher stateVersion (STATE_VERSION_CONFLICT).
    """
    context = context_of(request)
    sender = context.guard.writer(request)
    delete_absent = context.gateway.settings.delete_topic_with_broker_registration

    def convert(model: RegisterBrokerBody) -> RegisterBroker:
        return model.event(sender.actor, delete_absent_topics=delete_absent)

    event, size = await read_body(
        request, context, RegisterBrokerBody, convert, max_bytes=context.settings.max_body_bytes
    )
    registered = await context.registrations.register(event, sender, size)
    return receipt_answer(
        context,
        registered.receipt,
        RegistrationAnswer,
        master_addr=registered.master.master_addr,
        ha_server_addr=registered.master.ha_server_addr,
        order_topic_conf=existing(registered.order_topic_config),
    )


@router.post(
    "/heartbeat",
    operation_id="heartbeat",
    summary="Send the heartbeat of a broker",
    responses=write_responses(HeartbeatAnswer, *BODY_PROBLEMS),
    openapi_extra=request_body(BrokerHeartbeatBody),
)
async def heartbeat(request: Request) -> Response:
    """BROKER_HEARTBEAT (904): move the deadline of a registered broker.

    The gateway answers when the heartbeat is durable. If `known` is false, the broker is not live and has to register.
    """
    context = context_of(request)
    sender = context.guard.writer(request)
    event, _ = await read_body(request, context, BrokerHeartbeatBody, lambda model: model.event(sender.actor))
    known = (
        context.gateway.live_view.view.live_row(event.broker_name, event.cluster_name, event.broker_addr) is not None
    )
    receipt = await context.gateway.propose(event, sender)
    return receipt_answer(context, receipt, HeartbeatAnswer, known=known)


@router.post(
    "/unregister",
    operation_id="unregisterBroker",
    summary="Unregister a broker",
    responses=write_responses(ReceiptAnswer, *BODY_PROBLEMS),
    openapi_extra=request_body(UnregisterBrokerBody),
)
async def unregister(request: Request) -> Response:
    """UNREGISTER_BROKER (104): remove an address, and with the last one of a brokerName its queue rows.

    `outcome` is unchanged if the broker was not known.
    """
    context = context_of(request)
    sender = context.guard.writer(request)
    event, _ = await read_body(request, context, UnregisterBrokerBody, lambda model: model.event(sender.actor))
    receipt = await context.gateway.propose(event, sender)
    return receipt_answer(context, receipt)
