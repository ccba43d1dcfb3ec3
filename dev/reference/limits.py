# SPDX-License-Identifier: Apache-2.0
"""Blocks about limits: `limits-events`, `quotas` of one peer, `limits-http` and `limits-remoting` of the listeners."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from inspect import cleandoc

from api.http.settings import HttpSettings
from dev.reference.markdown import code, prose, table
from dev.reference.source import attribute_texts, constants, module
from remoting.server.settings import RemotingSettings
from security.quotas import FIELDS, Quotas, Rate


def events() -> str:
    """Return the limits of events and of the KV table."""
    rows = (
        (code(one.name), _amount(one.name, _number(one.value)), prose(one.text))
        for one in constants(module("schemas/limits.py"))
    )
    return table(("limit", "value", "meaning"), rows)


def quotas() -> str:
    """Return the quotas of one peer with their defaults."""
    texts, defaults = attribute_texts(Quotas.__doc__ or ""), Quotas()
    rows = ((name, code(_quota(getattr(defaults, field))), texts[field]) for name, field in FIELDS.items())
    return table(("NAME", "default", "limit"), rows)


def http() -> str:
    """Return the limits of the HTTP listener that are the same for all peers together."""
    texts, defaults = attribute_texts(HttpSettings.__doc__ or ""), HttpSettings()
    rows = (
        (code(field.name), _amount(field.name, value), texts[field.name])
        for field in dataclasses.fields(HttpSettings)
        if isinstance(value := getattr(defaults, field.name), int | float) and not isinstance(value, bool)
    )
    return table(("limit", "value", "meaning"), rows)


def remoting() -> str:
    """Return the limits of the remoting listener that are the same for all peers together."""
    defaults = RemotingSettings()
    rows = (
        (code(name), _amount(name, value), prose(text))
        for name, text in _documented_fields(module("remoting/server/settings.py"), "RemotingSettings")
        if isinstance(value := getattr(defaults, name), int | float) and not isinstance(value, bool) and text
    )
    return table(("limit", "value", "meaning"), rows)


def _documented_fields(tree: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    """Fields of a class with the strings below them."""
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    for statement, following in zip(found.body, [*found.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            text = cleandoc(str(following.value.value)) if is_text else ""  # type: ignore[union-attr]
            yield statement.target.id, text


def _number(node: ast.expr) -> float:
    """Value of a number or a product of numbers."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _number(left) * _number(right)
        case _:
            raise ValueError(f"no number: {ast.unparse(node)}")


def _amount(name: str, value: float) -> str:
    """A number with its unit, which the name ends with."""
    name = name.lower()
    if name.endswith("_s") and not name.endswith("_per_s"):
        return f"{value:g} s"
    if "bytes" in name:
        for size, unit in ((1024**2, "MiB"), (1024, "KiB")):
            if value >= size and value % size == 0:
                return f"{value // size:g} {unit}" + ("/s" if name.endswith("_per_s") else "")
        return f"{value:,.0f} bytes"
    return f"{value:,.0f}"


def _quota(value: object) -> str:
    if isinstance(value, Rate):
        return f"{value.per_period:g}:{value.burst:.0f}"
    return "off" if value is None else str(value)
