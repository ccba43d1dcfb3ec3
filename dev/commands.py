# SPDX-License-Identifier: Apache-2.0
"""Commands for a clone, not for a server: `test`, `check`, `fix`, `coverage`, `docs`, `torture`, `bench`, `release`.

`cli.main` adds them to the command line of a clone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli import usage
from cli.preflight import check_folder
from runtime.version import PROGRAM
from schemas.errors import SetupError


def test(context: typer.Context) -> None:
    """Run the tests. Options go to pytest; --deep adds the long ones, --fast leaves out JVMs, processes and waits.

    --coverage also checks the branches that the tests reach, as `coverage` does.
    """
    from dev.developer import run_tests

    raise typer.Exit(run_tests(context.args))


def check() -> None:
    """Check style, types and import contracts."""
    from dev.developer import run_checks

    raise typer.Exit(run_checks())


def fix() -> None:
    """Repair style and format, and write the generated pages again."""
    from dev.developer import run_fixes

    raise typer.Exit(run_fixes())


def coverage() -> None:
    """Check the branch coverage of state machine, codec and lake by their own tests."""
    from dev.developer import run_coverage

    raise typer.Exit(run_coverage())


def docs() -> None:
    """Build the documentation as a site in build/docs. A broken link or a warning of Sphinx is an error."""
    from dev.docs import build_docs

    raise typer.Exit(build_docs())


def torture(
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.2, help="Duration of traffic and faults, in minutes.")
    ] = 5.0,
    seed: Annotated[int, typer.Option("--seed", help="Seed. The same seed plans the same run.")] = 1,
    log: Annotated[
        str, typer.Option("--event-log", help="Event log: sqlite, or kafka, which the run starts.")
    ] = "sqlite",
    gateways: Annotated[
        int, typer.Option("--gateways", min=1, max=2, help="Number of gateways. One of them runs within `serve`.")
    ] = 1,
    without_spark: Annotated[
        bool, typer.Option("--without-spark", help="Run a fold without a JVM: less of the product, in half the time.")
    ] = False,
    faults: Annotated[
        str, typer.Option("--faults", help="Kinds of faults, separated by commas, or none. Default: all.")
    ] = "",
    every_s: Annotated[float, typer.Option("--every-s", min=0.5, help="Approximate seconds between faults.")] = 7.0,
    pace: Annotated[
        float,
        typer.Option("--pace", min=0.1, help="Factor for the time between a client's requests, for parallel runs."),
    ] = 1.0,
    well_s: Annotated[
        float, typer.Option("--well-s", help="Seconds after the last fault within which everything must be healthy.")
    ] = 30.0,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Folder for data, output and record. Default: a temporary one.")
    ] = None,
    mutant: Annotated[
        str,
        typer.Option(
            "--mutant", help="Plant a defect of dev/fault_injection/planted. The faults are those that reveal it."
        ),
    ] = "",
    judge: Annotated[
        Path | None, typer.Option("--judge", help="Check the finished run in this folder again. Runs nothing.")
    ] = None,
    sum_of: Annotated[
        list[Path] | None,
        typer.Option("--sum", help="Show the figures of all finished runs in this folder. Runs nothing."),
    ] = None,
) -> None:
    """Run traffic and faults against real processes. A model checks answers and tables. Exit code 1: a difference."""
    from dev.developer import run_torture

    options = ["--minutes", str(minutes), "--seed", str(seed), "--every-s", str(every_s), "--well-s", str(well_s)]
    options += ["--event-log", log, "--gateways", str(gateways), "--pace", str(pace)]
    options += ["--without-spark"] if without_spark else []
    options += ["--faults", faults] if faults else []
    options += ["--folder", str(folder)] if folder is not None else []
    options += ["--mutant", mutant] if mutant else []
    options += ["--judge", str(judge)] if judge is not None else []
    options += [option for place in sum_of or [] for option in ("--sum", str(place))]
    raise typer.Exit(run_torture(options))


def bench(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of benchmarks. Default: all.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Measurements of each side of a comparison.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, to see that it runs.")] = False,
    epochs: Annotated[
        int, typer.Option("--epochs", min=1, help="Age of the lake of the benchmark `growth`, in epochs.")
    ] = 100_000,
    serve: Annotated[str, typer.Option("--serve", help="More options of routelake, such as '--workers 2'.")] = "",
    results: Annotated[Path | None, typer.Option("--results", help="Folder of the results.")] = None,
) -> None:
    """Measure routelake, side by side with Apache RocketMQ's NameServer; see reports/performance.md."""
    import shlex

    from dev.benchmarks.harness.run import run_benches

    if results is not None:
        check_folder(results, "--results")
    try:
        options = shlex.split(serve)
        _check_options(context, "serve", options)
    except ValueError as error:
        raise SetupError(f"--serve {serve!r} cannot be read: {error}.") from error
    raise typer.Exit(
        run_benches(names or [], rounds=rounds, quick=quick, epochs=epochs, serve_options=options, results=results)
    )


def _check_options(context: typer.Context, name: str, options: list[str]) -> None:
    """Refuse options that a command of this program would not take. Raises UsageError."""
    root = context.find_root()
    assert isinstance(root.command, usage.Commands)
    command = root.command.get_command(root, name)
    assert command is not None
    command.make_context(name, options, parent=root).close()


def release(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STEP", help="Steps to run with --check. Default: all that have not succeeded at this commit."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run the release checklist instead. It changes nothing.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder of the files. It must be empty.")] = Path("dist"),
) -> None:
    """Build the files of a release: wheel, lock files, deploy, SBOM, license texts and SHA256SUMS."""
    if check:
        from dev.release.checklist import main

        raise typer.Exit(main(names or []))
    if names:
        raise SetupError(f"Steps are run with --check: {PROGRAM} release --check {' '.join(names)}")
    from dev.release.build import build

    check_folder(out, "--out")
    build(out)
    print(f"{out} has the files of this commit.")


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(test)
    for command in (check, fix, coverage, docs, torture, bench, release):
        app.command()(command)
