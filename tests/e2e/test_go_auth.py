# SPDX-License-Identifier: Apache-2.0
"""The Go client 2.1.2 with credentials: its signature is an account's, a wrong one and none are refused.

No broker is needed: a client with permission finds the route, and then no listener at the broker's address.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dev.model import codes
from dev.support.accounts import accounts_file, policy, sign
from dev.support.local import LocalLake
from security.policy import AuthMode
from tests.examples.parts import T1, A, register

pytestmark = [pytest.mark.deep, pytest.mark.timeout(900)]

NOBODY = "127.0.0.1:1"
NO_ROUTE = "route info not found"


def test_the_signature_of_the_go_client_is_accepted(tmp_path: Path, go_client: Path) -> None:
    with (
        LocalLake(tmp_path, folds=False) as lake,
        lake.gateway(policy=policy(AuthMode.ENFORCE), accounts=accounts_file(tmp_path)) as gateway,
        gateway.connect() as client,
    ):
        assert client.call(sign(register(A, NOBODY).request(), "broker")).code == codes.SUCCESS

        def said_with(*keys: str) -> str:
            command = [str(go_client), "-namesrv", f"127.0.0.1:{gateway.port}", "-topic", T1, "-within", "10s", *keys]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 1, done.stdout
            return done.stdout + done.stderr

        right = said_with("-access-key", "reader", "-secret-key", "of-reader")
        print(right)
        assert NO_ROUTE not in right
        assert NOBODY in right
        for keys in (("-access-key", "reader", "-secret-key", "wrong"), ("-access-key", "who", "-secret-key", "x"), ()):
            assert NO_ROUTE in said_with(*keys), keys
        refused = {
            sample.labels["reason"]: sample.value
            for family in gateway.parts.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "routelake_auth_refused_total"
        }
        assert refused.keys() == {"bad-signature", "unknown-key", "anonymous"}, refused
