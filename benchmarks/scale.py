"""Indexing by one process and by 1, 2 and 4 workers, and what follows for sizes that were not measured.

What is measured, and how to run it, is described in README.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from collection import ROOT, TEST_DATA
from measure import Runner
from report import write_section
from scaling import records
from scaling.checking import check, told
from scaling.constants import constants_of
from scaling.parts import PARTS
from scaling.planned import planned
from scaling.records import Part
from scaling.tables import results, simulated
from speed_paths.setting import Setting, environment, say

_LARGE = 500_000
PAGE = ROOT / "docs" / "scale.md"


def main() -> None:
    """Measure the parts that were asked for, and write down what was measured and what follows."""
    arguments = _arguments()
    parts = records.read()
    if not (arguments.check or arguments.write):
        for name in arguments.parts:
            say(f"{name}: about {PARTS[name].minutes:g} minutes")
            started = time.perf_counter()
            measured = _measure(name, arguments)
            say(f"{name}: {(time.perf_counter() - started) / 60:.1f} minutes")
            parts = {**({} if arguments.trial else parts), name: measured}
            if arguments.trial:
                print(results(parts), end="\n\n")
            else:
                write(parts)
    elif not parts:
        sys.exit(f"nothing is recorded in {records.FILE}: measure without --check and --write first")
    if arguments.trial:
        say("nothing was written: this was a trial")
    elif arguments.write:
        write(parts)
    else:
        _check(parts)


def write(parts: dict[str, Part]) -> None:
    """Write the constants, the section of the page of results, and the tables of docs/scale.md."""
    records.write(parts, {name: asdict(constants_of(part)) for name, part in parts.items()})
    write_section("scale", results(parts))
    write_section("scale", planned(parts), PAGE)


def _check(parts: dict[str, Part]) -> None:
    """Print measured and simulated times, and exit with 1 if they are too far from each other."""
    print(simulated(parts))
    sentences = [sentence for name, part in parts.items() for sentence in told(check(name, part))]
    for sentence in sentences:
        say(sentence)
    if sentences:
        sys.exit(1)


def _measure(part: str, arguments: argparse.Namespace) -> Part:
    """Measure a part in a process of its own: a large one would hide the memory of the programs that it starts."""
    with tempfile.TemporaryDirectory(prefix="ragembed-scale-", dir=arguments.cache) as name:
        folder = Path(name).resolve()
        setting = Setting(
            runner=Runner(folder, environment(folder)),
            cache=arguments.cache or folder / "kept",
            data=arguments.data.resolve(),
            python_docs=None,
            turns=1,
            seed=arguments.seed,
            trial=arguments.trial,
            quick=False,
        )
        setting.cache.mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            return fresh.submit(PARTS[part].measure, setting, arguments.large).result()


def _arguments() -> argparse.Namespace:
    parts = "\n".join(f"  {name:10} {part.minutes:4g} min  {part.title}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\nParts, and minutes on two idle cores:\n{parts}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help="default: all")
    parser.add_argument("--trial", action="store_true", help="sizes that take seconds; prints, writes nothing")
    parser.add_argument("--check", action="store_true", help="measure nothing, simulate the runs that were measured")
    parser.add_argument("--write", action="store_true", help="measure nothing, write the pages anew")
    parser.add_argument("--large", type=int, default=_LARGE, help=f"chunks of the large run (default: {_LARGE:,})")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    parser.add_argument("--data", type=Path, default=TEST_DATA, help="folder of the test collections")
    parser.add_argument("--cache", type=Path, help="folder in which texts are kept for the next run")
    arguments = parser.parse_args()
    if arguments.cache is not None:
        arguments.cache = arguments.cache.resolve()
        arguments.cache.mkdir(parents=True, exist_ok=True)
    return arguments


if __name__ == "__main__":
    main()
