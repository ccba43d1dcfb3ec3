# SPDX-License-Identifier: Apache-2.0
"""ACL 1.0: how RocketMQ's peers sign a request, and how that is checked.

The content is the *values* of all extFields but Signature, in the order of their keys, without anything between them,
then the raw body. The request code, the opaque, the flag and the names of the fields are not in it, nor is a nonce: who
hears a signed request can send it again, and as another request with the same values.

Sources (5.5.0): org.apache.rocketmq.acl.common.AclUtils.combineRequestContent, AclSigner, AclClientRPCHook.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 (the name of a field)

ZONE_FIELDS: Final = frozenset({"__ZONE_NAME", "__ZONE_MODE"})
"""Clients sign before these are added, brokers after it (MQClientAPIImpl, BrokerOuterAPI)."""


def sign(fields: Mapping[str, str], body: bytes, secret: str) -> str:
    """The Signature of a request with these extFields, AccessKey among them.

    Args:
        fields: All but Signature, which is left out; a null value is an empty one.
        body: As it is sent.
        secret: The account's secretKey.
    """
    return _sign(sorted(fields), fields, body, secret)


def is_signed_by(secret: str, fields: Mapping[str, str], body: bytes) -> bool:
    """Whether a request's Signature was made with this secret, over all its fields or without those of a zone.

    Args:
        secret: The secretKey of the account that AccessKey names.
        fields: The request's extFields.
        body: Raw: neither inflated nor parsed.
    """
    given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    keys = sorted(fields)
    matches = hmac.compare_digest(_sign(keys, fields, body, secret).encode(), given)
    if not ZONE_FIELDS.isdisjoint(fields):
        without = [key for key in keys if key not in ZONE_FIELDS]
        matches |= hmac.compare_digest(_sign(without, fields, body, secret).encode(), given)
    return matches


def signed(fields: Mapping[str, str] | None, body: bytes, access_key: str, secret: str) -> dict[str, str]:
    """The extFields of a request with AccessKey and Signature (AclClientRPCHook.doBeforeRequest)."""
    found = {**(fields or {}), ACCESS_KEY: access_key}
    return {**found, SIGNATURE: sign(found, body, secret)}


def _sign(keys: Iterable[str], fields: Mapping[str, str], body: bytes, secret: str) -> str:
    content = "".join([fields[key] for key in keys if key != SIGNATURE])
    digest = hmac.new(secret.encode(), content.encode("utf-8", "replace"), "sha1")
    digest.update(body)
    return b64encode(digest.digest()).decode()
