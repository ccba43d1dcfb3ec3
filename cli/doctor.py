# SPDX-License-Identifier: Apache-2.0
"""``routelake doctor``. See docs/how-to/operate/repair-data.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from cli.data_options import LakeUrl, LogUrl, lake_place, log_url
from cli.options import usable_folder
from cli.output import TextOutput
from cli.transfer import lake_folder
from eventlog.urls import is_kafka, sqlite_path
from runtime.machine import acting_as_owner
from runtime.version import PROGRAM
from schemas.errors import SetupError

if TYPE_CHECKING:
    from ops.doctor.examine import Examination
    from ops.doctor.preflight import Check
    from ops.doctor.repair import Repair


def doctor(
    data_dir: Annotated[
        Path,
        typer.Argument(
            metavar="DATA_DIR",
            envvar="ROUTELAKE_DATA_DIR",
            callback=usable_folder,
            help="Data directory to examine.",
        ),
    ] = Path("data"),
    log: LogUrl = "",
    lake: LakeUrl = "",
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Repair as much as tables, event log and staging folder allow. Stop the fold first."
        ),
    ] = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Read every stored row, not only those of the newest epoch.")
    ] = False,
    preflight: Annotated[
        bool,
        typer.Option(
            "--preflight", help="Before an installation or an upgrade: check machine and data for this release."
        ),
    ] = False,
    output: Annotated[TextOutput, typer.Option("-o", "--output", help="Output format.")] = TextOutput.TEXT,
) -> None:
    """Check tables, event log and checkpoint, and print the repair of each problem. Only --repair changes anything.

    Tables at a URL are downloaded first, with their whole history.

    Exit code: 0 nothing is wrong or all is repaired, 1 something is wrong, 2 the data could not be examined.
    """
    from ops.doctor.examine import examine, has_data
    from ops.doctor.preflight import preflight as judge
    from ops.doctor.preflight import preflight_of_machine
    from ops.doctor.repair import Repair, check_can_repair

    if preflight and (repair or lake):
        raise SetupError("--preflight cannot be used with --repair or --lake. Remove one of them.")
    path = None if is_kafka(log) else sqlite_path(log_url(data_dir, log))
    data_dir = data_dir.absolute()
    place = lake_place(data_dir, lake)
    if place.url:
        if repair:
            raise SetupError(_repair_of(place.url))
        with lake_folder(data_dir, lake) as folder:
            found = examine(folder.parent, path, thorough=thorough)
        shown = _as_json(found, None) if output is TextOutput.JSON else _as_text(found, None, place.url)
        print(shown.replace(str(folder), place.url).replace(str(folder.parent), place.url))
        raise typer.Exit(0 if found.is_well else 1)
    if place.folder != (data_dir / "lake").resolve():
        raise SetupError(f"--lake {lake} cannot be examined. Use a URL, or leave --lake out to examine DATA_DIR/lake.")
    if preflight and not has_data(data_dir, path):
        _print_checks(preflight_of_machine(data_dir), output)
    with acting_as_owner(data_dir):
        if repair:
            check_can_repair(data_dir)
            work = Repair(data_dir, path, thorough=thorough)
            found = work.run()
        else:
            work, found = None, examine(data_dir, path, thorough=thorough)
        checks = judge(found) if preflight else []
    if preflight:
        _print_checks(checks, output)
    print(_as_json(found, work) if output is TextOutput.JSON else _as_text(found, work))
    raise typer.Exit(0 if found.is_well else 1)


def _print_checks(checks: list[Check], output: TextOutput) -> NoReturn:
    """Print the checks of --preflight, and end with their exit code."""
    print(_checks_as_json(checks) if output is TextOutput.JSON else _checks_as_text(checks))
    raise typer.Exit(1 if any(check.level == "WRONG" for check in checks) else 0)


def _checks_as_text(checks: list[Check]) -> str:
    width = max(len(check.subject) for check in checks)
    return "\n".join(f"{check.level:<5}  {check.subject:<{width}}  {check.text}" for check in checks)


def _checks_as_json(checks: list[Check]) -> str:
    return json.dumps({"checks": [check._asdict() for check in checks]}, indent=2)


def _repair_of(url: str) -> str:
    return (
        f"--repair needs a folder. Stop the fold, run `{PROGRAM} lake get {url} DIR`, `{PROGRAM} "
        f"doctor DIR --repair`, and upload the result to a new URL with `{PROGRAM} lake put DIR URL`."
    )


def _as_text(found: Examination, work: Repair | None, url: str = "") -> str:
    from ops.doctor.findings import HARMLESS, MEANS, WAY_OUT

    lines = [_summary(found)]
    if work is not None:
        lines += [f"done: {text}." for text in work.done]
        lines += [f"not done: {text}." for text in work.refused]
        lines += [f"removed files are in {folder}" for folder in work.places_aside()]
    for finding in found.findings:
        lines += [
            f"{'note' if finding.kind in HARMLESS else 'WRONG'}: {finding.kind}: {finding.where} {finding.what}",
            f"  means: {MEANS[finding.kind]}",
            f"  do:    {WAY_OUT[finding.kind]}",
        ]
    if found.blocks and url:
        lines.append(_repair_of(url))
    elif work is None and found.blocks:
        lines.append(f"`{PROGRAM} doctor {found.data_dir} --repair` repairs as much as possible. Stop the fold first.")
    if not found.findings:
        lines.append("nothing is wrong")
    return "\n".join(lines)


def _summary(found: Examination) -> str:
    last = found.last
    at = "no epoch yet" if last is None else f"epoch {last.epoch}, log offset {last.log_offset}"
    files = sum(len(table.disk.present) for table in found.tables.values() if table.disk is not None)
    orphans = sum(table.orphans for table in found.tables.values())
    parts = [f"{found.data_dir}: {at}; {len(found.tables)} tables, {files} files"]
    if orphans:
        parts.append(f"{orphans} of them in no commit (vacuum deletes them)")
    extent = found.log.extent if found.log is not None else None
    if extent is not None:
        parts.append(f"log with offsets {extent.first} to {extent.end - 1}")
    if found.log is None:
        parts.append("the event log is in Kafka and was not examined")
    if found.fold_runs:
        parts.append("a fold is running")
    return ", ".join(parts)


def _as_json(found: Examination, work: Repair | None) -> str:
    from ops.doctor.findings import HARMLESS, MEANS, WAY_OUT

    last = found.last
    return json.dumps(
        {
            "dataDir": str(found.data_dir),
            "epoch": None if last is None else last.epoch,
            "logOffset": None if last is None else last.log_offset,
            "foldRuns": found.fold_runs,
            "findings": [
                {
                    "kind": finding.kind,
                    "where": finding.where,
                    "what": finding.what,
                    "harmless": finding.kind in HARMLESS,
                    "means": MEANS[finding.kind],
                    "do": WAY_OUT[finding.kind],
                }
                for finding in found.findings
            ],
            "done": [] if work is None else work.done,
            "notDone": [] if work is None else work.refused,
        },
        indent=2,
    )
