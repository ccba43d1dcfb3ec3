# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: name, version, completion, and suggestions after a misspelled command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, cast

import typer
from typer._click.exceptions import ClickException, MissingParameter, NoArgsIsHelpError, NoSuchOption, UsageError
from typer.core import TyperGroup

from cli.foreign_text import HarmlessOutput, printable
from cli.options import owner_of
from runtime.version import PROGRAM, release
from schemas.errors import RoutelakeError, SetupError

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter

_COMPLETE_VAR: Final = "_ROUTELAKE_COMPLETE"
"""Variable by which a shell's completion asks for words. The script ./routelake reads it too."""

_LONGEST_SENTENCE: Final = 300

_EXTRAS: Final = {
    "clients": ("httpx", "uvloop"),
    "fold": ("pyspark", "py4j", "delta", "pandas", "google", "pyarrow", "deltalake", "kafka", "crc32c"),
    "gateway": (
        *("fastapi", "starlette", "pydantic", "pydantic_core", "uvicorn", "uvloop", "httptools", "prometheus_client"),
        *("cryptography", "jwt", "yaml", "duckdb", "pyarrow", "deltalake", "kafka", "crc32c"),
    ),
    "object-store": ("obstore",),
}
"""Packages of each extra of the wheel (pyproject.toml), by the names of its packages in Python."""
_EXTRAS_OF: Final = {"gateway": "gateway", "serve": "server"}
"""Extras of commands that share packages with others."""

_UNREADABLE: Final = re.compile(r"\w+ '(.+)' is not readable\.")

_OF_OTHER_SERVERS: Final = ("--port", "--host", "--listen")
"""Options with which other servers set their address."""

_USER_INFO: Final = re.compile(r"://[^/?#\s'\"]*@")
"""Part of an address that may have a password."""

_ROOT: Final = Path(__file__).resolve().parent.parent

TEXT: Final[dict[str, Any]] = {"rich_markup_mode": None, "pretty_exceptions_enable": False, "add_completion": False}
"""Settings of every `typer.Typer`: help without boxes, because a narrow terminal would cut boxes."""


class Commands(TyperGroup):
    """A group that suggests the nearest command for an unknown name, in any letter case."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """See `TyperGroup`. Raises UsageError."""
        try:
            return self._click_resolve_command(ctx, args)
        except UsageError as error:
            if self.get_command(ctx, args[0]) is None:
                error.message = error.message.rstrip(".") + self._hint(ctx, args[0])
            raise

    def _hint(self, ctx: Context, word: str) -> str:
        nearest = self.nearest(ctx, word)
        if nearest is not None:
            return f". Did you mean '{ctx.command_path} {nearest}'?"
        for name in self.list_commands(ctx):
            group = self.get_command(ctx, name)
            if isinstance(group, Commands) and (nearest := group.nearest(ctx, word)) is not None:
                return f". Did you mean '{ctx.command_path} {name} {nearest}'?"
        return "."

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """List each command with its whole first sentence. click would cut it to one line."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(_LONGEST_SENTENCE)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def nearest(self, ctx: Context, word: str) -> str | None:
        """Return the command with the most similar name, or None."""
        names = {name.lower(): name for name in self.list_commands(ctx)}
        found = get_close_matches(word.lower(), names, n=1)
        return names[found[0]] if found else None


def group(about: str, cls: type[Commands] = Commands) -> typer.Typer:
    """Return an empty group of commands. Its help begins with `about`. Without a command it shows the help."""
    return typer.Typer(
        cls=cls,
        help=about,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        **TEXT,
    )


def run(app: typer.Typer, args: Sequence[str] | None = None) -> int:
    """Run the command line. An expected error becomes one line on standard error.

    Returns:
        The exit code. It is 2 if the command line is not valid, or if the command cannot start with these settings.
    """
    if _COMPLETE_VAR in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
    return guarded(
        lambda: app(args, prog_name=PROGRAM, complete_var=_COMPLETE_VAR, standalone_mode=False),
        sys.argv[1:] if args is None else args,
    )


def guarded(main: Callable[[], Any], words: Sequence[str]) -> int:
    """Run a program. An expected error becomes one line on standard error.

    Args:
        main: Function that returns the exit code. None means 0.
        words: Words of the command line.
    """
    try:
        with _harmless_output():
            code = main()
    except RoutelakeError as error:
        return _refuse(_with_next_step(" ".join(str(error).splitlines())), 2 if isinstance(error, SetupError) else 1)
    except NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return error.exit_code
    except UsageError as error:
        return _refuse(f"{_plain(error)}{_where_help_is(error)}", error.exit_code)
    except ClickException as error:
        return _refuse(error.format_message(), error.exit_code)
    except typer.Abort:
        return 130
    except ModuleNotFoundError as error:
        return _refuse(_what_to_install(error, words), 2)
    return int(code or 0)


@contextmanager
def _harmless_output() -> Iterator[None]:
    """Escape control characters in all output of the block, because peers choose some of the text."""
    stream = sys.stdout
    with redirect_stdout(cast("IO[str]", HarmlessOutput(stream))):
        yield
    stream.flush()


_NEXT_STEPS: Final = {
    "CODE: 16  DESC: not authenticated": "Set --access-key and --secret-key",
    "the peer's certificate was not accepted": "Set --tls-ca to a PEM file of its authority",
    "connection lost: closed by the peer": "If its port requires TLS, set --tls",
}
"""Next step for an error of a client, by a part of its message."""


def _with_next_step(message: str) -> str:
    step = next((step for failure, step in _NEXT_STEPS.items() if failure in message), None)
    return message if step is None else f"{message}. {step}."


def _refuse(message: str, code: int) -> int:
    print(f"routelake: {_USER_INFO.sub('://***@', printable(message))}", file=sys.stderr)
    return code


def _what_to_install(error: ModuleNotFoundError, words: Sequence[str]) -> str:
    """Return the advice for a missing package. Raises ModuleNotFoundError if it is not a package of an extra."""
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in _EXTRAS.items() if package in packages]
    if not extras:
        raise error
    extra = _EXTRAS_OF.get(next((word for word in words if not word.startswith("-")), ""), extras[0])
    return f"this needs {package}: pip install 'routelake[{extra}]'."


def _plain(error: UsageError) -> str:
    """Return the message of an error. For a missing option, it has the purpose of the option."""
    if isinstance(error, NoSuchOption):
        meant = " or ".join(error.possibilities or ())
        if error.option_name in _OF_OTHER_SERVERS and error.ctx is not None:
            own = {name for param in error.ctx.command.params for name in param.opts}
            meant = "--remoting or --http" if {"--remoting", "--http"} <= own else meant
        return f"no such option: {error.option_name}.{f' Did you mean {meant}?' if meant else ''}"
    if unreadable := _UNREADABLE.fullmatch(error.message):
        return _whose(Path(unreadable[1]))
    if not isinstance(error, MissingParameter) or error.param is None:
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        return message if message.endswith("?") else f"{message}."
    param = error.param
    argument = param.param_type_name == "argument"
    name = str(param.name).upper() if argument else " or ".join(sorted(param.opts, key=len))
    help_text = (getattr(param, "help", None) or "").rstrip(".")
    return f"{name} is missing{f' ({help_text})' if help_text else ''}."


def _whose(path: Path) -> str:
    """Return a message about a path that this user may not read, with its owner."""
    readers = ", or start routelake with --data-mode 750 so that its group may read it" if path.is_dir() else ""
    return f"{path} belongs to {owner_of(path)}, and you may not read it. Run this command as that user{readers}."


def _where_help_is(error: UsageError) -> str:
    if error.ctx is None:
        return ""
    return f" See {error.ctx.command_path} {error.ctx.help_option_names[0]}."


def version() -> str:
    """Return ``routelake 0.1.0 (commit cd1c7f2)``: pyproject's version and, in a clone, its commit."""
    found = f"routelake {release()}"
    if not (_ROOT / ".git").exists():
        return found
    try:
        asked = subprocess.run(
            ["git", "-C", str(_ROOT), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return found
    return f"{found} (commit {asked.stdout.strip()})" if asked.returncode == 0 else found


class Shell(StrEnum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Name of the shell: bash, zsh or fish.", metavar="SHELL")],
) -> None:
    """Print a completion script."""
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="routelake", complete_var=_COMPLETE_VAR, shell=shell.value)
    # bash passes the typed word, while the other shells would search for the name on PATH
    program = _ROOT / "routelake" if PROGRAM == "./routelake" else Path(sys.executable).with_name("routelake")
    print(re.sub(r" routelake(?=[)\"])", lambda _: " " + shlex.quote(str(program)), script))


def _show_version(value: bool) -> None:
    if value:
        print(version())
        raise typer.Exit


def root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A RocketMQ NameServer on the lakehouse."""
