# SPDX-License-Identifier: Apache-2.0
"""Keys of a named profile in AWS's shared credentials file, which obstore does not read and delta-rs does.

Read once, into the environment, so that both libraries go by the same keys: those that stand in the file. Where they
come from elsewhere (SSO, a role, a program), AWS's own tool gives them.

Source: AWS SDKs and Tools Reference Guide, "Shared config and credentials files".
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from schemas.errors import SetupError

_KEYS: Final = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
}


def profile_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables to set besides.

    Args:
        environ: None are found where it has keys, or names neither AWS_PROFILE nor AWS_SHARED_CREDENTIALS_FILE.

    Raises:
        SetupError: There is no such profile with keys.
    """
    named = "AWS_PROFILE" in environ or "AWS_SHARED_CREDENTIALS_FILE" in environ
    if "AWS_ACCESS_KEY_ID" in environ or not named:
        return {}
    profile = environ.get("AWS_PROFILE", "default")
    file = Path(environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    config = Path(environ.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser()
    says = _section(file, profile) | _section(config, profile if profile == "default" else f"profile {profile}")
    found = {variable: says[key] for key, variable in _KEYS.items() if key in says}
    if not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= found.keys():
        raise SetupError(
            f"{file} has no keys of AWS's profile {profile}. If the keys come from SSO or a role, run: "
            f'eval "$(aws configure export-credentials --profile {profile} --format env)"'
        )
    if "region" in says and "AWS_REGION" not in environ and "AWS_DEFAULT_REGION" not in environ:
        found["AWS_REGION"] = says["region"]
    return found


def _section(file: Path, name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read(file, encoding="utf-8")
    except (configparser.Error, OSError, ValueError) as error:
        raise SetupError(f"{file} cannot be read: {type(error).__name__}.") from error
    return dict(parser[name]) if parser.has_section(name) else {}
