# SPDX-License-Identifier: Apache-2.0
"""Registration over routelake's HTTP API (docs/reference/http-api.md) instead of the remoting protocol.

The HTTP API has no QUERY_DATA_VERSION and no REGISTER_TOPIC_IN_NAMESRV. There a registration without changes counts as
a heartbeat, so it is sent without a question first. A single topic is sent as a registration with only that topic.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import httpx
import msgspec

from clients.addresses import NAMESRV_PORT, host_port, http_address, is_http
from clients.broker.config import BrokerConfig
from clients.broker.nameservers import COMMAND_TIMEOUT_S, NameServer, RemotingNameServer
from clients.broker.registration import RegisterBrokerResult, Registration, incremental
from clients.broker.topic_config import TopicConfig
from clients.http_errors import answer_error, client_error, problem_of
from remoting.client import RemotingClient
from remoting.codec.reply import encode_data_version
from remoting.errors import AnswerTimeoutError, ClientError
from schemas.broker import DataVersion

_OK: Final = (200, 202)
_encode = msgspec.json.Encoder().encode


class _Answer(msgspec.Struct, rename="camel"):
    master_addr: str | None = None
    ha_server_addr: str | None = None
    order_topic_conf: dict[str, str] | None = None


_answer = msgspec.json.Decoder(_Answer)


class HttpNameServer:
    """A routelake NameServer over HTTP. Each request has its own connection."""

    def __init__(self, url: str, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        """Create a client. It connects at each request.

        Args:
            url: URL as http://host:port or https://host:port.
            token: Bearer token, or empty for none.
            tls: TLS context for https. None: the authorities of the system are trusted.

        Raises:
            SetupError: The URL is not valid.
        """
        self.address = http_address(url.rstrip("/"), "--namesrv")
        # A plain connection uses no context, but without one httpx would make one for each request, in 6 ms.
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.address.startswith("https:"):
            self._tls = tls or ssl.create_default_context()
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"

    async def register(self, config: BrokerConfig, part: Registration, timeout_s: float) -> RegisterBrokerResult:
        """See `NameServer`."""
        answer = await self._post("register", _register_body(config, part), timeout_s)
        return RegisterBrokerResult(answer.master_addr, answer.ha_server_addr, tuple(answer.order_topic_conf or ()))

    async def register_topic(self, config: BrokerConfig, topic: TopicConfig, data_version: DataVersion) -> None:
        """See `NameServer`."""
        await self.register(config, incremental(config, [topic], data_version), COMMAND_TIMEOUT_S)

    async def needs_registration(self, config: BrokerConfig, data_version: DataVersion, timeout_s: float) -> bool:
        """See `NameServer`."""
        return True

    async def heartbeat(self, config: BrokerConfig, data_version: DataVersion, timeout_s: float) -> None:
        """See `NameServer`."""
        await self._post("heartbeat", _encode(_identity(config)), timeout_s)

    async def unregister(self, config: BrokerConfig) -> None:
        """See `NameServer`."""
        await self._post("unregister", _encode({**_identity(config), "brokerId": config.broker_id}), COMMAND_TIMEOUT_S)

    async def _post(self, what: str, body: bytes, timeout_s: float) -> _Answer:
        """Send one request on its own connection, and return the answer. Raises ClientError."""
        try:
            async with (
                asyncio.timeout(timeout_s),
                httpx.AsyncClient(
                    verify=self._tls,
                    trust_env=False,
                    headers=self._headers,
                    timeout=httpx.Timeout(None, connect=timeout_s),
                ) as client,
            ):
                response = await client.post(f"{self.address}/v1/brokers/{what}", content=body)
        except TimeoutError:
            raise AnswerTimeoutError(self.address, f"no answer to {what} within {timeout_s:g} s") from None
        except httpx.RequestError as error:
            raise client_error(self.address, error, timeout_s) from error
        if response.status_code not in _OK:
            raise answer_error(self.address, response, problem_of(response))
        try:
            return _answer.decode(response.content)
        except (ValueError, RecursionError) as error:
            # A proxy, or another server. If it were taken for success, the broker would be believed to be registered.
            raise ClientError(
                self.address,
                f"answered HTTP {response.status_code} to {what}, but not as routelake does: {error}. "
                "Check that this is the HTTP address of a gateway.",
            ) from error


def name_server(address: str, client: RemotingClient, http_token: str, tls: ssl.SSLContext | None) -> NameServer:
    """Return the client for a NameServer: remoting for host:port, HTTP for a URL. Raises SetupError."""
    if is_http(address):
        return HttpNameServer(address, http_token, tls)
    return RemotingNameServer(host_port(address, "--namesrv", NAMESRV_PORT), client)


def _identity(config: BrokerConfig) -> dict[str, object]:
    return {
        "clusterName": config.broker_cluster_name,
        "brokerName": config.broker_name,
        "brokerAddr": config.broker_addr,
    }


def _register_body(config: BrokerConfig, part: Registration) -> bytes:
    head = {
        **_identity(config),
        "brokerId": config.broker_id,
        "haServerAddr": config.ha_server_addr,
        "enableActingMaster": config.enable_slave_acting_master,
        "filterServerList": [],
    }
    if config.heartbeat_timeout_ms is not None:
        head["heartbeatTimeoutMillis"] = config.heartbeat_timeout_ms
    return b'%b,"topicConfigSerializeWrapper":{"dataVersion":%b,"topicConfigTable":{%b}}}' % (
        _encode(head)[:-1],
        encode_data_version(part.data_version),
        part.entries,
    )
