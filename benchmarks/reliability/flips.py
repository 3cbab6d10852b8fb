"""Three hundred altered bytes, one at a time, in every kind of file of a store; sizes and times of the files unchanged.

`ragembed verify` finds each and names the file. A segment or embedder whose time tells is refused by a search. Then one
byte of each kind is altered again and repaired: the answers are the former ones, or the repair says why it cannot be.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from report import table

from ragembed.cli import ERROR_EXIT
from ragembed.documents.model import Chunk
from ragembed.errors import RagembedError
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.layout import DATABASE, EMBEDDERS, GITIGNORE, RAW, SEGMENTS
from ragembed.indexes.layout import INDEX as INDEX_FILE
from reliability.common import finish, parser, scratch, told
from reliability.corpus import WORDS, make_corpus, questions, words, write_corpus
from reliability.damage import flip
from reliability.stores import ALL_MODES, INDEX, Cli, answers, same_answers

_QUESTIONS = 4
_HEADER_BYTES = 100
_ADDED = 30


@dataclass(frozen=True, slots=True)
class Kind:
    """Files to alter, by a pattern below a store's folder; of a header, the bytes before ``stop``.

    ``logged``: in a store whose writer was killed, so that its last commits are in the log. ``is_mapped``: searches
    read the file's hash first.
    """

    name: str
    pattern: str
    share: int
    logged: bool = False
    stop: int | None = None
    is_mapped: bool = False


KINDS = (
    Kind(f"{DATABASE}, header", DATABASE, 40, stop=_HEADER_BYTES),
    Kind(DATABASE, DATABASE, 80),
    Kind(f"{DATABASE}-sums", f"{DATABASE}-sums", 30),
    Kind(f"{DATABASE}-wal", f"{DATABASE}-wal", 40, logged=True),
    Kind(f"{DATABASE} under a log", DATABASE, 20, logged=True),
    Kind(RAW, f"{SEGMENTS}/*/{RAW}", 25, is_mapped=True),
    Kind(INDEX_FILE, f"{SEGMENTS}/*/{INDEX_FILE}", 25, is_mapped=True),
    Kind("config.json", f"{EMBEDDERS}/*/config.json", 20, is_mapped=True),
    Kind("state.safetensors", f"{EMBEDDERS}/*/state.safetensors", 15, is_mapped=True),
    Kind("baseline", f"{EMBEDDERS}/*/baseline-*.safetensors", 15),
    Kind(GITIGNORE, GITIGNORE, 5),
)


@dataclass
class Tally:
    """What became of the altered bytes of one kind; ``repair`` says it in a word."""

    flips: int = 0
    found: int = 0
    named: int = 0
    refused: str = "–"
    repair: str = ""
    broken: list[str] = field(default_factory=list)

    def kept(self, kept: bool, otherwise: str) -> bool:
        """Take note of a promise."""
        if not kept:
            self.broken.append(otherwise)
        return kept


def make_stores(folder: Path, files: int, rows: int, seed: int) -> tuple[Cli, Cli]:
    """Make two stores with the same documents: a closed one, and one whose writer was killed after two commits."""
    closed, logged = Cli(folder / "closed"), Cli(folder / "logged")
    closed.folder.mkdir()
    write_corpus(closed.folder, make_corpus(seed, files, rows))
    closed.must(*INDEX)
    shutil.copytree(closed.folder, logged.folder)
    process = multiprocessing.get_context("spawn").Process(target=_write_and_die, args=(logged.store, seed))
    process.start()
    process.join()
    if process.exitcode != -signal.SIGKILL or not (logged.store / f"{DATABASE}-wal").stat().st_size:
        raise RuntimeError(f"the writer ended with {process.exitcode} and left no log")
    return closed, logged


def _write_and_die(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with Store.open(path) as store, store.writer() as writer:
        for half in range(2):
            records = [ChunkRecord(f"added-{half}-{i}", Chunk(words(rng, 12))) for i in range(_ADDED)]
            writer.stage(record.chunk.embedded_text for record in records)
            writer.commit(chunks=records)
        os.kill(os.getpid(), signal.SIGKILL)


def measure_kind(kind: Kind, cli: Cli, count: int, rng: np.random.Generator) -> Tally:
    """Alter ``count`` bytes of a kind in a store, one at a time, and repair one more in a copy of the store."""
    files = sorted(cli.store.glob(kind.pattern))
    tally = Tally(flips=count)
    for _ in range(count):
        file = files[rng.integers(len(files))]
        offset = int(rng.integers(min(file.stat().st_size, kind.stop or file.stat().st_size)))
        bits = int(rng.integers(1, 256))
        with _altered(file, offset, bits):
            status, problems = cli.verify()
        where = f"{kind.name}, byte {offset:,} ^ {bits:#x}"
        names = [name for _, name in problems]
        tally.found += tally.kept(status == ERROR_EXIT, f"{where}: exit status {status}, {names}")
        tally.named += tally.kept(any(map(_naming(file, cli.store), names)), f"{where}: {names} was named")
    if kind.is_mapped:
        refused = [_is_refused(cli.store, file, tally) for file in files]
        tally.refused = "yes" if all(refused) else "no"
    tally.repair = _repair(kind, cli, rng, tally)
    return tally


@contextmanager
def _altered(file: Path, offset: int, bits: int) -> Iterator[None]:
    flip(file, offset, bits, keep_time=True)
    try:
        yield
    finally:
        flip(file, offset, bits, keep_time=True)


def _naming(file: Path, store: Path) -> Callable[[str], bool]:
    """Return what tells whether a problem's file, or the error in the place of problems, names ``file``."""
    return lambda named: named == file.relative_to(store).as_posix() or named.startswith(f"Error: {file} ")


def _is_refused(store: Path, file: Path, tally: Tally) -> bool:
    """Tell whether searching names a file whose time has changed with one of its bytes."""
    before = file.stat()
    flip(file, before.st_size // 2, 1)
    try:
        answers(store, [" ".join(WORDS[:5])], ALL_MODES)
    except RagembedError as error:
        return tally.kept(str(file) in str(error), f"a search of a changed {file.name} says: {error}")
    else:
        return tally.kept(kept=False, otherwise=f"a search did not refuse a changed {file.name}")
    finally:
        flip(file, before.st_size // 2, 1)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _repair(kind: Kind, cli: Cli, rng: np.random.Generator, tally: Tally) -> str:
    """Repair one altered byte in a copy of a store; returns what came of it."""
    asked = questions(int(rng.integers(1 << 31)), _QUESTIONS)
    copy = Cli(cli.folder.with_name("repaired"))
    shutil.copytree(cli.folder, copy.folder)
    try:
        before = answers(copy.store, asked)
        file = next(copy.store.glob(kind.pattern))
        size = min(file.stat().st_size, kind.stop or file.stat().st_size)
        flip(file, size // 2, 1 << int(rng.integers(8)), keep_time=True)
        done = copy.run("verify", "--repair", "--json")
        if done.returncode:
            says = bool(done.stdout and json.loads(done.stdout)["notes"])
            tally.kept(says, f"{kind.name}: not repaired, and no note says why: {done.stderr.strip()}")
            return "no, and says why" if says else "no"
        alike = same_answers(answers(copy.store, asked), before)
        tally.kept(alike, f"{kind.name}: after the repair, answers are others")
        return "answers as before" if alike else "answers are others"
    finally:
        shutil.rmtree(copy.folder)


def measure(
    folder: Path, flips: int, seed: int, files: int, rows: int, kinds: Sequence[Kind] = KINDS
) -> dict[str, Tally]:
    """Alter about ``flips`` bytes, over all ``kinds`` by their shares; returns what became of it by kind."""
    closed, logged = make_stores(folder, files, rows, seed)
    total = sum(kind.share for kind in kinds)
    tallies = {}
    for i, kind in enumerate(kinds):
        count = max(1, round(flips * kind.share / total))
        cli = logged if kind.logged else closed
        tallies[kind.name] = measure_kind(kind, cli, count, np.random.default_rng([seed, i]))
        told(f"{kind.name}: {count} bytes")
    return tallies


def main() -> None:
    """Measure, print the table and put it into the page of results."""
    options = parser(__doc__, "about two minutes; a trial 20 seconds")
    options.add_argument("--flips", type=int, help="default: 300, in a trial 40")
    arguments = options.parse_args()
    files, rows, flips = (20, 1200, 40) if arguments.trial else (60, 2500, 300)
    with scratch(arguments.folder) as folder:
        tallies = measure(folder, arguments.flips or flips, arguments.seed, files, rows)
    about = (
        f"Single bytes, drawn with the bits that are turned in them (seed {arguments.seed}), altered with size and "
        "time of the file as before, as a failing disk does it. Found: `ragembed verify` tells of a problem; named: "
        "with that file. Refused: with a time that has changed, a search names the file in the place of an answer. "
        f"Repaired: `verify --repair` on one more, and the ten best of {2 * _QUESTIONS} searches before and after."
    )
    header = ["file", "bytes altered", "found", "named", "refused by a search", "repaired"]
    rows_of_table = [
        [f"`{name}`", str(tally.flips), str(tally.found), str(tally.named), tally.refused, tally.repair]
        for name, tally in tallies.items()
    ]
    broken = [sentence for tally in tallies.values() for sentence in tally.broken]
    finish("flips", "altered bytes", [about, table(header, rows_of_table)], broken, trial=arguments.trial)


if __name__ == "__main__":
    main()
