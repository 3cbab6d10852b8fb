"""A hundred SIGKILLs at random moments of every command that writes; then the same command again, to its end.

After a kill the store opens, answers, is a state that was committed, and `ragembed verify` finds nothing; after the
next run it holds and answers what a store that is built anew does, and at most one batch of texts was encoded twice.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from report import table

from ragembed.indexes import Store
from ragembed.indexes.layout import is_store
from ragembed.indexes.writer import BATCH
from reliability.commands import CASES, Case
from reliability.common import finish, parser, scratch, told
from reliability.corpus import make_corpus, questions
from reliability.stores import Answers, Cli, Content, answers, content, leftovers, same_answers

_QUESTIONS = 6


@dataclass
class Tally:
    """What became of the kills of one command: ``seconds`` is how long it takes when nobody kills it."""

    seconds: float = 0.0
    kills: int = 0
    stores: int = 0
    opened: int = 0
    committed: int = 0
    clean: int = 0
    finished: int = 0
    repeated: int = 0
    moments: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("before", "between", "after"), 0))
    broken: list[str] = field(default_factory=list)


class Trials:
    """The kills of one command; ``folder`` has what it begins with."""

    def __init__(self, name: str, case: Case, folder: Path, asked: Sequence[str]) -> None:
        self._name = name
        self._case = case
        self._folder = folder
        self._asked = asked
        self._generations = (_generation(folder), 0)
        self._encodes = 0
        self._clean: dict[str, Answers] = {}
        self.tally = Tally()

    def run(self, kills: int, rng: np.random.Generator) -> Tally:
        """Kill the command ``kills`` times, at moments drawn evenly from the time that it takes."""
        for _ in range(2):  # the first run warms caches
            self._measure()
        while self.tally.kills < kills:
            delay = float(rng.uniform(0, self.tally.seconds))
            with self._copy() as cli:
                if self._is_killed(cli, delay):
                    self.tally.kills += 1
                    self._check(cli, f"{self._name}, killed after {delay:.3f} s")
            told(f"{self._name}: {self.tally.kills} of {kills} kills")
        return self.tally

    @contextmanager
    def _copy(self) -> Iterator[Cli]:
        cli = Cli(self._folder.with_name(f"{self._folder.name}.trial"), self._folder.with_name("encoded"))
        shutil.copytree(self._folder, cli.folder)
        cli.texts_encoded()
        try:
            yield cli
        finally:
            shutil.rmtree(cli.folder)

    def _measure(self) -> None:
        with self._copy() as cli:
            started = time.perf_counter()
            cli.must(*self._case.arguments)
            self.tally.seconds = time.perf_counter() - started
            self._encodes = cli.texts_encoded()
            self._generations = (self._generations[0], _generation(cli.folder))

    def _is_killed(self, cli: Cli, delay: float) -> bool:
        with cli.start(*self._case.arguments) as process:
            time.sleep(delay)
            process.kill()
            process.communicate()
        return process.returncode < 0

    def _check(self, cli: Cli, where: str) -> None:
        tally, encoded = self.tally, cli.texts_encoded()
        tally.moments[self._moment(cli)] += 1
        found: Content = {}
        if is_store(cli.store):
            tally.stores += 1
            found = content(cli.store)
            answered = answers(cli.store, self._asked[:1], self._case.modes)
            answers_something = all(answered) or not any(found.values())
            tally.opened += self._kept(answers_something, where, "the store does not answer")
            problems = set(cli.verify()[1]) - set(self._case.damage)
            tally.clean += self._kept(not problems, where, f"verify found {problems}")
        tally.committed += self._kept(self._is_committed(found), where, "the store is no state that was committed")
        tally.finished += self._finishes(cli, where, encoded)

    def _finishes(self, cli: Cli, where: str, encoded: int) -> bool:
        cli.texts_encoded()  # those of verify do not count
        done = cli.run(*self._case.arguments)
        ended = done.returncode == 0 or (done.returncode == 1 and self._case.may_be_done)
        if not self._kept(ended, where, f"the next run ended with {done.returncode}: {done.stderr.strip()}"):
            return False
        twice = encoded + cli.texts_encoded() - self._encodes
        self.tally.repeated = max(self.tally.repeated, twice)
        within = twice <= BATCH or bool(self._case.damage)  # a damaged segment is made anew as a whole
        problems = cli.verify()[1]
        left = ", ".join(leftovers(cli.store))
        kept = (
            self._kept(within, where, f"{twice:,} texts were encoded twice"),
            self._kept(not problems, where, f"after the next run, verify found {problems}"),
            self._kept(content(cli.store) == self._case.after, where, "the next run did not make what it should"),
            self._kept(self._is_as_built_anew(cli.store), where, "answers are not those of a store built anew"),
            self._kept(not left, where, f"{left} is left over"),
        )
        return all(kept)

    def _kept(self, kept: bool, where: str, otherwise: str) -> bool:
        if not kept:
            self.tally.broken.append(f"{where}: {otherwise}")
        return kept

    def _is_committed(self, found: Content) -> bool:
        before, after = self._case.before, self._case.after
        if self._case.at_once:
            return found in (before, after)
        names = before.keys() | after.keys() | found.keys()
        return all(found.get(name) in (before.get(name), after.get(name)) for name in names)

    def _moment(self, cli: Cli) -> str:
        first, last = self._generations
        generation = _generation(cli.folder)
        return "before" if generation == first else "after" if generation == last else "between"

    def _is_as_built_anew(self, finished: Path) -> bool:
        """Compare the answers with those of a store built with the same embedder of what the command makes."""
        wanted = {chunk_id for chunks in self._case.after.values() for chunk_id, _ in chunks}
        with Store.open(finished) as store:
            embedder = store.embedder
            if embedder.fingerprint not in self._clean:
                records = [record for record in store.chunks() if record.id in wanted]
                path = self._folder.with_name(f"{self._folder.name}.clean")
                with Store.create(path, embedder) as clean, clean.writer() as writer:
                    writer.stage(record.chunk.embedded_text for record in records)
                    writer.commit(chunks=records, sources=list(store.sources().values()))
                self._clean[embedder.fingerprint] = answers(path, self._asked)
                shutil.rmtree(path)
            expected = self._clean[embedder.fingerprint]
        return same_answers(answers(finished, self._asked), expected)


def _generation(folder: Path) -> int:
    """Return the generation of the store in ``folder``, -1 where there is none."""
    cli = Cli(folder)
    if not is_store(cli.store):
        return -1
    with Store.open(cli.store) as store:
        generation: int = store.status()["generation"]
    return generation


def measure(
    folder: Path, kills: int, seed: int, files: int, rows: int, only: Collection[str] = CASES
) -> dict[str, Tally]:
    """Kill the commands ``only`` about ``kills`` times, all together; returns what became of it by command.

    ``files`` and ``rows`` make the corpus of ``index``; other commands have some times as much.
    """
    asked = questions(seed, _QUESTIONS)
    total = sum(CASES[name].share for name in only)
    tallies = {}
    for i, name in enumerate(only):
        share, scale, prepare = CASES[name]
        corpus = make_corpus(seed, files * scale, rows * scale)
        place = folder / f"case-{i}"
        place.mkdir()
        trials = Trials(name, prepare(Cli(place), corpus), place, asked)
        tallies[name] = trials.run(max(1, round(kills * share / total)), np.random.default_rng([seed, i]))
        shutil.rmtree(place)
    return tallies


def main() -> None:
    """Measure, print the table and put it into the page of results."""
    options = parser(__doc__, "about 25 minutes; a trial two")
    options.add_argument("--kills", type=int, help="default: 100, in a trial 8")
    options.add_argument("--command", choices=CASES, action="append", help="one of the commands; may be repeated")
    arguments = options.parse_args()
    files, rows, kills = (40, 1200, 8) if arguments.trial else (160, 2500, 100)
    with scratch(arguments.folder) as folder:
        tallies = measure(folder, arguments.kills or kills, arguments.seed, files, rows, arguments.command or CASES)
    about = (
        "SIGKILL at moments drawn evenly from the time that a command takes, the start of its process included; seed "
        f"{arguments.seed}. Then: where there is a store, it opens and answers; every file's chunks are those before "
        "or those after the command, and in all commands but `index` those of all files together; `ragembed verify` "
        "exits with 0, or, where damage was to be repaired, finds no other. Finished: the same command succeeds, "
        f"`verify` is clean, ids and texts are those of a store built anew, the ten best of {2 * _QUESTIONS} searches "
        "are those of one built with the same embedder, and nothing is left over. Before, between and after tell "
        f"which commits the killed run had made: none, some, all. A batch has {BATCH:,} texts."
    )
    header = ["command", "takes, s", "kills", "store there", "answers", "committed", "verify clean", "finished"]
    header += ["before / between / after", "most texts encoded twice"]
    rows_of_table = [_row(name, tally) for name, tally in tallies.items()]
    broken = [sentence for tally in tallies.values() for sentence in tally.broken]
    finish("kills", "kills", [about, table(header, rows_of_table)], broken, trial=arguments.trial)


def _row(name: str, tally: Tally) -> list[str]:
    counts = (tally.kills, tally.stores, tally.opened, tally.committed, tally.clean, tally.finished)
    moments = " / ".join(map(str, tally.moments.values()))
    return [f"`{name}`", f"{tally.seconds:.1f}", *map(str, counts), moments, f"{tally.repeated:,}"]


if __name__ == "__main__":
    main()
