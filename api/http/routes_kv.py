# SPDX-License-Identifier: Apache-2.0
"""KV configuration: namespace, key, value."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Annotated

from fastapi import Path, Query, Request
from starlette.responses import Response

from api.http.answers import KvAnswer, KvTableAnswer, ReceiptAnswer
from api.http.context import Router, Writer, context_of
from api.http.etag import NOTHING, ReadPosition, read_headers
from api.http.models import PutKvConfigBody
from api.http.naming_rules import text_problem
from api.http.openapi import PAST_PROBLEMS, describe_read, describe_write
from api.http.parameters import check_name
from api.http.problems import NOT_FOUND, Problem
from api.http.reads import MissingQuery, PastQuery, answer, requested_view
from api.http.writes import read_body, receipt_answer
from lake.history.history import kv_at
from nameserver.view.snapshot import RouteView
from schemas.events import DeleteKvConfig, PutKvConfig
from schemas.kv import is_reserved
from schemas.limits import MAX_NAME_BYTES
from security.admission.admission import Sender

router = Router(prefix="/v1/kv", tags=["kv"])

Namespace = Annotated[str, Path(description="The namespace. A slash in it is `%2F`.", examples=["ORDER_TOPIC_CONFIG"])]
Key = Annotated[str, Path(description="The key.", examples=["orders"])]


class KvListQuery(PastQuery, MissingQuery):
    """Parameters of a namespace."""


@router.get(
    "/{namespace:name}",
    summary="List the entries of a namespace",
    **describe_read(KvTableAnswer, NOT_FOUND, *PAST_PROBLEMS),
)
async def list_kv(request: Request, namespace: Namespace, query: Annotated[KvListQuery, Query()]) -> Response:
    """GET_KVLIST_BY_NAMESPACE (219). A namespace exists from its first key on, also without keys. Others are 404."""
    view, position = await requested_view(request, query, partial(kv_at, namespace=namespace))
    return await asyncio.to_thread(_table_answer, request, query, view, position, namespace)


def _table_answer(
    request: Request, query: KvListQuery, view: RouteView, position: ReadPosition, namespace: str
) -> Response:
    """Write a namespace, in any thread: 100,000 entries take tenths of a second."""
    table = view.kv_list(namespace)
    if table is None and not query.is_empty_fine:
        raise _missing(position, f"there is no namespace {namespace!r}")
    found = KvTableAnswer(namespace=namespace, table=dict(sorted((table or {}).items())))
    return answer(request, found, position)


@router.get(
    "/{namespace:name}/{key:names}", summary="Return an entry", **describe_read(KvAnswer, NOT_FOUND, *PAST_PROBLEMS)
)
async def get_kv(request: Request, namespace: Namespace, key: Key, query: Annotated[PastQuery, Query()]) -> Response:
    """GET_KV_CONFIG (101). A missing entry is 404 with QUERY_NOT_FOUND (22)."""
    view, position = await requested_view(request, query, partial(kv_at, namespace=namespace, key=key))
    value = view.kv_get(namespace, key)
    if value is None:
        raise _missing(position, f"there is no key {key!r} in namespace {namespace!r}")
    return answer(request, KvAnswer(namespace=namespace, key=key, value=value), position)


@router.put(
    "/{namespace:name}/{key:names}", summary="Set an entry", **describe_write(ReceiptAnswer, body=PutKvConfigBody)
)
async def put_kv(request: Request, namespace: Namespace, key: Key, sender: Writer) -> Response:
    """PUT_KV_CONFIG (100). The first key of a namespace creates it.

    In ORDER_TOPIC_CONFIG the key is a topic and the value `brokerName:queues`, separated by semicolons.
    """
    _check_names(namespace, key)
    value, _ = await read_body(request, PutKvConfigBody, lambda model: model.value)
    return await _timed(request, sender, PutKvConfig(actor=sender.actor, namespace=namespace, key=key, value=value))


@router.delete("/{namespace:name}/{key:names}", summary="Delete an entry", **describe_write(ReceiptAnswer))
async def delete_kv(request: Request, namespace: Namespace, key: Key, sender: Writer) -> Response:
    """DELETE_KV_CONFIG (102). If the entry does not exist, the outcome is `unchanged`. The namespace stays."""
    kv = context_of(request).gateway.live_view.view.kv
    if is_reserved(namespace) or key not in kv.get(namespace, ()):  # an entry that is there can always be deleted
        _check_names(namespace, key)
    return await _timed(request, sender, DeleteKvConfig(actor=sender.actor, namespace=namespace, key=key))


async def _timed(request: Request, sender: Sender, event: PutKvConfig | DeleteKvConfig) -> Response:
    context = context_of(request)
    began = time.perf_counter()
    receipt = await context.gateway.propose(event, sender)
    context.metrics.kv_latency.observe(time.perf_counter() - began)
    return receipt_answer(context, receipt)


def _check_names(namespace: str, key: str) -> None:
    check_name(_namespace_problem(namespace), "namespace")
    check_name(_name_problem(key), "key")


def _namespace_problem(namespace: str) -> str | None:
    return "holds settings, which UPDATE_NAMESRV_CONFIG changes" if is_reserved(namespace) else _name_problem(namespace)


def _name_problem(name: str) -> str | None:
    if not name.strip():
        return "must not be blank"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"may have at most {MAX_NAME_BYTES} bytes"
    return text_problem(name)


def _missing(position: ReadPosition, detail: str) -> Problem:
    return Problem(NOT_FOUND, detail, headers=read_headers(position, NOTHING))
