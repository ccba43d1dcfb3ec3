# SPDX-License-Identifier: Apache-2.0
"""``sasl.jaas.config``: one login module and its options, in the form of Java's JAAS. Pure.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="gateway" password="file:/run/secret";

Source (Kafka 4.3): org.apache.kafka.common.security.JaasConfig, which reads words as java.io.StreamTokenizer does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from eventlog.kafka.access.errors import AccessError

_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_OPTION: Final = re.compile(rf"\s+([A-Za-z][\w.-]*)\s*=\s*({_QUOTED}|[^\s;\"]+)")
_BEGIN: Final = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)(?=[\s;])", re.IGNORECASE)
_END: Final = re.compile(r"\s*;\s*")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}

FORM: Final = 'MODULE required name="value" ...;'


class Login(NamedTuple):
    """``module`` is the class's own name, without its package."""

    module: str
    options: Mapping[str, str]


def parse(text: str, where: str) -> Login:
    """Read the one entry.

    Args:
        text: The value.
        where: File and key, for messages, which never show the text: it holds a password.

    Raises:
        AccessError: It has another form, or more than one module.
    """
    begin = _BEGIN.match(text)
    if begin is None:
        raise AccessError(f"{where} does not have the form {FORM}")
    options, at = {}, begin.end()
    while (option := _OPTION.match(text, at)) is not None:
        options[option[1]] = _bare(option[2])
        at = option.end()
    end = _END.match(text, at)
    if end is None:
        after = f"after {list(options)[-1]}" if options else "after its module"
        raise AccessError(f"{where} cannot be read {after}: it does not have the form {FORM}")
    if end.end() != len(text):
        raise AccessError(f"{where} names more than one login module. Keep only one.")
    return Login(begin[1].rpartition(".")[2], options)


def _bare(word: str) -> str:
    if not word.startswith('"'):
        return word
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), word[1:-1])
