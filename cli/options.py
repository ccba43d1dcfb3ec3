# SPDX-License-Identifier: Apache-2.0
"""Groups of options. Each option is declared once, as a field of a dataclass, and also has an environment variable.

A command has a parameter with the group as its type. `with_options` replaces that parameter by the options.

`check_path` refuses names of folders that the tables, the event log or Spark cannot use.
"""

from __future__ import annotations

import copy
import inspect
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, ParamSpec, TypeVar, get_args, get_type_hints

import typer
from typer import CallbackParam
from typer.core import TyperCommand
from typer.models import OptionInfo

from schemas.errors import SetupError

if TYPE_CHECKING:
    from typer._click.core import Context
    from typer._click.formatting import HelpFormatter


_MOST_BYTES_OF_NAME: Final = 255
_MOST_BYTES_OF_PATH: Final = 400
"""Maximum length of a path, in bytes. SQLite opens only paths up to about 490 bytes, with the suffixes of its files."""
_MOST_SHOWN: Final = 200
_NOT_PRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNUSABLE: Final = (
    (re.compile(r"[\ud800-\udfff]"), "has bytes that are not UTF-8, which Delta tables cannot be under"),
    (re.compile(r"[\x00-\x1f\x7f-\x9f]"), "has a control character, which Delta tables cannot be under"),
    (re.compile(r"\\"), "has a backslash, which Delta tables read as /"),
    (re.compile(r","), "has a comma, where Spark divides a list of folders"),
    (re.compile(r"[\[\]^|]"), "has one of [ ] ^ |, which delta-rs takes for a fault in a host's name"),
    (re.compile("%[0-9A-Fa-f]{2}"), "has a % with two digits, which Delta tables read as one character"),
)


def check_path(path: Path, option: str) -> None:
    """Refuse a folder if tables, event log or Spark cannot use its name, because they misread some characters.

    Args:
        path: Path of the folder. The targets of its links are checked too.
        option: Option that sets the path.

    Raises:
        SetupError: The name cannot be used.
    """
    try:
        places = (path.absolute(), path.resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise SetupError(f"{option} {_shown(path)} cannot be used: {_why(error)}. Choose another folder.") from error
    for place in places:
        what = next((why for pattern, why in _UNUSABLE if pattern.search(str(place))), None)
        if what is None and not str(place).isascii() and sys.getfilesystemencoding() != "utf-8":
            what = "has characters that this locale writes otherwise than UTF-8 does (set LC_ALL=C.UTF-8)"
        if what is None and any(len(os.fsencode(part)) > _MOST_BYTES_OF_NAME for part in place.parts):
            what = f"has a name of more than {_MOST_BYTES_OF_NAME} bytes"
        if what is None and len(os.fsencode(place)) > _MOST_BYTES_OF_PATH:
            what = (
                f"has more than {_MOST_BYTES_OF_PATH} bytes, and files in it would have longer names than SQLite opens"
            )
        if what is not None:
            via = "" if place == path else f", the path {_shown(place)},"
            raise SetupError(f"{option} {_shown(path)}{via} {what}. Choose another folder.")


def _shown(path: Path) -> str:
    """Return the path for a message of one line: escaped, and shortened if it is too long."""
    text = ascii(str(path)) if _NOT_PRINTABLE.search(str(path)) else repr(str(path))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


_P = ParamSpec("_P")
_R = TypeVar("_R")
_G = TypeVar("_G", bound="Options")

_NAMESRV_VARIABLES: Final = ("ROUTELAKE_NAMESRV", "NAMESRV_ADDR")

_OF_THE_FIELD: Final = "ROUTELAKE_*"

_USER_INFO: Final = re.compile(r"://[^/?#\s]*@")


def option(*names: str, **more: Any) -> OptionInfo:  # noqa: ANN401
    """Declare an option and its environment variable, for example ROUTELAKE_DATA_DIR for ``--data-dir``.

    Args:
        names: Names of the option. The first one gives the name of the variable. A field of a group needs no names, so
            ``data_dir`` is ``--data-dir``.
        more: Arguments for `typer.Option`.
    """
    if more.get("metavar") in ("URL", "HOST:PORT"):
        more["callback"] = no_password
    more.setdefault("envvar", variable_of(names[0]) if names else _OF_THE_FIELD)
    found: OptionInfo = typer.Option(*names, **more)
    return found


@dataclass(frozen=True, kw_only=True)
class Options:
    """A group of options. A field without `option` is not an option, and only the supervisor sets it."""

    panel: ClassVar[str] = ""
    """Title of the group's section in the help."""
    prefix: ClassVar[str] = ""
    """Prefix of the name of each field."""

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the options as parameters for typer, including those of nested groups."""
        found = []
        hints = get_type_hints(cls, include_extras=True)
        for field in fields(cls):
            hint, name = hints[field.name], cls.prefix + field.name
            if _is_group(hint):
                found += hint.parameters()
                continue
            kind, *marks = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
            declared = next((mark for mark in marks if isinstance(mark, OptionInfo)), None)
            if declared is not None:
                declared = copy.copy(declared)
                if declared.default is ...:  # otherwise it is the first name; see typer.Option
                    declared.param_decls = (f"--{name.replace('_', '-')}",)
                if declared.envvar == _OF_THE_FIELD:
                    declared.envvar = variable_of(name)
                declared.rich_help_panel = cls.panel or None
                found.append(_parameter(name, Annotated[kind, declared], field.default))
        return found

    @classmethod
    def taken(cls: type[_G], values: dict[str, Any]) -> _G:
        """Create the group from the values of typer, and remove its values from ``values``."""
        hints = get_type_hints(cls)
        said = {}
        for field in fields(cls):
            kind, name = hints[field.name], cls.prefix + field.name
            if _is_group(kind):
                said[field.name] = kind.taken(values)
            elif name in values:
                said[field.name] = values.pop(name)
        return cls(**said)


def with_options(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Give a command the options of all its parameters that have a group as their type."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if name != "return" and _is_group(hint)}

    @wraps(command)
    def run(*args: _P.args, **values: _P.kwargs) -> _R:
        values.update({name: kind.taken(values) for name, kind in groups.items()})
        return command(*args, **values)

    shown: list[inspect.Parameter] = []
    for name, one in inspect.signature(command).parameters.items():
        shown += groups[name].parameters() if name in groups else [_parameter(name, hints[name], one.default)]
    show_options(run, shown)
    return run


def show_options(run: Callable[..., object], parameters: Iterable[inspect.Parameter]) -> None:
    """Make typer see these parameters instead of a function's own parameters."""
    shown = list(parameters)
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown}


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:  # noqa: ANN401
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _is_group(kind: object) -> bool:
    return isinstance(kind, type) and is_dataclass(kind) and issubclass(kind, Options)


class SectionedHelp(TyperCommand):
    """A command with a help section for each group of options."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """See `click.Command`."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(param, "rich_help_panel", None) or "Options", []).append(record)
        for name, records in sections.items():
            with formatter.section(name):
                formatter.write_dl(records)


def no_password(param: CallbackParam, value: str | None) -> str | None:
    """Check that an address has no password, because `ps` shows a command line, and logs show addresses.

    Raises:
        SetupError: The address has a user or password.
    """
    if value and _USER_INFO.search(value):
        raise SetupError(
            f"{param.opts[0]}: the address contains a user or password before '@', which every user of this machine "
            "can see with `ps`. Remove it, and set the password as docs/reference/settings.md describes."
        )
    return value


def owner_of(path: Path) -> str:
    """Return owner and mode of a path, for a message."""
    try:
        owner = path.owner()
    except KeyError:
        owner = f"user {path.stat().st_uid}"
    return f"{owner} ({stat.S_IMODE(path.stat().st_mode):04o})"


def usable_folder(param: CallbackParam, value: Path | None) -> Path | None:
    """Check that tables, event log and Spark can use a folder. Raises SetupError if they cannot."""
    if value is not None:
        check_path(value, param.opts[0] if param.opts[0].startswith("-") else str(param.metavar))
    return value


def variable_of(name: str) -> str:
    """Return the environment variable of an option, for example ROUTELAKE_DATA_DIR for ``--data-dir``."""
    return f"ROUTELAKE_{name.partition('/')[0].removeprefix('--').replace('-', '_').upper()}"


def _namesrv(text: str) -> OptionInfo:
    found: OptionInfo = typer.Option(
        "-n",
        "--namesrv",
        "--namesrvAddr",
        envvar=list(_NAMESRV_VARIABLES),
        metavar="ADDRESSES",
        help=f"NameServers: 'host:9876;other:9876', in quotes{text}",
    )
    return found


Namesrv = Annotated[str, _namesrv(". Port 9876 may be left out.")]
NamesrvOrHttp = Annotated[str, _namesrv(". http://host:8080 asks routelake over HTTP.")]


def namesrv_source(text: str, option: str = "-n") -> str:
    """Origin of the addresses of NameServers, for messages: the option, or the variable that holds them."""
    return next((name for name in _NAMESRV_VARIABLES if text and os.environ.get(name) == text), option)
