# SPDX-License-Identifier: Apache-2.0
"""A YAML file as tables of text, each value with its line: `no` and `007` mean what is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import yaml

_MAX_CHARACTERS: Final = 4 * 1024 * 1024


class FileError(ValueError):
    """Error in a file, with its place; holds no value of the file."""


class Value(NamedTuple):
    """A value and the line, from 1, on which it begins. Null is ""."""

    line: int
    text: str | None = None
    items: tuple[Value, ...] | None = None
    table: Mapping[str, Value] | None = None


def read_yaml(text: str) -> Value:
    """The only document of a file; an empty file is an empty table.

    Raises:
        FileError: The text is no YAML, has a key twice, or an alias.
    """
    if len(text) > _MAX_CHARACTERS:
        raise FileError(f"larger than {_MAX_CHARACTERS} characters")
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AliasToken | yaml.AnchorToken):
                raise FileError(f"line {token.start_mark.line + 1}: anchors and aliases are not taken")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return Value(1, table={}) if node is None else _value(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FileError(f"line {mark.line + 1 if mark else 1}: no YAML: {error.problem or error.context}") from None
    except yaml.YAMLError:
        raise FileError("no YAML: it holds a character that YAML forbids") from None
    except RecursionError:
        raise FileError("no YAML that is meant for this: nested too deep") from None


def _value(node: yaml.Node) -> Value:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        is_null = node.tag == "tag:yaml.org,2002:null"
        return Value(line, "" if is_null else node.value)
    if isinstance(node, yaml.SequenceNode):
        return Value(line, items=tuple(_value(item) for item in node.value))
    table: dict[str, Value] = {}
    for key, value in node.value:
        at = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise FileError(f"line {at}: a key that is no text")
        if key.value in table:
            raise FileError(f"line {at}: {key.value!r} is there twice")
        table[key.value] = _value(value)._replace(line=at)
    return Value(line, table=table)
