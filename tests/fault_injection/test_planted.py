# SPDX-License-Identifier: Apache-2.0
"""What is planted fits the modules that it is planted into: a name that is gone would be another defect, found for the wrong reason."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap

import pytest

from dev.fault_injection.planted.sitecustomize import FOUND_BY, MUTANTS, PLANTS
from dev.fault_injection.rules import OF_THE_RUN, RULES
from dev.peers.routelake import ROOT


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_the_names_that_it_uses_are_there(name: str) -> None:
    module_name, plant = PLANTS[name]
    module = importlib.import_module(module_name)
    used = [
        node.attr
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(plant))))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "module"
    ]
    assert used
    assert [attribute for attribute in used if not hasattr(module, attribute)] == []


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_what_it_puts_in_place_of_a_function_takes_the_same_arguments(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_name, plant = PLANTS[name]
    module = importlib.import_module(module_name)
    tree = ast.parse(textwrap.dedent(inspect.getsource(plant)))
    before = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            root, *owner, attribute = ast.unparse(node).split(".")
            if root != "module":
                continue
            owns = getattr(module, owner[0]) if owner else module
            function = getattr(owns, attribute, None)
            monkeypatch.setattr(owns, attribute, function)  # put back in the end
            if callable(function):
                before.append((owns, attribute, function))
    plant(module)
    for owns, attribute, function in before:
        needed = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
        positional = [one for one in needed if one.kind is one.POSITIONAL_OR_KEYWORD]
        named = {one.name: None for one in needed if one.kind is one.KEYWORD_ONLY}
        inspect.signature(getattr(owns, attribute)).bind(*positional, **named)


def test_each_defect_has_the_rule_that_finds_it() -> None:
    assert FOUND_BY.keys() == MUTANTS.keys()
    assert set(FOUND_BY.values()) <= {rule.__name__ for rule in RULES} - OF_THE_RUN


def test_the_report_has_each_defect_with_the_rule_that_finds_it() -> None:
    report = (ROOT / "reports" / "fault-injection.md").read_text(encoding="utf-8")
    section = report.partition("\n## Planted defects\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z0-9-]+) \| [^|]+ \| ([^|]+) \|", section, re.MULTILINE)
    found_by = {name: set(re.findall(r"\([a-g]\)", rules)) for name, rules in rows if name != "defect"}
    assert sorted(found_by) == sorted(MUTANTS)
    letters = {rule.__name__: (rule.__doc__ or "")[:3] for rule in RULES}
    assert [name for name, rule in FOUND_BY.items() if letters[rule] not in found_by[name]] == []
