# SPDX-License-Identifier: Apache-2.0
"""Admin commands on topics and brokers. Who may send them: `api.http.auth`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from api.gateway.gateway import Receipt
from api.http.answers import AddAnswer, ReceiptAnswer, WipeAnswer
from api.http.context import context_of
from api.http.naming_rules import broker_name_problem, topic_problem
from api.http.openapi import RECEIPT_EXAMPLE, write
from api.http.parameters import Cluster, TopicPath, check_name
from api.http.reads import check_once
from api.http.writes import receipt_answer
from schemas.events import AddWritePerm, DeleteTopic, WipeWritePerm

router = APIRouter(prefix="/v1", tags=["admin"])

BrokerPath = Annotated[str, Path(alias="brokerName", description="The broker group.", examples=["broker-a"])]


class DeleteTopicQuery(BaseModel):
    """Parameters of a deletion."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cluster: Cluster = Field(None, description="Only the rows of this cluster's brokers. Absent: everywhere.")


@router.delete(
    "/topics/{topic:names}",
    operation_id="deleteTopic",
    summary="Delete a topic from the NameServer",
    responses=write(ReceiptAnswer, RECEIPT_EXAMPLE),
)
async def delete_topic(request: Request, topic: TopicPath, query: Annotated[DeleteTopicQuery, Query()]) -> Response:
    """DELETE_TOPIC_IN_NAMESRV (216): remove the topic's rows. The brokers keep the topic, so delete it there first.

    A broker that still has the topic writes it again with its next registration. Static mappings stay. If the topic
    does not exist, the outcome is `unchanged`.
    """
    context = context_of(request)
    sender = context.guard.writer(request)
    check_once(request)
    if topic not in context.gateway.live_view.view.topics:  # whatever the wire let in can be deleted
        check_name(topic_problem(topic), "topic")
    event = DeleteTopic(actor=sender.actor, topic=topic, cluster_name=query.cluster)
    receipt = await context.gateway.propose(event, sender)
    return receipt_answer(context, receipt)


@router.post(
    "/brokers/{brokerName:name}/wipe-write-perm",
    operation_id="wipeWritePerm",
    summary="Clear the write permission of a broker",
    responses=write(WipeAnswer, {**RECEIPT_EXAMPLE, "wipeTopicCount": 12}),
)
async def wipe_write_perm(request: Request, broker_name: BrokerPath) -> Response:
    """WIPE_WRITE_PERM_OF_BROKER (205): clear the write bit of every topic on this broker.

    It lasts until the broker registers with a new dataVersion. The request needs no body.
    """
    context = context_of(request)
    sender = context.guard.writer(request)
    _check_broker(request, broker_name)
    receipt = await context.gateway.propose(WipeWritePerm(actor=sender.actor, broker_name=broker_name), sender)
    count = _result(receipt, "wipeTopicCount")
    return receipt_answer(context, receipt, WipeAnswer, wipe_topic_count=count)


@router.post(
    "/brokers/{brokerName:name}/add-write-perm",
    operation_id="addWritePerm",
    summary="Set the write permission of a broker",
    responses=write(AddAnswer, {**RECEIPT_EXAMPLE, "addTopicCount": 12}),
)
async def add_write_perm(request: Request, broker_name: BrokerPath) -> Response:
    """ADD_WRITE_PERM_OF_BROKER (327): set the permission of every topic on this broker to 6 (read and write).

    As in RocketMQ, TBW102 loses its inherit bit. The request needs no body.
    """
    context = context_of(request)
    sender = context.guard.writer(request)
    _check_broker(request, broker_name)
    receipt = await context.gateway.propose(AddWritePerm(actor=sender.actor, broker_name=broker_name), sender)
    count = _result(receipt, "addTopicCount")
    return receipt_answer(context, receipt, AddAnswer, add_topic_count=count)


def _check_broker(request: Request, broker_name: str) -> None:
    if broker_name not in context_of(request).gateway.live_view.view.groups:
        check_name(broker_name_problem(broker_name), "brokerName")


def _result(receipt: Receipt, name: str) -> object:
    found = receipt.outcome.result if receipt.outcome is not None else None
    return (found or {}).get(name)
