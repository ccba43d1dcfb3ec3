# SPDX-License-Identifier: Apache-2.0
"""ACL 1.0: the signature that RocketMQ's peers add to a request, and its verification.

The signed content is the *values* of all extFields except Signature, in the order of their keys, without separators,
and then the raw body. It does not include the request code, the opaque, the flag, the names of the fields, the
boundaries of the values, or a nonce. So a peer that has seen a signed request can send it again. It can also send
another request, if values and body give the same text. `stray_field` leaves fewer ways to do that.

Sources (5.5.0): org.apache.rocketmq.acl.common.AclUtils.combineRequestContent, AclSigner, AclClientRPCHook.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Final

from schemas.codes import RequestCode
from security.roles import NEEDED, Role

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 (the name of a field)

SIGNING_FIELDS: Final = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})

ZONE_FIELDS: Final = frozenset({"__ZONE_NAME", "__ZONE_MODE"})
"""Fields that clients add after signing, and brokers before it (MQClientAPIImpl, BrokerOuterAPI)."""


_C = RequestCode
_BROKER: Final = frozenset({"brokerName", "brokerAddr", "clusterName", "brokerId"})

_MAY_HAVE: Final[Mapping[int, frozenset[str]]] = {
    _C.REGISTER_BROKER: _BROKER
    | {"haServerAddr", "heartbeatTimeoutMillis", "enableActingMaster", "compressed", "bodyCrc32"},
    _C.UNREGISTER_BROKER: _BROKER,
    _C.QUERY_DATA_VERSION: _BROKER,
    _C.BROKER_HEARTBEAT: _BROKER | {"epoch", "maxOffset", "confirmOffset", "heartbeatTimeoutMills", "electionPriority"},
    _C.REGISTER_TOPIC_IN_NAMESRV: frozenset({"topic"}),
    _C.DELETE_TOPIC_IN_NAMESRV: frozenset({"topic", "clusterName"}),
    _C.PUT_KV_CONFIG: frozenset({"namespace", "key", "value"}),
    _C.DELETE_KV_CONFIG: frozenset({"namespace", "key"}),
    _C.WIPE_WRITE_PERM_OF_BROKER: frozenset({"brokerName"}),
    _C.ADD_WRITE_PERM_OF_BROKER: frozenset({"brokerName"}),
    _C.UPDATE_NAMESRV_CONFIG: frozenset(),
    _C.GET_NAMESRV_CONFIG: frozenset(),
}
"""Fields of a request's header class, of every release from 4.9 on, by RequestCode. Only for requests that change
something, or that only an admin may send."""

_HAS_BODY: Final = frozenset(
    {_C.REGISTER_BROKER, _C.QUERY_DATA_VERSION, _C.REGISTER_TOPIC_IN_NAMESRV, _C.UPDATE_NAMESRV_CONFIG}
)
_MAY_LACK: Final = frozenset({"clusterName"})
"""Fields that may be missing: DeleteTopicFromNamesrvRequestHeader has clusterName from 5.0 on."""
_OF_ADMINS: Final = frozenset(code for code, role in NEEDED.items() if role is Role.ADMIN)


def stray_field(code: int, fields: Mapping[str, str], body: bytes) -> str | None:
    """Return the difference of a signed request from those that peers send, or None without a difference.

    A value or a body that the request does not use is a place for the rest of another signed text.

    Args:
        code: RequestCode of the request.
        fields: The request's extFields.
        body: The request's raw body.
    """
    known = _MAY_HAVE.get(code)
    if known is None:
        return None
    for name in fields:
        if name not in known and name not in SIGNING_FIELDS and name not in ZONE_FIELDS:
            return f"it has a field {name[:64]!r}"
    if body and code not in _HAS_BODY:
        return "it has a body"
    missing = sorted(known - fields.keys() - _MAY_LACK) if code in _OF_ADMINS else []
    return f"it lacks the field {missing[0]!r}" if missing else None


def sign(fields: Mapping[str, str], body: bytes, secret: str) -> str:
    """Return the Signature of a request with these extFields, which include AccessKey.

    Args:
        fields: All fields. Signature is ignored. A null value is an empty one.
        body: Body as it is sent.
        secret: secretKey of the account.
    """
    return _sign(sorted(fields), fields, body, secret)


def is_signed_by(secret: str, fields: Mapping[str, str], body: bytes) -> bool:
    """Return whether this secret made a request's Signature, over all fields or all except those of a zone.

    Args:
        secret: secretKey of the account that AccessKey names.
        fields: The request's extFields.
        body: Raw body, neither decompressed nor parsed.
    """
    given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    keys = sorted(fields)
    matches = hmac.compare_digest(_sign(keys, fields, body, secret).encode(), given)
    if not ZONE_FIELDS.isdisjoint(fields):
        without = [key for key in keys if key not in ZONE_FIELDS]
        matches |= hmac.compare_digest(_sign(without, fields, body, secret).encode(), given)
    return matches


def signed(fields: Mapping[str, str] | None, body: bytes, access_key: str, secret: str) -> dict[str, str]:
    """Add AccessKey and Signature to the extFields of a request (AclClientRPCHook.doBeforeRequest)."""
    found = {**(fields or {}), ACCESS_KEY: access_key}
    return {**found, SIGNATURE: sign(found, body, secret)}


def _sign(keys: Iterable[str], fields: Mapping[str, str], body: bytes, secret: str) -> str:
    content = "".join([fields[key] for key in keys if key != SIGNATURE])
    digest = hmac.new(secret.encode(), content.encode("utf-8", "replace"), "sha1")
    digest.update(body)
    return b64encode(digest.digest()).decode()
