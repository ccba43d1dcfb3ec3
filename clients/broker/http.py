# SPDX-License-Identifier: Apache-2.0
"""Registering over routelake's HTTP API (docs/reference/http-api.md) instead of the remoting protocol.

It has no counterpart of QUERY_DATA_VERSION and REGISTER_TOPIC_IN_NAMESRV: a registration that says what is known
already is a heartbeat there, so it is simply sent; one topic goes as a registration with that topic alone.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec

from clients.addresses import NAMESRV_PORT, host_port, is_http
from clients.broker.config import BrokerConfig
from clients.broker.nameservers import COMMAND_TIMEOUT_S, NameServer, RemotingNameServer
from clients.broker.registration import RegisterBrokerResult, Registration, incremental
from clients.broker.topic_config import TopicConfig
from clients.http import HttpConnections, refusal
from remoting.client import RemotingClient
from remoting.codec.reply import encode_data_version
from remoting.errors import ConnectionLostError
from schemas.broker import DataVersion
from schemas.errors import SetupError

_OK: Final = (200, 202)
_HEADERS: Final = {"content-type": "application/json"}
_encode = msgspec.json.Encoder().encode


class _Answer(msgspec.Struct, rename="camel"):
    master_addr: str | None = None
    ha_server_addr: str | None = None
    order_topic_conf: dict[str, str] | None = None


_answer = msgspec.json.Decoder(_Answer)


class HttpNameServer:
    """routelake over HTTP. Each request has a connection of its own."""

    def __init__(self, url: str, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        """Connects when it is asked.

        Args:
            url: http://host:port or https://host:port.
            token: Sent as a bearer token, if any.
            tls: For https; None: who the system trusts is believed.

        Raises:
            SetupError: It is no such URL.
        """
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError as error:
            raise SetupError(f"{url!r} is no NameServer: {error}") from error
        if not is_usable or parts.path not in ("", "/") or parts.query:
            raise SetupError(f"{url!r} is no NameServer: expected http://HOST:PORT")
        self.address = url.rstrip("/")
        self._token = token
        self._tls = None if parts.scheme == "http" else tls or ssl.create_default_context()

    async def register(
        self, config: BrokerConfig, parts: Sequence[Registration], timeout_s: float
    ) -> RegisterBrokerResult:
        """See `NameServer`."""
        result = RegisterBrokerResult()
        for part in parts:
            answer = await self._post("register", _register_body(config, part), timeout_s)
            result = RegisterBrokerResult(
                answer.master_addr, answer.ha_server_addr, tuple(answer.order_topic_conf or ())
            )
        return result

    async def register_topic(self, config: BrokerConfig, topic: TopicConfig, data_version: DataVersion) -> None:
        """See `NameServer`."""
        part = incremental(config, [topic], data_version)
        await self._post("register", _register_body(config, part), COMMAND_TIMEOUT_S)

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
        """Raises ClientError."""
        try:
            async with HttpConnections(self.address, self._token, self._tls) as connections:
                path = f"/v1/brokers/{what}"
                answer = await connections.send("POST", path, timeout_s, headers=_HEADERS, content=body)
            if answer.status_code not in _OK:
                raise refusal(self.address, answer)
            return _answer.decode(answer.content)
        except (httpx.DecodingError, ValueError, RecursionError) as error:
            raise ConnectionLostError(self.address, f"the answer to {what} cannot be read: {error}") from error


def name_server(address: str, client: RemotingClient, http_token: str, tls: ssl.SSLContext | None) -> NameServer:
    """A client of the NameServer at host:port, by remoting, or at a URL, over HTTP. Raises SetupError."""
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
