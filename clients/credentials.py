# SPDX-License-Identifier: Apache-2.0
"""AccessKey and secretKey of a client, and what they make of a request (AclClientRPCHook of RocketMQ)."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from remoting.codec.frame import RemotingCommand
from security.signature import SECURITY_TOKEN, signed


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a client.

    Attributes:
        access_key: Names the account.
        secret_key: Signs; never sent, never shown.
        security_token: Sent along, if there is one.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def sign(self, request: RemotingCommand) -> RemotingCommand:
        """The same request, signed as its last change."""
        fields = dict(request.ext_fields or {})
        if self.security_token:
            fields[SECURITY_TOKEN] = self.security_token
        fields = signed(fields, request.body, self.access_key, self.secret_key)
        return msgspec.structs.replace(request, ext_fields=fields)
