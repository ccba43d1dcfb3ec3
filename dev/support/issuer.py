# SPDX-License-Identifier: Apache-2.0
"""An OpenID Connect issuer of a test's own: discovery and keys over HTTP, and tokens."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

AUDIENCE = "routelake"


class Issuer:
    """`with` starts it.

    Attributes:
        asked: Paths, in order.
        is_down: Whether it answers 503.
    """

    def __init__(self) -> None:
        self._keys: dict[str, Any] = {}
        self.asked: list[str] = []
        self.is_down = False
        self.rotate("first")

    def rotate(self, kid: str, *, elliptic: bool = False) -> None:
        """From now on it has this key alone."""
        key: Any = ec.generate_private_key(ec.SECP256R1()) if elliptic else rsa.generate_private_key(65537, 2048)
        self._keys = {kid: key}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def token(self, scope: object = "routelake:reader", *, key: Any = None, **claims: Any) -> str:
        """A JWT; a claim that is None is left out."""
        ((kid, its_key),) = self._keys.items()
        payload = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "alice",
            "exp": int(time.time()) + 600,
            "scope": scope,
            **claims,
        }
        key = its_key if key is None else key
        algorithm = "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256"
        said = {name: value for name, value in payload.items() if value is not None}
        return jwt.encode(said, key, algorithm, headers={"kid": kid})

    def document(self, path: str) -> Any:
        """Return the document that the issuer answers for a path."""
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        listed: list[Any] = [{"kty": "oct", "kid": "shared", "k": "c2hhcmVkLXNlY3JldA"}, {"kty": "none"}, 7]
        for kid, key in self._keys.items():
            kind = "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256"
            made = jwt.get_algorithm_by_name(kind).to_jwk(key.public_key(), as_dict=True)
            listed.append({**made, "kid": kid, "use": "sig"})
        return {"keys": listed}

    def __enter__(self) -> Self:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                body = json.dumps(issuer.document(self.path)).encode()
                self.send_response(503 if issuer.is_down else 200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
