# SPDX-License-Identifier: Apache-2.0
"""Conversion of bytes to checked values: strict JSON, and field errors with paths.

JSON is read strictly. A duplicate key, NaN, Infinity, a lone surrogate, or a number with too many digits is refused.
Models are strict (`api.http.models`): a string is not taken for a number, 1.0 is not taken for an integer, and an
unknown field is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from api.http.answers import FieldProblem
from api.http.problems import BAD_BODY, BAD_PARAMETER, BAD_REQUEST, TOO_LARGE, Problem, fields_problem

MAX_ERRORS: Final = 50
"""Maximum number of errors in an answer."""

MAX_JSON_VALUES: Final = 5_000_000
"""Maximum number of keys and elements. A registration of 100,000 topics has about 1,000,000, of some 100 bytes each."""

_LARGE: Final = 1024 * 1024
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_%|-]+")
_SHOWN: Final = 80

_M = TypeVar("_M", bound=BaseModel)


class _DuplicateKeyError(ValueError):
    """A key that occurs twice in one object."""


class _ConstantError(ValueError):
    """NaN, Infinity or -Infinity."""


def parse_json(data: bytes) -> object:
    """Parse strict JSON.

    Raises:
        Problem: The data is not strict JSON. The detail names the place.
    """
    if not data:
        raise Problem(BAD_REQUEST, "the body is empty; a JSON object is expected")
    if len(data) > _LARGE and data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_JSON_VALUES:
        raise Problem(TOO_LARGE, f"the body holds more than {MAX_JSON_VALUES} values")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
        if b"\\u" in data:
            msgspec.json.encode(value)  # raises for half of a surrogate pair, which is not text
    except UnicodeEncodeError:
        raise Problem(BAD_REQUEST, "not JSON: an escape stands for half a character (a lone surrogate)") from None
    except UnicodeDecodeError as error:
        raise Problem(BAD_REQUEST, f"the body is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise Problem(BAD_REQUEST, f"not JSON: {error}") from None
    except _DuplicateKeyError as error:
        raise Problem(BAD_REQUEST, f"not JSON: the key {_shown(str(error))} occurs twice in one object") from None
    except RecursionError:
        raise Problem(BAD_REQUEST, "not JSON: nested too deeply") from None
    except _ConstantError as error:
        raise Problem(BAD_REQUEST, f"not JSON: {error} is not a number") from None
    except ValueError:  # sys.set_int_max_str_digits
        raise Problem(BAD_REQUEST, "a number has thousands of digits") from None
    return value


def decode(data: bytes, model: type[_M]) -> _M:
    """Decode a body into a model.

    Raises:
        Problem: The body is not JSON, or breaks rules of the model. The problem lists every broken rule.
    """
    value = parse_json(data)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise fields_problem(BAD_BODY, _field_problems(found, "field")) from None


def parameter_problem(errors: Sequence[Any]) -> Problem:
    """Return the problem for parameters that FastAPI found wrong."""
    return fields_problem(BAD_PARAMETER, _field_problems(errors, "parameter", start=1))


def _field_problems(errors: Sequence[Any], what: str, start: int = 0) -> list[FieldProblem]:
    """Return Pydantic's errors as field paths, from ``start`` on, and sentences."""
    return [
        FieldProblem(field=path_of(error["loc"][start:]), message=_message(error, what))
        for error in errors[:MAX_ERRORS]
    ]


def path_of(loc: Sequence[str | int]) -> str:
    """Return ``("a", "b/c", 0, "d")`` as ``a["b/c"][0].d``. Pydantic's mark for a key itself is left out."""
    path = ""
    for part in loc:
        if part == "[key]":
            continue
        if isinstance(part, int):
            path += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            path += f".{part}" if path else part
        else:
            path += f"[{_shown(part)}]"
    return path


_MESSAGES: Final = {
    "missing": "is required",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "list_type": "must be an array",
}


def _message(error: Mapping[str, Any], what: str) -> str:
    kind: str = error["type"]
    context = error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"there is no such {what}"
    if kind in _MESSAGES:
        return _MESSAGES[kind]
    if kind == "greater_than_equal":
        return f"must be {context['ge']} or more"
    if kind == "less_than_equal":
        return f"must be {context['le']} or less"
    if kind == "literal_error":
        return f"must be {context['expected']}"
    if kind == "value_error":
        return str(context["error"])
    return str(error["msg"])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(key)
            seen.add(key)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise _ConstantError(name)


def _shown(text: str) -> str:
    """Return foreign text for use in a message: quoted, escaped and bounded."""
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return json.dumps(cut)
