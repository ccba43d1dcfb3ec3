# SPDX-License-Identifier: Apache-2.0
"""A gateway does not listen beyond this machine by accident, with access for all."""

from __future__ import annotations

import pytest

from cli.preflight import Listen, check_exposed, is_beyond
from schemas.errors import SetupError

HERE, EVERYWHERE = Listen("127.0.0.1", 1), Listen("0.0.0.0", 2)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_addresses_are_not_exposed(host: str) -> None:
    assert not is_beyond(Listen(host, 9876))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "192.0.2.1", "no-such-host.invalid"])
def test_other_addresses_are_exposed(host: str) -> None:
    assert is_beyond(Listen(host, 9876))


@pytest.mark.parametrize("insecure", [False, True])
@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize(("http", "remoting"), [(HERE, HERE), (EVERYWHERE, HERE), (HERE, EVERYWHERE)])
def test_an_exposed_listener_needs_authentication_or_insecure(
    http: Listen, remoting: Listen, asks: bool, insecure: bool
) -> None:
    def check() -> None:
        check_exposed(http, remoting, remoting_asks=asks, http_asks=asks, insecure=insecure)

    if asks or insecure or http == remoting:
        check()
        return
    option = "--http" if http is EVERYWHERE else "--remoting"
    with pytest.raises(SetupError, match=rf"{option} 0.0.0.0:2 can be reached from other machines.*--insecure"):
        check()
