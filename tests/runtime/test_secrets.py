# SPDX-License-Identifier: Apache-2.0
"""References to secrets: what they lead to, and why to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.secrets import EMPTY, NO_TEXT, NOT_SET, SecretError, read, reference_of, resolve


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
        ("env", "NONE", NOT_SET),
        ("env", "EMPTY", EMPTY),
        ("file", str(tmp_path / "none"), "No such file or directory"),
        ("file", str(tmp_path), "Is a directory"),
        ("file", str(tmp_path / "empty"), EMPTY),
        ("file", str(tmp_path / "binary"), NO_TEXT),
    ):
        with pytest.raises(SecretError) as found:
            read(kind, name, {"EMPTY": ""})
        assert (found.value.kind, found.value.name, found.value.why) == (kind, name, why)


def test_a_password_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert resolve(f"file:{tmp_path / 'empty'}", "the password") == ""
    assert resolve("", "the password") == ""
