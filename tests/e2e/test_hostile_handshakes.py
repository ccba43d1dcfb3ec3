# SPDX-License-Identifier: Apache-2.0
"""1,000 TLS handshakes a second from one address, which cost it nothing: 300 brokers over TLS do not notice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dev.peers.routelake import Routelake
from dev.support.certificates import Authority
from tests.e2e.hostile import SHORT_S, over_quotas, processor_s
from tests.e2e.quota_attacks import shaking_hands
from tests.e2e.quota_peers import Peers, Seen, alone, honest

pytestmark = pytest.mark.deep

PER_S = 1_000
QUOTA_PER_S, AT_ONCE = 200, 4_000
MINUTE_S = 60.0


@pytest.mark.parametrize("during_s", [SHORT_S, MINUTE_S])
def test_a_flood_of_tls_handshakes_does_not_slow_other_clients(tmp_path: Path, during_s: float) -> None:
    authority = Authority(tmp_path / "certificates")
    pair = authority.issue(is_rsa=True)
    gateway = Routelake(tmp_path / "data", "gateway", ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key)))
    gateway.start(wait_ready_s=None)
    try:
        gateway.wait_listening()
        before = alone(gateway.remoting_port, min(30.0, during_s), str(authority.path))
        with Peers(honest, gateway.remoting_port, str(authority.path)) as fleet:
            had_s, began_s = processor_s(gateway), time.monotonic()
            with Peers(shaking_hands, gateway.remoting_port, str(PER_S)) as attack:
                time.sleep(during_s)
            took_s = time.monotonic() - began_s
            ran_s, waited_s = (now - then for now, then in zip(processor_s(gateway), had_s, strict=True))
            found = over_quotas(gateway)
    finally:
        gateway.stop()
    seen: Seen = fleet.saw
    tried, answered = attack.saw
    print(
        f"{seen.answers} honest answers, p99 {before.p99s_ms} ms before, {seen.p99s_ms} ms meanwhile; {tried / took_s:.0f} handshakes a second, of {tried} {answered} answered; refused {found}"
    )
    print(f"the gateway had {ran_s:.1f} s of processor, and waited {waited_s:.1f} s for it")
    seen.check()
    assert answered <= AT_ONCE + QUOTA_PER_S * took_s
    if tried > 2 * AT_ONCE:
        assert found["tls-handshakes-per-s"] > 0
    if during_s >= MINUTE_S:
        seen.check_against(before)
