"""Each path of ragembed beside a peer's and beside what the machine allows, in one run, taking turns.

What is measured, and how to run it, is described in README.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path

from collection import TEST_DATA
from measure import Runner
from report import machine, processor
from speed_paths import records
from speed_paths.page import write_page
from speed_paths.parts import PARTS
from speed_paths.regressions import Comparison, compare
from speed_paths.scores import Outcome, Score
from speed_paths.setting import Setting, environment, say

_TURNS, _TRIAL_TURNS = 5, 2
_TOLERANCE = 0.25


def main() -> None:
    """Measure the parts that were asked for, and write them down, or compare them with what was written down."""
    arguments = _arguments()
    if arguments.check:
        _check(arguments)
        return
    for part in arguments.parts:
        load, started = os.getloadavg()[0], time.perf_counter()
        say(f"{part}: about {PARTS[part].minutes:g} minutes")
        outcome = _measure(part, arguments)
        minutes = (time.perf_counter() - started) / 60
        when = f"{date.today().isoformat()}; {machine()}; load average {load:.1f} at the start; {minutes:.1f} minutes."
        body = "\n\n".join([f"### {PARTS[part].title}", *outcome.paragraphs, when])
        print(f"{body}\n", flush=True)
        if not arguments.trial:
            kept = records.replace(records.read(), part, outcome.scores, date.today().isoformat(), processor())
            records.write(kept)
            write_page(part, body, kept)
    if arguments.trial:
        say("nothing was written: this was a trial")


def _check(arguments: argparse.Namespace) -> None:
    """Measure what is quick, and exit with 1 if a ratio is worse than the recorded one."""
    kept = records.read()
    if not kept:
        sys.exit(f"nothing is recorded in {records.FILE}: measure once without --check")
    scores: list[Score] = []
    for part in arguments.parts:
        say(f"{part}: measured again")
        scores += _measure(part, arguments).scores
    found: Comparison = compare(scores, kept, arguments.tolerance, processor())
    for sentence in (*found.notes, *found.worse):
        say(sentence)
    if found.worse:
        sys.exit(1)
    say(f"no ratio is worse than recorded by more than {arguments.tolerance:.0%}")


def _measure(part: str, arguments: argparse.Namespace) -> Outcome:
    """Measure a part in a process of its own: a large one would hide the memory of the programs that it starts."""
    with tempfile.TemporaryDirectory(prefix="ragembed-speed-", dir=arguments.cache) as name:
        folder = Path(name).resolve()
        setting = Setting(
            runner=Runner(folder, environment(folder)),
            cache=arguments.cache or folder / "kept",
            data=arguments.data.resolve(),
            python_docs=arguments.python_docs,
            turns=arguments.turns,
            seed=arguments.seed,
            trial=arguments.trial,
            quick=arguments.check,
        )
        setting.cache.mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            return fresh.submit(PARTS[part].measure, setting).result()


def _arguments() -> argparse.Namespace:
    parts = "\n".join(f"  {name:10} {part.minutes:4g} min  {part.title}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nParts, and minutes on two idle cores:\n{parts}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, metavar="PART", help="default: all of them")
    parser.add_argument("--trial", action="store_true", help="sizes that take seconds; prints, writes nothing")
    parser.add_argument("--check", action="store_true", help="measure what is quick, compare it with what is recorded")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=_TOLERANCE,
        help=f"by how much a ratio may be worse (default: {_TOLERANCE})",
    )
    parser.add_argument("--turns", type=int, help=f"of each side (default: {_TURNS}, in a trial {_TRIAL_TURNS})")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    parser.add_argument("--data", type=Path, default=TEST_DATA, help="folder of the test collections")
    parser.add_argument("--cache", type=Path, help="folder in which texts and stores are kept for the next run")
    parser.add_argument("--python-docs", type=Path, help="folder of Python's documentation, .rst.txt or .html")
    arguments = parser.parse_args()
    possible = [name for name, part in PARTS.items() if part.quick or not arguments.check]
    arguments.parts = arguments.parts or possible
    if slow := [name for name in arguments.parts if name not in possible]:
        parser.error(f"--check does not measure {', '.join(slow)}: expected some of {', '.join(possible)}")
    arguments.turns = arguments.turns or (_TRIAL_TURNS if arguments.trial else _TURNS)
    for name in ("cache", "python_docs"):
        if (folder := getattr(arguments, name)) is not None:
            setattr(arguments, name, folder.resolve())
    if arguments.cache is not None:
        arguments.cache.mkdir(parents=True, exist_ok=True)
    return arguments


if __name__ == "__main__":
    main()
