# SPDX-License-Identifier: Apache-2.0
"""Conversion of an async function to a sub-command, with the common options and exit codes.

Exit codes: 0 success, 1 failure, 2 invalid input. An error is one line on standard error.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, get_type_hints

import typer

from cli.admin.report import CommandResult, Status, show_dry_run, show_report
from cli.admin.session import Admin, Signs
from cli.client_options import ClientOptions, credentials
from cli.options import Namesrv, Options, option, show_options
from cli.output import Output, warn
from remoting.client import RemotingClient
from remoting.errors import AnswerError
from schemas.codes import ResponseCode
from schemas.errors import RoutelakeError

Work = Callable[..., Awaitable[CommandResult]]

_WHAT_BECAME_OF_IT: Final = (
    "with routelake, GET /v1/topics/TOPIC/changes over HTTP shows its result (docs/how-to/operate/missing-routes.md)"
)

ANSWER_TIMEOUT_S: Final = 5.0
"""Default time limit of one request, in seconds (DefaultMQAdminExt.timeoutMillis)."""

TopicName = Annotated[str, typer.Option("-t", "--topic", help="Topic name.")]
OutputFormat = Annotated[Output, typer.Option("-o", "--output", help="Tables for people or JSON for scripts.")]
LongOutputFormat = Annotated[Output, typer.Option("--output", help="Tables for people or JSON for scripts.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print every request instead of sending it. Requests that only read are sent."),
]
TimeoutS = Annotated[
    float,
    typer.Option("--timeout-s", min=0.001, help="Timeout of each request, in seconds, including the connect."),
]


@dataclass(frozen=True, kw_only=True)
class Common(Options):
    """The options that all commands have."""

    namesrv_addr: Namesrv = ""
    output: OutputFormat = Output.TABLE
    dry_run: DryRun = False
    timeout_s: TimeoutS = ANSWER_TIMEOUT_S
    client: ClientOptions = field(default_factory=ClientOptions)
    broker_access_key: Annotated[
        str,
        option(help="Account to sign requests to brokers as. Default: requests to brokers are not signed."),
    ] = ""
    broker_secret_key: Annotated[
        str, option(metavar="REFERENCE", help="That account's key as file:PATH or env:NAME, as --secret-key.")
    ] = ""


def add_command(app: typer.Typer, name: str, work: Work, *, output_letter: bool = True) -> None:
    """Add a sub-command for ``async def work(admin, option, ...) -> CommandResult``.

    Args:
        app: Group to which the command is added.
        name: Name of the command, as in mqadmin.
        work: Function of the command.
        output_letter: Whether ``-o`` means ``--output``. False: mqadmin's command has its own ``-o``.
    """

    def run(**values: Any) -> None:  # noqa: ANN401 (typer calls it with the parameters of the signature below)
        common = Common.taken(values)
        raise typer.Exit(asyncio.run(_run(work, values, common)))

    own = list(inspect.signature(work).parameters.values())[1:]
    hints = get_type_hints(work, include_extras=True)
    shown = {one.name: one.replace(annotation=hints[one.name]) for one in own}
    shown |= {one.name: one for one in Common.parameters()}
    if not output_letter:
        shown["output"] = shown["output"].replace(annotation=LongOutputFormat)
    show_options(run, shown.values())
    run.__doc__ = work.__doc__
    app.command(name)(run)


async def _run(work: Work, values: dict[str, object], common: Common) -> int:
    """Run a command, show its result, and return the exit code. Raises RoutelakeError after showing the outcomes."""
    tls = common.client.encryption()
    keys = common.client.keys()
    broker_keys = credentials(common.broker_access_key, common.broker_secret_key, of="broker-")
    if keys is not None and broker_keys is not None and keys.secret_key == broker_keys.secret_key:
        warn("--broker-secret-key is the key of --secret-key: brokers could use its signatures at a NameServer")
    async with RemotingClient(tls=None if tls is None else tls.context()) as client:
        signs = Signs(None if keys is None else keys.sign, None if broker_keys is None else broker_keys.sign)
        admin = Admin(
            client,
            common.namesrv_addr,
            signs,
            output=common.output,
            dry_run=common.dry_run,
            timeout_s=common.timeout_s,
        )
        try:
            report = await work(admin, **values)
        except RoutelakeError as error:
            if admin.outcomes or admin.sent:
                _show(admin, CommandResult())
            if isinstance(error, AnswerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
                error.args = (f"{error}; {_WHAT_BECAME_OF_IT}",)
            raise
        _show(admin, report)
        return 1 if admin.failed or report.failed else 0


def _show(admin: Admin, report: CommandResult) -> None:
    if admin.dry_run:
        failures = [outcome for outcome in admin.outcomes if outcome.status is Status.FAILED]
        show_dry_run(admin.sent, failures, admin.output)
    else:
        show_report(report, admin.outcomes, admin.output)
