# SPDX-License-Identifier: Apache-2.0
"""What is planted fits the modules that it is planted into: a name that is gone would be another defect, found for the wrong reason."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap

import pytest

from dev.fault_injection.planted.sitecustomize import FOUND_BY, MUTANTS, PLANTS
from dev.fault_injection.rules import OF_THE_RUN, RULES


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


def test_each_defect_has_the_rule_that_finds_it() -> None:
    assert FOUND_BY.keys() == MUTANTS.keys()
    assert set(FOUND_BY.values()) <= {rule.__name__ for rule in RULES} - OF_THE_RUN
