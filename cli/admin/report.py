# SPDX-License-Identifier: Apache-2.0
"""Output of a command: tables and lines for people, one JSON document for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from cli.foreign_text import printable
from cli.output import Output, warn, write_json, write_table


class Status(StrEnum):
    """Result of a request to one server."""

    DONE = "done"
    FAILED = "failed"
    NOT_TRIED = "not tried"
    WOULD_SEND = "would be sent"


class Outcome(msgspec.Struct, frozen=True):
    """Outcome at one server. ``server`` is a brokerName or "NameServer", and ``request`` the name of a RequestCode."""

    server: str
    address: str
    request: str
    status: Status
    detail: str = ""


class Sent(msgspec.Struct, frozen=True, rename="camel"):
    """A request of a dry run. A request that would change something is not ``sent``."""

    server: str
    address: str
    code: int
    request: str
    ext_fields: dict[str, str]
    body: str
    sent: bool


@dataclass
class CommandResult:
    """A command's result.

    Attributes:
        tables: (column titles, rows) for people.
        lines: For people, below the tables.
        data: Data for scripts. None: the outcomes have everything.
        empty: Message on standard error that explains an empty result.
        failed: Whether the command failed although every server answered.
    """

    tables: list[tuple[Sequence[str], list[Sequence[object]]]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    data: object = None
    empty: str = ""
    failed: bool = False


def show_report(report: CommandResult, outcomes: Sequence[Outcome], output: Output) -> None:
    """Write a result to standard output, and messages about it to standard error."""
    if report.empty:
        warn(report.empty)
    if output is Output.JSON:
        write_json(_document(report, outcomes))
        return
    for titles, rows in report.tables:
        if rows:
            write_table(titles, rows)
    for line in report.lines:
        print(printable(line))
    if outcomes:
        write_table(
            ("Server", "Address", "Request", "Outcome", "Detail"),
            map(msgspec.structs.astuple, outcomes),
        )
        print(printable(summary(outcomes)))


def _document(report: CommandResult, outcomes: Sequence[Outcome]) -> object:
    """Return the data. With outcomes, return an object with "outcomes" and, if there is data, "result"."""
    if not outcomes:
        return report.data
    listed = msgspec.to_builtins(outcomes)
    return {"outcomes": listed} if report.data is None else {"outcomes": listed, "result": report.data}


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return one line such as ``50 requests: 49 done, 1 failed (broker-g 10.0.0.7:10911).``."""
    parts = []
    for status in Status:
        of_it = [one for one in outcomes if one.status is status]
        if of_it:
            names = ", ".join(f"{one.server} {one.address}" for one in of_it)
            expected = status in (Status.DONE, Status.WOULD_SEND)
            parts.append(f"{len(of_it)} {status}" if expected else f"{len(of_it)} {status} ({names})")
    return f"{len(outcomes)} request{'s' * (len(outcomes) != 1)}: {', '.join(parts)}."


def show_dry_run(requests: Sequence[Sent], failures: Sequence[Outcome], output: Output) -> None:
    """Write the requests of a dry run to standard output, and the failures."""
    if output is Output.JSON:
        failed = {"failures": failures} if failures else {}
        write_json(msgspec.to_builtins({"dryRun": True, "requests": requests, **failed}))
        return
    write_table(
        ("No", "Server", "Address", "Code", "Request", "Header", "Body", "Sent"),
        [
            (
                at,
                one.server,
                one.address,
                one.code,
                one.request,
                " ".join(f"{key}={value}" for key, value in one.ext_fields.items()),
                one.body.rstrip("\n"),
                "yes, it only reads" if one.sent else "no",
            )
            for at, one in enumerate(requests, 1)
        ],
    )
    for one in failures:
        print(printable(f"{one.server} {one.address}: {one.request} {one.status}: {one.detail}"))
    print("Dry run: nothing was changed.")
