"""Runs the programs under torchrun and under safelaunch, warm and cold, and tells what differs.

Exit code 1 where there is a difference that `known.toml` does not explain.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import table
from catalogue import KNOWN, Known, Program, known_differences, programs
from comparing import Difference, compare
from launching import LAUNCHERS, launch


@dataclass(frozen=True)
class Result:
    """Of one program.

    Args:
        program: its name.
        skipped: why it was not run; "" where it was.
        unexplained: differences that are not known.
        explained: differences with what is known of them.
        cold: why its warm start was cold; "" where it was warm.
        seconds: that each launcher took.
    """

    program: str
    skipped: str
    unexplained: Sequence[Difference]
    explained: Sequence[tuple[Difference, Known]]
    cold: str
    seconds: dict[str, float]


def run(program: Program, launchers: Sequence[str], explanations: Sequence[Known], sandbox: Path) -> Result:
    """Run one program under each launcher, and compare.

    Args:
        program: to be run.
        launchers: names; the others are compared with the first one, which may come again.
        explanations: of differences.
        sandbox: a folder of this invocation.
    """
    if missing := program.missing():
        return Result(program.name, f"{missing} is not installed", (), (), "", {})
    outcomes = {}
    for launcher in launchers:
        name = launcher if launcher not in outcomes else f"{launcher} again"
        outcomes[name] = launch(program, launcher, sandbox)
    unexplained, explained = [], []
    for one in compare(program, outcomes):
        reasons = [known for known in explanations if known.covers(one.program, one.launcher, one.what)]
        if reasons:
            explained.append((one, reasons[0]))
        else:
            unexplained.append(one)
    cold = outcomes["warm"].cold if "warm" in outcomes else ""
    seconds = {name: round(outcome.seconds, 2) for name, outcome in outcomes.items()}
    return Result(program.name, "", unexplained, explained, cold, seconds)


def show(result: Result, *, verbose: bool) -> None:
    """Print what differs: a line each, or with all of its lines."""
    for one in result.unexplained:
        print(f"{one.program}  {one.launcher}  {one.what}: {'' if verbose else ' | '.join(one.lines[:2])}", flush=True)
        if verbose:
            print("\n".join(f"    {line}" for line in one.lines), flush=True)


def main() -> int:
    arguments = _arguments()
    chosen = [one for one in programs() if _is_chosen(one.name, arguments.k)]
    if arguments.list:
        print("\n".join(f"{one.name}: {one.shows}" for one in chosen))
        return 0
    launchers = ["torchrun", "torchrun"] if arguments.twice else list(dict.fromkeys(["torchrun", *arguments.launchers]))
    explanations = known_differences()
    begun = time.monotonic()
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="compat-", ignore_cleanup_errors=True) as sandbox,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        for future in [pool.submit(run, one, launchers, explanations, Path(sandbox)) for one in chosen]:
            results.append(future.result())
            show(results[-1], verbose=arguments.verbose)
    seconds = time.monotonic() - begun
    _summary(results, explanations, seconds)
    if arguments.json:
        arguments.json.write_text(json.dumps([table.document(result) for result in results], indent=1))
    if arguments.markdown:
        arguments.markdown.write_text(table.markdown(results, seconds))
    return int(any(result.unexplained for result in results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", metavar="PATTERN", action="append", help="only programs whose name matches, or holds, it")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time (default: 1)")
    parser.add_argument("--launchers", nargs="+", choices=tuple(LAUNCHERS), default=["warm", "cold"])
    parser.add_argument("--twice", action="store_true", help="torchrun against torchrun: are the programs good ones?")
    parser.add_argument("-v", "--verbose", action="store_true", help="all lines of a difference, not two of them")
    parser.add_argument("--list", action="store_true", help="print the programs and run none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    return parser.parse_args()


def _is_chosen(name: str, patterns: Sequence[str] | None) -> bool:
    return not patterns or any(pattern in name or fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _summary(results: Sequence[Result], explanations: Sequence[Known], seconds: float) -> None:
    ran = [result for result in results if not result.skipped]
    differ = Counter(result.program.partition("/")[0] for result in ran if result.unexplained)
    for result in results:
        if result.skipped:
            print(f"skipped: {result.program}: {result.skipped}")
    used = {known for result in ran for _, known in result.explained}
    for known in explanations:
        if known not in used and any(fnmatch.fnmatchcase(result.program, known.programs) for result in ran):
            print(f"no longer seen: {known.what} of {known.programs}, which {KNOWN.name} explains")
    print(f"{len(ran)} programs in {seconds:.0f} s; {sum(differ.values())} differ, {len(used)} known differences seen")
    for family, count in sorted(differ.items()):
        print(f"  {family}: {count}")


if __name__ == "__main__":
    sys.exit(main())
