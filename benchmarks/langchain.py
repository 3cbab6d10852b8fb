"""ragembed's vector store for LangChain beside the FAISS store of langchain-community: both keep the same vectors.

What is measured, and how to run it, is described in README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from environments import LANGCHAIN, packages
from langchain_stores import tables
from langchain_stores.contest import PROGRAMS, Contestant, contestants, hold
from langchain_stores.programs.layout import DIM, FILTERS, PAUSE, THREADS, K
from measure import Runner, own_peak
from report import machine, write_section

_TEXTS, _TRIAL_TEXTS, _LEAST_TEXTS = 50_000, 2000, 1000
_ROUNDS = 3
_DROPPED = ("RAGEMBED_", "PYTHON", "LANGCHAIN_", "LANGSMITH_")
_OUR_PACKAGES = ("ragembed", "langchain-core", "faiss-cpu", "numpy")
_PEER_PACKAGES = ("langchain-community", "langchain-core", "faiss-cpu", "numpy")


def main() -> None:
    """Measure, print the tables, and put them into the page of results."""
    arguments = _arguments()
    LANGCHAIN.ensure()
    load = os.getloadavg()[0]
    sides = contestants()
    with tempfile.TemporaryDirectory(prefix="ragembed-benchmark-", dir=arguments.folder) as name:
        folder = Path(name)
        request = _request(arguments, folder)
        _say(f"making {arguments.texts:,} documents")
        corpus = {"folder": request["corpus"], "texts": arguments.texts, "seed": arguments.seed}
        subprocess.run([sys.executable, PROGRAMS / "corpus.py", json.dumps(corpus)], check=True)
        hold(sides, request, Runner(folder, _environment(folder)), arguments.rounds)
    _check_memory(sides)
    body = "\n\n".join(part for part in _parts(sides, arguments, request, load) if part)
    print(body)
    if arguments.trial:
        _say("results.md is left as it is: this was a trial")
    else:
        write_section("langchain", body)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trial", action="store_true", help="2,000 texts, one round; prints, writes nothing")
    parser.add_argument("--texts", type=_size, metavar="N", help=f"number of texts (default: {_TEXTS:,})")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"times that all is done (default: {_ROUNDS})")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    parser.add_argument("--folder", type=Path, help="where the stores are made (default: a temporary folder)")
    arguments = parser.parse_args()
    arguments.texts = arguments.texts or (_TRIAL_TEXTS if arguments.trial else _TEXTS)
    arguments.rounds = arguments.rounds or (1 if arguments.trial else _ROUNDS)
    return arguments


def _size(text: str) -> int:
    if (number := int(text.replace(",", "").replace("_", ""))) < _LEAST_TEXTS:
        raise argparse.ArgumentTypeError(f"{number:,} is too few: expected {_LEAST_TEXTS:,} or more")
    return number


def _request(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return what every program is told."""
    return {
        "corpus": str(folder / "corpus"),
        "texts": None,
        "changes": 5 if arguments.trial else 20,
        "seconds": 2 if arguments.trial else 10,
    }


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of both sides: no settings of the user's, a cache of its own, what the programs share.

    The folder of this script is not on the path of either, where its name would stand for LangChain's package.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    return {**kept, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(PROGRAMS)}


def _check_memory(sides: Sequence[Contestant]) -> None:
    lowest = min(told["memory"] for side in sides for rounds in side.told.values() for told in rounds)
    if lowest <= (own := own_peak()):
        raise RuntimeError(f"no peak memory can be told: the lowest is {lowest:.0f} MiB, the benchmark's {own:.0f}")


def _parts(
    sides: tuple[Contestant, Contestant], arguments: argparse.Namespace, request: Mapping[str, Any], load: float
) -> list[str]:
    about = (
        f"{arguments.texts:,} made-up documents, whose vectors of {DIM} dimensions are given, in `RagVectorStore` and "
        f"in langchain-community's `FAISS`, both with their defaults; k is {K}."
    )
    return [
        "## LangChain: RagVectorStore and FAISS",
        about,
        tables.costs(*sides, arguments.texts, request["changes"]),
        "Filtered search; each question has a filter of its own:",
        tables.filtered(*sides, FILTERS),
        "One store in one process, asked by eight threads at once:",
        tables.crowds(*sides),
        tables.failures(sides, arguments.rounds),
        _notes(arguments, request, load),
    ]


def _notes(arguments: argparse.Namespace, request: Mapping[str, Any], load: float) -> str:
    # The interpreter of this process is that of the environment that ragembed is installed in.
    mine, others = packages(sys.executable), packages(LANGCHAIN.python)
    return f"""\
- The ratio is RagVectorStore ÷ FAISS, of medians: below 1, ragembed takes less; of answers a second, above 1, it gives
  more. Cells are medians of {arguments.rounds} rounds, in brackets the least and the most. Each task is a process of
  its own, and the sides take turns.
- The work is not the same. RagVectorStore writes each change into its folder, with fsync, before the call returns, and
  keeps the words of the texts too, for BM25. FAISS keeps everything in memory; on the disk it is when `save_local` has
  written all of it anew, with pickle and without fsync. "In memory alone" leaves that out for FAISS; ragembed's time
  beside it is that on the disk.
- Peak memory is that of the whole process, with its imports; in adding, with the texts and vectors that are given.
- Search is by text, whose vector is looked up; one thread asks, and every question was asked once before. Right is what
  is as near as the tenth of exact search, but for rounding to float16.
- Filters select at random. FAISS takes the `fetch_k` nearest, by default 20, and then drops what does not match; once
  more it is told to take all documents. The first time is that of a filter that was not used before, after another of
  the same form. "Returned" and "right" are shares of min(k, matches).
- {THREADS} threads: an answer is wrong that differs from what a single thread was given. With a writer: one document
  after the other is added, with pauses of {1000 * PAUSE:.0f} ms, each of which some questions have to find from then
  on; an answer is wrong that is not the one of any moment between question and answer. ragembed's writer writes to the
  disk, FAISS's to memory alone. {request["seconds"]} s a round. The benchmark adds no lock.
- {date.today().isoformat()}; {machine()}; load average {load:.1f} at the start; seed {arguments.seed}. Times are those
  of one machine: a difference of a tenth means nothing.
- ragembed's side: {_versions(mine, _OUR_PACKAGES)}.
- LangChain's side: {_versions(others, _PEER_PACKAGES)}."""


def _versions(installed: Mapping[str, str], wanted: Sequence[str]) -> str:
    return ", ".join(f"{name} {installed.get(name, '(absent)')}" for name in wanted)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
