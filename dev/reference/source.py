# SPDX-License-Identifier: Apache-2.0
"""Facts that are read from the product's source text: its files, texts with placeholders, documented constants."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Final, NamedTuple

from dev.docs import ROOT

PRODUCT: Final = (
    *("api", "cli", "clients", "eventlog", "lake", "nameserver", "ops", "pipelines", "remoting", "runtime", "schemas"),
    "security",
)
"""Packages of the product."""


class Constant(NamedTuple):
    """A constant of a module with the text below it."""

    name: str
    value: ast.expr
    text: str


@cache
def product_modules() -> tuple[tuple[Path, ast.Module], ...]:
    """Every module of the product with its syntax tree; paths are relative to the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *(f"{name}/*.py" for name in PRODUCT)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    paths = [Path(name) for name in sorted(listed) if (ROOT / name).exists()]
    return tuple((path, ast.parse((ROOT / path).read_text(encoding="utf-8"))) for path in paths)


def module(path: str) -> ast.Module:
    """Return the syntax tree of one module of the product."""
    return dict(product_modules())[Path(path)]


def template(node: ast.expr | None) -> str | None:
    """Return the text of an expression; a part that is computed is a name in braces. None: it is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(template(value) or "" for value in values)
        case ast.FormattedValue(value=value):
            return f"{{{_name(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = template(left), template(right)
            return None if None in parts else "".join(part or "" for part in parts)
        case _:
            return None


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lower().strip("_")
        case ast.Call(func=ast.Name(id="len"), args=[argument]):
            return f"size of {_name(argument)}"
        case ast.Call(func=ast.Name(id="str" | "repr" | "ascii" | "one_line"), args=[argument]):
            return _name(argument)
        case ast.Call(func=func):
            return _name(func)
        case ast.Subscript(value=value):
            return _name(value)
        case ast.BinOp(left=left):
            return _name(left)
        case _:
            return "..."


def constants(tree: ast.Module) -> Iterator[Constant]:
    """Constants of a module, in its order; the text is the string below one, empty without it."""
    for statement, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            text = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                text = cleandoc(str(following.value.value))
            yield Constant(statement.target.id, statement.value, text)


def attribute_texts(docstring: str) -> dict[str, str]:
    """Return the texts of the section Attributes of a docstring by the names of the attributes."""
    found: dict[str, str] = {}
    name = ""
    _, _, section = cleandoc(docstring).partition("Attributes:\n")
    for line in section.splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < 4:
            break
        if indent == 4:
            name, _, text = line.strip().partition(": ")
            found[name] = text
        elif line.strip():
            found[name] += " " + line.strip()
    return found


def used_names(pattern_prefix: str) -> dict[str, list[str]]:
    """Return the text constants of the product that begin so, each with the modules that have it."""
    found: dict[str, list[str]] = {}
    for path, tree in product_modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(pattern_prefix):
                found.setdefault(node.value, []).append(str(path))
    return found
