# SPDX-License-Identifier: Apache-2.0
"""Keys of a profile in AWS's shared credentials file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake.store import profile_keys
from schemas.errors import SetupError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b%c\n"
        "[prod]\naws_access_key_id=p\naws_secret_access_key=q\naws_session_token=r\n"
    )
    (tmp_path / "config").write_text("[profile prod]\nregion = eu-central-1\n[profile sso]\nsso_session = x\n")
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }


def test_a_profile_gives_keys_and_region(environ: dict[str, str]) -> None:
    assert profile_keys(environ) == {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b%c"}
    found = profile_keys({**environ, "AWS_PROFILE": "prod"})
    assert found.pop("AWS_REGION") == "eu-central-1"
    assert found == {"AWS_ACCESS_KEY_ID": "p", "AWS_SECRET_ACCESS_KEY": "q", "AWS_SESSION_TOKEN": "r"}
    assert "AWS_REGION" not in profile_keys({**environ, "AWS_PROFILE": "prod", "AWS_REGION": "us-east-1"})


def test_what_the_environment_says_comes_first(environ: dict[str, str]) -> None:
    assert profile_keys({**environ, "AWS_PROFILE": "prod", "AWS_ACCESS_KEY_ID": "z"}) == {}
    assert profile_keys({}) == {}


@pytest.mark.parametrize("profile", ["sso", "none"])
def test_a_profile_without_keys_is_refused_with_the_way_out(environ: dict[str, str], profile: str) -> None:
    with pytest.raises(SetupError, match=f"aws configure export-credentials --profile {profile} --format env"):
        profile_keys({**environ, "AWS_PROFILE": profile})


def test_a_file_that_is_none_is_refused_without_what_it_says(environ: dict[str, str]) -> None:
    Path(environ["AWS_SHARED_CREDENTIALS_FILE"]).write_text("secret without a section\n")
    with pytest.raises(SetupError, match="cannot be read") as refused:
        profile_keys(environ)
    assert "secret" not in str(refused.value)
