# SPDX-License-Identifier: Apache-2.0
"""Blocks about results: `outcomes` and `reasons` of writes, `remarks` over remoting, `exit-codes` of processes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from dev.reference.markdown import code, prose, sentence, table
from dev.reference.options import commands
from dev.reference.source import constants, module, product_modules, template
from schemas.codes import ResponseCode
from security.policy import REASONS

_CODES: Final = {
    "RefusedError": ResponseCode.SYSTEM_ERROR,
    "BadRequestError": ResponseCode.SYSTEM_ERROR,
    "TooLargeError": ResponseCode.SYSTEM_ERROR,
    "NotFoundError": ResponseCode.QUERY_NOT_FOUND,
    "UnavailableError": ResponseCode.SYSTEM_BUSY,
    "InDoubtError": ResponseCode.SYSTEM_BUSY,
}
"""Error -> code of the answer, unless the error has its own."""
_ANSWERING: Final = ("remoting/codec", "api/remoting", "api/gateway", "nameserver", "security/admission")


def outcomes() -> str:
    """Return the outcomes of writes."""
    return table(("outcome", "meaning"), _texts(str.islower))


def reasons() -> str:
    """Return the reasons for which the state machine rejects a command."""
    return table(("reason", "meaning"), _texts(str.isupper))


def access_reasons() -> str:
    """Return the reasons for which access is refused."""
    return ", ".join(map(code, REASONS)) + "."


def remarks() -> str:
    """Return the remarks of refusals over remoting. A part in braces is filled in for each answer."""
    found = set()
    for path, tree in product_modules():
        if str(path).startswith(_ANSWERING):
            known = {one.name: text for one in constants(tree) if (text := template(one.value))}
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and (remark := _remark(node, known)) is not None:
                    found.add(remark)
    return table(("remark", "code"), ((code(text), name) for text, name in sorted(found)))


def exit_codes() -> str:
    """Return the exit codes of every command, then what single commands add."""
    rows = [
        (str(ast.literal_eval(one.value)), one.text)
        for one in constants(module("runtime/process.py"))
        if one.name.startswith("EXIT_")
    ]
    own = (
        (f"`{name}`", sentence(found[0]))
        for name, command in commands()
        if (found := re.findall(r"Exit code:? [^\n]*?(?=\.(?:\s|$))", " ".join((command.help or "").split())))
    )
    return (
        table(("exit code", "meaning"), rows) + "\nSome commands say more:\n\n" + table(("command", "exit codes"), own)
    )


def _texts(is_kind: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    for one in constants(module("schemas/outcomes.py")):
        value = ast.literal_eval(one.value)
        if is_kind(value):
            yield code(value), prose(one.text)


def _remark(call: ast.Call, known: Mapping[str, str]) -> tuple[str, str] | None:
    """Return remark and code of a call that refuses a request.

    Args:
        call: Any call.
        known: Texts that the module gives names to.
    """
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "response" and len(call.args) > 1:
        given, said = call.args[0], call.args[1]
    elif name in _CODES and call.args:
        given, said = next((one.value for one in call.keywords if one.arg == "code"), call.args[0]), call.args[0]
    else:
        return None
    text = known.get(said.id) if isinstance(said, ast.Name) else template(said)
    if not text or text.startswith("{"):
        return None
    found = given.attr if isinstance(given, ast.Attribute) and given.attr in ResponseCode.__members__ else ""
    code_ = ResponseCode[found] if found else _CODES.get(name, ResponseCode.SYSTEM_ERROR)
    return text.strip(), f"{code_.value} {code_.name}"
