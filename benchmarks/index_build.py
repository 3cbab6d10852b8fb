"""An index of the same vectors by ragembed, for several budgets, and by its peers: what it costs, finds and takes.

What is measured, and how to run it, is described in README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collection import TEST_DATA
from environments import INDEXES, packages
from indexing import kept
from indexing.budgets import NAMES, budgets_for
from indexing.contest import Entry, Runners, hold
from indexing.contestants import PEERS, READER, contestants_for
from indexing.figure import check_figure, draw
from indexing.kept import Measured
from indexing.layout import RANK, SCALE, K, Prepared
from indexing.tables import LEAST_RECALL, by_size, growth, picks, sentences
from indexing.verdicts import verdicts
from measure import Runner, own_peak
from report import machine, write_section

_BENCHMARKS = Path(__file__).resolve().parent
_FIGURE = _BENCHMARKS / "figures" / "index_build.png"
_SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
_TRIAL_SIZES = (10_000,)
_LEAST_SIZE = 10_000
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NOT_EVERYWHERE = (
    "the budget of recall 0.99 up to 100,000, that of 2/3 of the memory up to 300,000, USearch f32 up to 30,000,\n"
    "  i8 up to 100,000. autofaiss is not given the limit of memory: the rotation that it then trains takes a\n"
    "  quarter of an hour for 10,000 vectors"
)
_PACKAGES = ("ragembed", "faiss-cpu", "numpy")
_PEER_PACKAGES = ("autofaiss", "faiss-cpu", "hnswlib", "usearch", "numpy")


def main() -> None:
    """Measure, print the tables, and put them and the figure into the page of results."""
    arguments = _arguments()
    if not arguments.trial:
        check_figure()
    INDEXES.ensure()
    with tempfile.TemporaryDirectory(prefix="ragembed-benchmark-", dir=arguments.cache) as name:
        folder = Path(name)
        prepared = _prepare(arguments, arguments.cache or folder)
        measured = _measure(arguments, prepared, folder)
    entries = [entry for one in measured for entry in one.entries]
    body = "\n\n".join([*_parts(entries), _notes(arguments, prepared, measured)])
    print(body)
    if arguments.trial:
        _say("results.md is left as it is: this was a trial")
        return
    draw([entry for entry in entries if entry.contestant is not READER], _FIGURE, LEAST_RECALL)
    write_section("index_build", body)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trial", action="store_true", help="10,000 vectors, few questions; prints, writes nothing")
    parser.add_argument("--sizes", type=_size, nargs="+", metavar="N", help="numbers of vectors")
    parser.add_argument("--peers", choices=PEERS, nargs="*", default=PEERS, help="default: all of them")
    parser.add_argument("--budgets", choices=NAMES, nargs="*", default=NAMES, help="default: all of them")
    parser.add_argument("--peers-only", action="store_true", help="leave ragembed out")
    parser.add_argument("--rounds", type=int, default=2, help="times that everybody is asked (default: 2)")
    parser.add_argument("--patience", type=float, default=900, help="seconds for one build (default: 900)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    parser.add_argument("--data", type=Path, default=TEST_DATA, help="folder of the test collections")
    parser.add_argument("--cache", type=Path, help="folder in which vectors and results are kept for the next run")
    parser.add_argument("--resume", action="store_true", help="take the sizes whose results --cache has from there")
    arguments = parser.parse_args()
    if arguments.resume and arguments.cache is None:
        parser.error("--resume without --cache: give the folder that the run to go on with was given")
    arguments.sizes = sorted(set(arguments.sizes or (_TRIAL_SIZES if arguments.trial else _SIZES)))
    if arguments.cache is not None:
        arguments.cache = arguments.cache.resolve()
        arguments.cache.mkdir(parents=True, exist_ok=True)
    return arguments


def _size(text: str) -> int:
    if (number := int(text.replace(",", "").replace("_", ""))) < _LEAST_SIZE:
        raise argparse.ArgumentTypeError(f"{number:,} is too few: expected {_LEAST_SIZE:,} or more")
    return number


def _prepare(arguments: argparse.Namespace, folder: Path) -> Mapping[str, Any]:
    """Make vectors, questions and exact answers, in a process of its own; return where they are."""
    request = {
        "data": str(arguments.data.resolve()),
        "folder": str(folder),
        "sizes": arguments.sizes,
        "texts": max(arguments.sizes) if arguments.trial else None,
        "questions": 100 if arguments.trial else 300,
        "tuning": 300 if arguments.trial else 1000,
        "seed": arguments.seed,
    }
    command = [sys.executable, "-m", "indexing.prepare", json.dumps(request)]
    printed = subprocess.run(command, cwd=_BENCHMARKS, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return {**request, **told}


def _measure(arguments: argparse.Namespace, prepared: Mapping[str, Any], folder: Path) -> list[Measured]:
    threads = len(os.sched_getaffinity(0))
    runners = Runners(
        threads, arguments.patience, *(Runner(folder, _environment(folder, count)) for count in (threads, 1))
    )
    asked = {name: getattr(arguments, name) for name in ("budgets", "peers", "peers_only", "rounds", "patience")}
    measured: list[Measured] = []
    for size, place in zip(prepared["sizes"], prepared["folders"], strict=True):
        budgets = budgets_for(arguments.budgets, size, prepared["dim"])
        contestants = contestants_for(size, budgets, arguments.peers, ours=not arguments.peers_only)
        file = kept.place(arguments.cache or folder, size, {**asked, "place": place})
        if arguments.resume and file.is_file():
            _say(f"{size:,} vectors: taken from {file}")
            measured.append(kept.read(file, contestants))
            continue
        load, started = os.getloadavg()[0], time.perf_counter()
        entries = hold(contestants, Prepared(Path(place), size), prepared["dim"], runners, arguments.rounds)
        if (lowest := min(entry.cost.memory for entry in entries)) <= (own := own_peak()):
            raise RuntimeError(f"no peak memory can be told: the lowest is {lowest:.0f} MiB, the benchmark's {own:.0f}")
        measured.append(kept.write(file, entries, (time.perf_counter() - started) / 60, load))
    return measured


def _environment(folder: Path, threads: int) -> dict[str, str]:
    """Return the environment of all contestants: no settings of the user's, a cache of its own, so many threads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAGEMBED_", "PYTHON"))}
    return {**kept, "XDG_CACHE_HOME": str(folder / "cache"), **dict.fromkeys(_THREADS, str(threads))}


def _parts(entries: Sequence[Entry]) -> list[str]:
    """Return the paragraphs and tables."""
    contestants = [entry for entry in entries if entry.contestant is not READER]
    found = verdicts(contestants)
    parts = ["## Index building"]
    if found:
        parts += [sentences(found), picks(found, contestants)]
    parts += [f"![growth and fronts](figures/{_FIGURE.name})", growth(contestants)]
    for reading in (entry for entry in entries if entry.contestant is READER):
        own = [entry for entry in contestants if entry.size == reading.size]
        parts += [f"{reading.size:,} vectors:", by_size(own, reading)]
    return parts


def _notes(arguments: argparse.Namespace, prepared: Mapping[str, Any], measured: Sequence[Measured]) -> str:
    # The interpreter of this process is that of the environment that ragembed is installed in.
    mine, others = packages(sys.executable), packages(INDEXES.python)
    left_out = sorted(set(PEERS) - set(arguments.peers))
    dim, rounds = prepared["dim"], arguments.rounds
    days = " and ".join(sorted({one.day for one in measured}))
    load, minutes = max(one.load for one in measured), sum(one.minutes for one in measured)
    return f"""\
- Vectors: MiniLM's of {prepared["texts"]:,} texts, of dimension {dim}; more are copies with noise over {RANK} principal
  components, {SCALE} times as wide as the vectors spread there. All are rounded to float16 first.
- Questions: {prepared["real"]:,} of people in the column "questions", {prepared["held_out"]:,} pseudo-queries of other
  texts than those that ragembed tunes with; recall elsewhere is that of both. None is a text that is indexed, whole.
- Recall@{K} beside exact search; what is as near as the tenth counts. "Within noise": below what was asked for, which
  the 95 % interval of the mean reaches. ms is the median of one question at a time in one thread, in warm memory, the
  best of {rounds} rounds in which all are asked in turns; a limit of latency is one of the 95th percentile.
- Build: seconds from opening the vectors to an index on the disk, imports left out, in all threads. The tuning and
  measuring of ragembed and autofaiss is in it; the settings of the others are chosen here, afterwards, by the recall
  that is shown. "÷ ragembed" is beside its default budget: above 1, the peer takes longer.
- Peak memory is that of the whole process, with the pages of the mapped vectors that it read; the first row of a table
  is a process that only reads them. autofaiss reads the file itself, in blocks of up to 1 GB.
- "+ raw": the kind rounds, and what it finds is ranked anew by float16 vectors on the disk, which a store has in any
  case: {2 * dim} bytes for each vector. A limit of memory is one of the index alone, on both sides.
- A peer's row shows its fastest setting with recall {LEAST_RECALL:g}, or its best; all settings take part in the front
  and are in the figure. A graph that happens to find everything here counts for as much as an exact kind.
- Not at every size, for the time it takes: {_NOT_EVERYWHERE}.
  Left out altogether: {", ".join(left_out) or "none"}.
- {days}; {machine()}; load average at most {load:.1f} when a size was begun; {minutes:.0f} minutes, seed
  {arguments.seed}. Times are those of one machine: a difference of a tenth means nothing.
- ragembed and FAISS flat: {_versions(mine, _PACKAGES)}. Peers: {_versions(others, _PEER_PACKAGES)}."""


def _versions(installed: Mapping[str, str], wanted: Sequence[str]) -> str:
    return ", ".join(f"{name} {installed.get(name, '(absent)')}" for name in wanted)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
