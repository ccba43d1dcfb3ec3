# SPDX-License-Identifier: Apache-2.0
"""Admin commands on topics and brokers, and self-preservation: its state, its live switch, and its end (ADR 14).

`api.http.auth` decides on permission.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_snake
from starlette.responses import Response

from api.http.answers import AddAnswer, ReceiptAnswer, SelfPreservationAnswer, WipeAnswer
from api.http.context import Router, Writer, context_of
from api.http.models import SelfPreservationBody
from api.http.naming_rules import broker_name_problem, topic_problem
from api.http.openapi import (
    READ_PROBLEMS,
    describe_write,
    json_response,
    problem_responses,
)
from api.http.parameters import Cluster, TopicPath, check_name
from api.http.problems import rfc3339_ms
from api.http.reads import check_once, uncached
from api.http.writes import command, read_body, receipt_answer
from api.settings.keys import SELF_PRESERVATION
from nameserver.state_machine.preservation import EndReason, census
from schemas.events import AddWritePerm, DeleteTopic, PreserveEnd, PutKvConfig, WipeWritePerm
from schemas.kv import NAMESRV_CONFIG
from security.admission.admission import Sender

router = Router(prefix="/v1", tags=["admin"])

BrokerPath = Annotated[str, Path(alias="brokerName", description="The broker group.", examples=["broker-a"])]


class DeleteTopicQuery(BaseModel):
    """Parameters of a deletion."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cluster: Cluster = Field(None, description="Delete only the rows of this cluster's brokers. Default: all clusters.")


@router.delete("/topics/{topic:names}", summary="Delete a topic from the NameServer", **describe_write(ReceiptAnswer))
async def delete_topic(
    request: Request, topic: TopicPath, query: Annotated[DeleteTopicQuery, Query()], sender: Writer
) -> Response:
    """DELETE_TOPIC_IN_NAMESRV (216): remove the topic's rows. The brokers keep the topic, so delete it there first.

    A broker that still has the topic writes it again with its next registration. Static mappings stay. If the topic
    does not exist, the outcome is `unchanged`.
    """
    check_once(request)
    if topic not in context_of(request).gateway.live_view.view.topics:  # any name that is there can be deleted
        check_name(topic_problem(topic), "topic")
    return await command(request, sender, DeleteTopic(actor=sender.actor, topic=topic, cluster_name=query.cluster))


@router.post(
    "/brokers/{brokerName:name}/wipe-write-perm",
    summary="Clear the write permission of a broker",
    **describe_write(WipeAnswer),
)
async def wipe_write_perm(request: Request, broker_name: BrokerPath, sender: Writer) -> Response:
    """WIPE_WRITE_PERM_OF_BROKER (205): clear the write bit of every topic on this broker.

    It lasts until the broker registers with a new dataVersion. The request needs no body.
    """
    return await _change_write_perm(
        request, sender, WipeWritePerm(actor=sender.actor, broker_name=broker_name), WipeAnswer
    )


@router.post(
    "/brokers/{brokerName:name}/add-write-perm",
    summary="Set the write permission of a broker",
    **describe_write(AddAnswer),
)
async def add_write_perm(request: Request, broker_name: BrokerPath, sender: Writer) -> Response:
    """ADD_WRITE_PERM_OF_BROKER (327): set the permission of every topic on this broker to 6 (read and write).

    As in RocketMQ, TBW102 loses its inherit bit. The request needs no body.
    """
    return await _change_write_perm(
        request, sender, AddWritePerm(actor=sender.actor, broker_name=broker_name), AddAnswer
    )


async def _change_write_perm(
    request: Request, sender: Sender, event: WipeWritePerm | AddWritePerm, answer: type[ReceiptAnswer]
) -> Response:
    context = context_of(request)
    if event.broker_name not in context.gateway.live_view.view.groups:  # any name that is there can be changed
        check_name(broker_name_problem(event.broker_name), "brokerName")
    receipt = await context.gateway.propose(event, sender)
    counts = {to_snake(name): count for name, count in (receipt.result or {}).items()}
    return receipt_answer(context, receipt, answer, **counts)


@router.get(
    "/self-preservation",
    summary="Return the state of self-preservation",
    responses={200: json_response(SelfPreservationAnswer, "How it stands."), **problem_responses(*READ_PROBLEMS)},
)
async def get_self_preservation(request: Request) -> Response:
    """The switch, the pause if there is one, and how many brokers lack heartbeats now, in the live view."""
    check_once(request)
    gateway = context_of(request).gateway
    view, settings = gateway.live_view.view, gateway.settings
    since_ms = view.commit.preserved_ms
    limit_ms = round(settings.self_preservation_limit_s * 1000)
    counted = gateway.preservation.counted or census(dict(view.all_live_rows()), gateway.live_view.event.now_ms)
    found = SelfPreservationAnswer(
        percent=settings.self_preservation_percent,
        is_on=since_ms > 0,
        since=rfc3339_ms(since_ms) if since_ms else None,
        until=rfc3339_ms(since_ms + limit_ms) if since_ms else None,
        live=counted.live,
        silent=counted.silent,
    )
    return uncached(found)


@router.put(
    "/self-preservation",
    summary="Set the threshold of self-preservation",
    **describe_write(ReceiptAnswer, body=SelfPreservationBody),
)
async def set_self_preservation(request: Request, sender: Writer) -> Response:
    """The live switch selfPreservationPercent, for every gateway of the log, over their options, also after restarts.

    0 switches self-preservation off, and ends a pause.
    """
    value, _ = await read_body(request, SelfPreservationBody, lambda model: str(model.percent))
    event = PutKvConfig(actor=sender.actor, namespace=NAMESRV_CONFIG, key=SELF_PRESERVATION, value=value)
    return await command(request, sender, event)


@router.post("/self-preservation/end", summary="End a pause of expiry", **describe_write(ReceiptAnswer))
async def end_self_preservation(request: Request, sender: Writer) -> Response:
    """End a pause: overdue brokers expire at once, others at their deadlines.

    Without a pause the outcome is `unchanged`. Self-preservation does not begin again until the brokers without
    heartbeats are back or removed. The request needs no body.
    """
    check_once(request)
    event = PreserveEnd(actor=sender.actor, grace_ms=0, reason=EndReason.REQUESTED)
    return await command(request, sender, event)
