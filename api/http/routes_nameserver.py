# SPDX-License-Identifier: Apache-2.0
"""The NameServer itself over HTTP: its configuration, and RocketMQ's address server.

Clients without addresses, and brokers with fetchNamesrvAddrByAddressServer, request
``http://DOMAIN:8080/rocketmq/nsaddr`` every two minutes. With a unitName they request ``nsaddr-UNIT?nofix=1``.
Source: org.apache.rocketmq.common.namesrv.DefaultTopAddressing, MixAll.getWSAddr.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request
from starlette.responses import Response

from api.gateway.live_gateways import live_addresses
from api.http.answers import ConfigAnswer
from api.http.context import Router, context_of
from api.http.openapi import READ_PROBLEMS, json_response, problem_responses, text_response
from api.http.problems import BUSY, FORBIDDEN, Problem
from api.http.reads import check_once, uncached
from api.settings.gateway import shown_settings

router = Router()


_ADDRESSES_HEADERS: Final = {"cache-control": "no-store", "content-type": "text/plain; charset=utf-8"}


@router.get(
    "/v1/config",
    tags=["admin"],
    summary="Return the NameServer's configuration",
    responses={
        200: json_response(ConfigAnswer, "The keys that mean something here, by name."),
        **problem_responses(*READ_PROBLEMS, FORBIDDEN),
    },
)
async def get_config(request: Request) -> Response:
    """GET_NAMESRV_CONFIG (319) of this gateway: its settings at the start, and live switches set since.

    With accounts, it needs the role admin, as over remoting. The changes of kvConfigTable have the time and the sender
    of each switch.
    """
    check_once(request)
    return uncached(ConfigAnswer(config=shown_settings(context_of(request).gateway.settings)))


@router.get(
    "/rocketmq/nsaddr",
    tags=["health"],
    summary="List the NameServers",
    response_class=Response,
    responses={200: text_response("text/plain", "`IP:PORT;IP:PORT`, sorted; never empty."), **problem_responses(BUSY)},
)
async def name_servers(request: Request) -> Response:
    """Addresses for stock clients that find NameServers by a domain: all gateways of this log that wrote within 15 s.

    The address of a gateway is its id (`--gateway-id`) if that is HOST:PORT, else the address of its NameServer. Host
    names are resolved to IP addresses. ROUTELAKE_HTTP_NSADDR replaces the whole list.
    """
    context = context_of(request)
    found = list(context.settings.name_servers)
    if not found:
        gateway = context.gateway
        settings = gateway.settings
        own = settings.gateway_id
        named = live_addresses(gateway.replica.heard_ms(), own, settings.clock_interval_s, settings.address)
        found = await context.resolver.addresses(named)
    if not found:
        why = f"no IP address is known of any gateway, and the id {own!r} names none"
        raise Problem(BUSY, f"{why}: start with --gateway-id IP:PORT, or set ROUTELAKE_HTTP_NSADDR")
    return Response(";".join(found) + "\n", 200, _ADDRESSES_HEADERS)


@router.get("/rocketmq/nsaddr-{unit_name}", include_in_schema=False)
async def name_servers_of_unit(request: Request, unit_name: str) -> Response:
    """Return the same addresses for every unitName, because units of clients share NameServers."""
    return await name_servers(request)
