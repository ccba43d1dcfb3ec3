# SPDX-License-Identifier: Apache-2.0
"""A gateway that authenticates its clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dev.model.client import RemotingClient
from dev.support.accounts import ACCOUNTS, accounts_file, policy
from dev.support.local import LocalGateway, LocalLake
from security.policy import AuthMode
from security.tls_rotation import Tls


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
