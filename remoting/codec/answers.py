# SPDX-License-Identifier: Apache-2.0
"""Bodies and replies that are the same wherever they are needed. No I/O.

Route, cluster and member group bodies, which come in dialects, are in `schemas.rocketmq_json`.

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.body.TopicList, KVTable, org.apache.rocketmq.remoting.protocol
.DataVersion, DefaultRequestProcessor, NettyRemotingAbstract.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from remoting.codec.commands import RefusedError
from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import response
from schemas.broker import DataVersion
from schemas.codes import ResponseCode
from schemas.errors import AccessDeniedError, InDoubtError, NotFoundError, RoutelakeError, UnavailableError

_encode = msgspec.json.Encoder().encode


def encode_topic_list(topics: Iterable[str], broker_addr: str | None = None) -> bytes:
    """TopicList.encode; only GET_SYSTEM_TOPIC_LIST_FROM_NS names an address."""
    body: dict[str, object] = {} if broker_addr is None else {"brokerAddr": broker_addr}
    body["topicList"] = list(topics)
    return _encode(body)


def encode_kv_table(table: Mapping[str, str | None]) -> bytes:
    """KVTable.encode; keys without value are left out."""
    return _encode({"table": {key: value for key, value in sorted(table.items()) if value is not None}})


def encode_data_version(version: DataVersion) -> bytes:
    """DataVersion.encode."""
    return b'{"counter":%d,"stateVersion":%d,"timestamp":%d}' % (
        version.counter,
        version.state_version,
        version.timestamp,
    )


def not_supported(code: int) -> RemotingCommand:
    """The answer to a request code that nobody handles."""
    return response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")


def failure(error: Exception) -> RemotingCommand:
    """The answer to a request whose handling raised: SYSTEM_ERROR and the text, unless the error knows better."""
    if isinstance(error, RefusedError):
        return response(error.code, str(error), error.ext_fields)
    if isinstance(error, NotFoundError):
        return response(error.code, str(error))
    if isinstance(error, AccessDeniedError):
        return response(ResponseCode.NO_PERMISSION, str(error))
    if isinstance(error, UnavailableError | InDoubtError):
        return response(ResponseCode.SYSTEM_BUSY, str(error))
    if isinstance(error, RoutelakeError):
        return response(ResponseCode.SYSTEM_ERROR, str(error))
    return response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
