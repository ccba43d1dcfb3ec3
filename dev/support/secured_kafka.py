# SPDX-License-Identifier: Apache-2.0
"""A real Kafka that asks who comes, and files of client properties for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from dev.peers.kafka import Kafka, Secured
from dev.support.certificates import Authority

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

_PATIENT: Final = {"broker.session.timeout.ms": "9000"}
"""Kafka's own default. With less, the controller takes the partitions from a broker that a busy machine stops for a moment."""


@contextmanager
def secured_kafka(authority: Authority, folder: Path) -> Iterator[Kafka]:
    """SASL_SSL (SCRAM-SHA-512, PLAIN) for user gate with password right, SSL for clients with a certificate, PLAINTEXT."""
    server = authority.issue("kafka", is_rsa=True)
    keystore = folder / "server.pem"
    keystore.write_bytes(server.key.read_bytes() + server.cert.read_bytes() + authority.path.read_bytes())
    with Kafka(_PATIENT, Secured(keystore, authority.path, {"gate": "right"})) as running:
        yield running


def fixtures(scope: Literal["session", "module"]) -> tuple[Any, Any]:
    """The fixtures ``authority``, who signs the certificates of a Kafka and of its clients, and ``kafka``, that one."""

    @pytest.fixture(scope=scope)
    def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
        return Authority(tmp_path_factory.mktemp("kafka-ca"))

    @pytest.fixture(scope=scope)
    def kafka(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
        with secured_kafka(authority, tmp_path_factory.mktemp("kafka")) as running:
            yield running

    return authority, kafka


class Properties:
    """Writes files of client properties: of the user with its password, over TLS, with changes.

    Args:
        folder: Folder for the files.
        authority: Authority that signed the broker's certificate.
    """

    def __init__(self, folder: Path, authority: Authority) -> None:
        self._folder = folder
        self._authority = authority

    def __call__(self, **changes: object) -> Path:
        """`__` in a name stands for a dot; None leaves a property out."""
        given: dict[str, object] = {
            "security__protocol": "SASL_SSL",
            "sasl__mechanism": "SCRAM-SHA-512",
            "sasl__jaas__config": f'{SCRAM} required username="gate" password="right";',
            "ssl__truststore__type": "PEM",
            "ssl__truststore__location": self._authority.path,
            **changes,
        }
        lines = [f"{name.replace('__', '.')}={value}\n" for name, value in given.items() if value is not None]
        file = self._folder / f"{uuid.uuid4().hex}.properties"
        file.write_text("".join(lines))
        return file
