# SPDX-License-Identifier: Apache-2.0
"""References to secrets: what they lead to, and why to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.secrets import SecretError, read, reference_of, resolve
from schemas.errors import SetupError


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("file:a:b", ("file", "a:b")),
        ("env:NAME", ("env", "NAME")),
        ("file", None),
        ("hunter2", None),
        ("files:a", None),
    ],
)
def test_a_reference_to_a_secret_is_recognized(text: str, reference: tuple[str, str] | None) -> None:
    assert reference_of(text) == reference


def test_a_secret_is_read_from_a_file_or_a_variable(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    for written, secret in ((b" a b \r\n", " a b "), (b"a\n\n", "a\n"), ("é".encode(), "é")):
        path.write_bytes(written)
        assert read("file", str(path)) == secret
    assert read("env", "KEY", {"KEY": "word"}) == "word"


def test_an_error_names_the_secret_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for kind, name, why in (
        ("env", "NONE", "the environment variable NONE is not set"),
        ("env", "EMPTY", "EMPTY is empty"),
        ("file", str(tmp_path / "none"), f"{tmp_path}/none cannot be read: No such file or directory"),
        ("file", str(tmp_path), f"{tmp_path} cannot be read: Is a directory"),
        ("file", str(tmp_path / "empty"), f"{tmp_path}/empty is empty"),
        ("file", str(tmp_path / "binary"), f"{tmp_path}/binary is not UTF-8 text"),
    ):
        with pytest.raises(SecretError) as found:
            read(kind, name, {"EMPTY": ""})
        assert str(found.value) == why


def test_a_password_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert resolve(f"file:{tmp_path / 'empty'}", "the password", may_be_empty=True) == ""
    assert resolve("", "the password") == ""
    with pytest.raises(SetupError, match="empty is empty"):
        resolve(f"file:{tmp_path / 'empty'}", "the token")
