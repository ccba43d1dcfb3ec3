# SPDX-License-Identifier: Apache-2.0
"""What --tls options mean before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.gateway_options import Encryption
from dev.support.certificates import Authority
from schemas.errors import SetupError

PAIR = {"cert": "tls.pem", "key": "tls.key"}


@pytest.mark.parametrize(
    ("options", "enforced", "knows_clients"),
    [
        ({}, False, False),
        (PAIR, False, False),
        ({**PAIR, "mode": "enforcing"}, True, False),
        ({**PAIR, "client_ca": "ca.pem"}, False, False),
        ({**PAIR, "client_ca": "ca.pem", "client_auth": "optional", "mode": "enforcing"}, True, False),
        ({**PAIR, "client_ca": "ca.pem", "mode": "enforcing"}, True, True),
    ],
)
def test_encryption_demands_certificates_only_if_it_is_enforced(
    options: dict[str, Any], enforced: bool, knows_clients: bool
) -> None:
    """Beyond this machine a client certificate is enough. Encryption alone authenticates no client."""
    found = Encryption(**options)
    assert (found.is_enforced, found.knows_clients) == (enforced, knows_clients)


def test_the_files_are_tried(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue()
    Encryption(cert=str(pair.cert), key=str(pair.key)).check()
    Encryption().check()
    with pytest.raises(SetupError, match="cannot be read"):
        Encryption(cert=str(pair.cert), key=str(tmp_path / "none")).check()


def test_a_file_that_is_no_properties(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="--tls-config .*none: No such file"):
        Encryption(config=tmp_path / "none").settings()
    (tmp_path / "tls.properties").write_bytes(b"tls.server.mode=\\u12\n")
    with pytest.raises(SetupError, match=r"tls\.properties"):
        Encryption(config=tmp_path / "tls.properties").settings()
