# SPDX-License-Identifier: Apache-2.0
"""`./routelake torture`: a run, and its judgement. Exit code 1 for a violation or a run without an end."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from dev.fault_injection.case import WELL_S
from dev.fault_injection.figures import Figures, read_figures, table
from dev.fault_injection.inside import begin, go_inside, has
from dev.fault_injection.judge import judge, open_case, report
from dev.fault_injection.plan import KINDS, plan
from dev.fault_injection.planted.sitecustomize import MUTANTS, SHOWN_BY, WITHOUT_SPARK
from dev.fault_injection.torture import TortureFailed, torture
from dev.fault_injection.world import Setup, possible
from dev.support.namespaces import possible_kinds
from runtime.jars import ensure


def main(arguments: list[str]) -> int:
    """Run it; see `dev/commands.py` for what the options mean."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    begun_s = time.monotonic()
    if chosen.sum:
        runs = read_figures(chosen.sum)
        print(table(runs))
        return 0 if all(run.is_good for run in runs) else 1
    if chosen.judge:
        (before,) = read_figures([chosen.judge])
        return _judge(chosen.judge, before.command, chosen.well_s, begun_s)
    kinds = () if chosen.faults == "none" else tuple(chosen.faults.split(",")) if chosen.faults else KINDS
    if chosen.mutant and not chosen.faults:
        kinds = SHOWN_BY.get(chosen.mutant, ())
    unknown = set(kinds) - set(KINDS)
    if unknown:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}. There are {', '.join(KINDS)}.")
    if not has("mount") and (namespaces := possible_kinds()):
        for jars in ("local-fs", "delta", "kafka"):  # inside there is no network to fetch them from
            ensure(jars)
        go_inside(arguments, namespaces)
    begin()
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix="routelake-torture-"))
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "data").exists():
        parser.error(f"{folder} holds another run")
    without_spark = chosen.without_spark or chosen.mutant in WITHOUT_SPARK
    plants = ("haste", *(["small-fold"] if without_spark else []), *([chosen.mutant] if chosen.mutant else []))
    setup = Setup(chosen.event_log, chosen.gateways, plants)
    again = f"./routelake torture --minutes {chosen.minutes:g} --seed {chosen.seed} --every-s {chosen.every_s:g}"
    again += f" --event-log {chosen.event_log}" if chosen.event_log != "sqlite" else ""
    again += f" --gateways {chosen.gateways}" if chosen.gateways != 1 else ""
    again += f" --pace {chosen.pace:g}" if chosen.pace != 1 else ""
    again += " --without-spark" if chosen.without_spark else ""
    again += f" --faults {chosen.faults}" if chosen.faults else ""
    again += f" --well-s {chosen.well_s:g}" if chosen.well_s != WELL_S else ""
    again += f" --mutant {chosen.mutant}" if chosen.mutant else ""
    print(f"{again}\nin {folder}", flush=True)
    about = {"seed": chosen.seed, "seconds": chosen.minutes * 60}
    Figures(again, about, "it is not over, or was not judged").write(folder)
    able = possible(kinds, setup)
    if able != kinds:
        print(f"not here: {', '.join(kind for kind in kinds if kind not in able)}", flush=True)
    planned = plan(chosen.seed, chosen.minutes * 60, able, chosen.every_s, chosen.gateways, chosen.pace)
    try:
        torture(planned, folder, setup, say=lambda line: print(line, flush=True))
    except TortureFailed as error:
        Figures(again, {**about, **asdict(setup)}, str(error), elapsed_s=time.monotonic() - begun_s).write(folder)
        print(f"the run did not come to its end: {error}\nagain: {again}")
        return 1
    return _judge(folder, again, chosen.well_s, begun_s)


def _judge(folder: Path, again: str, well_s: float, begun_s: float) -> int:
    case = open_case(folder, well_limit_s=well_s)
    violations = judge(case)
    figures, said = report(case, violations, again)
    figures.elapsed_s = time.monotonic() - begun_s
    figures.write(folder)
    print(said)
    return 0 if figures.is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="routelake torture")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--event-log", choices=("sqlite", "kafka"), default="sqlite")
    parser.add_argument("--gateways", type=int, choices=(1, 2), default=1)
    parser.add_argument("--without-spark", action="store_true")
    parser.add_argument("--faults", default="")
    parser.add_argument("--every-s", type=float, default=7.0)
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--well-s", type=float, default=WELL_S)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--sum", action="append", type=Path, metavar="DIR")
    parser.add_argument("--judge", type=Path, metavar="DIR", help="judge a run that is over once more")
    parser.add_argument(
        "--mutant",
        choices=sorted(MUTANTS),
        help="plant this defect, which must be found; without --faults with those alone that show it",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
