# SPDX-License-Identifier: Apache-2.0
"""What a gateway is told of TLS: the file of --tls-config, read, and the options beside it."""

from __future__ import annotations

from pathlib import Path

from schemas.errors import SetupError
from schemas.properties import PropertiesError, parse_file
from security.tls_config import TlsOptions, TlsSettings, tls_settings


def read_tls(config: Path | None, options: TlsOptions) -> TlsSettings | None:
    """Settings from RocketMQ's tls.properties and the command line, which wins.

    Args:
        config: None: there is no file.
        options: Of the command line.

    Returns:
        None: nothing is encrypted.

    Raises:
        SetupError: They cannot be read, or do not go together.
    """
    properties: dict[str, str] = {}
    if config is not None:
        try:
            properties = {entry.key: entry.value for entry in parse_file(config.read_bytes())}
        except OSError as error:
            raise SetupError(
                f"--tls-config {config}: {error.strerror or error}. "
                "Name a RocketMQ tls.properties, or leave the option out."
            ) from error
        except PropertiesError as error:
            raise SetupError(f"{config}: {error}.") from error
    return tls_settings(properties, "" if config is None else str(config), options)
