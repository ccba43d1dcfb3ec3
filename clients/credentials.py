# SPDX-License-Identifier: Apache-2.0
"""AccessKey and secretKey of a client, and the signature of requests (AclClientRPCHook of RocketMQ)."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from remoting.codec.frame import RemotingCommand
from security.signature import SECURITY_TOKEN, signed


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a client.

    Attributes:
        access_key: Name of the account.
        secret_key: Key of the signature. It is never sent or shown.
        security_token: Token that is sent with each request, or empty for none.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def sign(self, request: RemotingCommand) -> RemotingCommand:
        """Return a signed copy of a request. The request must not change afterwards."""
        fields = dict(request.ext_fields or {})
        if self.security_token:
            fields[SECURITY_TOKEN] = self.security_token
        fields = signed(fields, request.body, self.access_key, self.secret_key)
        return msgspec.structs.replace(request, ext_fields=fields)
