# SPDX-License-Identifier: Apache-2.0
"""A gateway that asks who somebody is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from security.policy import AuthMode
from security.tls_rotation import Tls
from tests.model.client import RemotingClient
from tests.support.accounts import ACCOUNTS, accounts_file, policy
from tests.support.local import LocalGateway, LocalLake


@contextmanager
def a_gateway(
    folder: Path, mode: AuthMode = AuthMode.ENFORCE, text: str = ACCOUNTS, tls: Tls | None = None, **more: Any
) -> Iterator[tuple[LocalGateway, RemotingClient]]:
    with (
        LocalLake(folder, folds=False) as lake,
        lake.gateway(policy=policy(mode, **more), accounts=accounts_file(folder, text), tls=tls) as gateway,
        gateway.connect() as client,
    ):
        yield gateway, client
