# SPDX-License-Identifier: Apache-2.0
"""The command that messages name: `./routelake` in a clone. tests/deploy/test_wheel.py has that of an installed wheel."""

from __future__ import annotations

import ast

from dev.reference.source import product_modules
from runtime.version import PROGRAM


def test_the_command_of_a_clone() -> None:
    assert PROGRAM == "./routelake"


def test_no_message_has_the_command_of_a_clone_in_its_text() -> None:
    for path, tree in product_modules():
        documentation = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        texts = [
            (node.lineno, node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
        ]
        found = [(line, text) for line, text in texts if "./routelake " in text]
        assert not found, f"{path}: write {{PROGRAM}} of runtime.version: {found}"
