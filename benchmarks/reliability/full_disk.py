"""Every command that writes, on a disk that becomes full at many moments, and in a folder that cannot be written.

It fails with one clear line, the store answers as before, `ragembed verify` finds nothing once there is space again,
and the same command then succeeds. The disk is a small tmpfs; mounting it takes root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from report import table

from ragembed.cli import ERROR_EXIT
from ragembed.errors import RagembedError
from ragembed.indexes.layout import is_store
from reliability.commands import CASES, Case
from reliability.common import finish, parser, scratch, told
from reliability.corpus import make_corpus, questions
from reliability.stores import ALL_MODES, Answers, Cli, answers, content, leftovers, same_answers

_DISK_MIB = 64
_QUESTIONS = 3
_FILLER = "filler"
_NO_MOUNT_EXIT = 2
_PAGE = 4096


@dataclass
class Tally:
    """What became of one command on disks with less and less free space: ``needs`` is what it takes, in bytes."""

    needs: int = 0
    runs: int = 0
    full: int = 0
    clear: int = 0
    answered_full: int = 0
    intact: int = 0
    done: int = 0
    clean: int = 0
    finished: int = 0
    broken: list[str] = field(default_factory=list)

    def kept(self, kept: bool, otherwise: str) -> bool:
        """Take note of a promise."""
        if not kept:
            self.broken.append(otherwise)
        return kept


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount an empty tmpfs at ``folder`` for the time of the ``with`` block; ends the script where that is refused."""
    folder.mkdir()
    mounted = _mount("-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", str(folder))
    if mounted.returncode:
        print(f"no disk can be mounted ({mounted.stderr.strip()}): run this as root", file=sys.stderr)
        sys.exit(_NO_MOUNT_EXIT)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)


class Disk:
    """One command on a disk at ``folder``; ``prepared`` has what it begins with."""

    def __init__(self, name: str, case: Case, prepared: Path, folder: Path, asked: Sequence[str]) -> None:
        self._name = name
        self._case = case
        self._prepared = prepared
        self._folder = folder
        self._asked = asked
        self._cli = Cli(folder / "work")
        self.tally = Tally()

    def run(self, levels: int) -> Tally:
        """Run the command at ``levels`` of free space, from none to what it takes."""
        before = self._answers(Cli(self._prepared)) if self._case.before else []
        self.tally.needs = self._needs()
        for level in range(levels):
            free = self.tally.needs * level // levels
            self._begin()
            _fill(self._folder, free)
            self._check(before, f"{self._name}, {free:,} bytes free")
            told(f"{self._name}: {level + 1} of {levels} levels")
        return self.tally

    def _begin(self) -> None:
        for entry in self._folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(self._prepared, self._cli.folder)

    def _needs(self) -> int:
        """Return the least space that the command succeeds with, to a twentieth, in bytes."""
        low, high = 0, _DISK_MIB << 20
        while high - low > max(_PAGE, high // 20):
            middle = (low + high) // 2
            self._begin()
            _fill(self._folder, middle)
            low, high = (low, middle) if self._cli.run(*self._case.arguments).returncode == 0 else (middle, high)
        return high

    def _answers(self, cli: Cli) -> Answers:
        return answers(cli.store, self._asked, ALL_MODES)

    def _check(self, before: Answers, where: str) -> None:
        tally, case = self.tally, self._case
        done = self._cli.run(*case.arguments)
        tally.runs += 1
        if done.returncode == 0:
            (self._folder / _FILLER).unlink()
        else:
            tally.full += 1
            lines = done.stderr.strip().splitlines()
            errors = [line for line in lines if line.startswith("Error: ")]
            clear = done.returncode == ERROR_EXIT and len(errors) == 1 and lines[-1] == errors[0]
            tally.clear += tally.kept(clear, f"{where}: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
            tally.answered_full += self._reads_full()
            (self._folder / _FILLER).unlink()
            tally.intact += tally.kept(self._is_intact(before), f"{where}: the former state is not intact")
            tally.done += is_store(self._cli.store) and content(self._cli.store) == case.after != case.before
            if is_store(self._cli.store):
                problems = self._cli.verify()[1]
                tally.clean += tally.kept(not problems, f"{where}: verify found {problems}")
            else:
                tally.clean += 1
        again = self._cli.run(*case.arguments)
        ended = again.returncode == 0 or (again.returncode == 1 and case.may_be_done)
        ended = tally.kept(ended, f"{where}: the next run ended with {again.returncode}: {again.stderr.strip()}")
        finished = ended and content(self._cli.store) == case.after and not self._cli.verify()[1]
        finished = tally.kept(finished, f"{where}: the next run did not make what it should")
        left = leftovers(self._cli.store) if ended else []
        tally.finished += tally.kept(not left, f"{where}: {', '.join(left)} is left over") and finished

    def _reads_full(self) -> bool:
        """Tell whether the store is read while the disk is full."""
        if is_store(self._cli.store):
            try:
                self._answers(self._cli)
            except RagembedError:
                return False
        return True

    def _is_intact(self, before: Answers) -> bool:
        """Tell whether the store is as before or after the command, or, if that commits batches, each of its files."""
        if not is_store(self._cli.store):
            return not self._case.before
        found = content(self._cli.store)
        if found == self._case.before:
            return same_answers(self._answers(self._cli), before) if self._case.at_once else True
        if self._case.at_once:
            return found == self._case.after
        names = found.keys() | self._case.before.keys() | self._case.after.keys()
        return all(found.get(name) in (self._case.before.get(name), self._case.after.get(name)) for name in names)


def _fill(folder: Path, free: int) -> None:
    """Write a file so that ``free`` bytes, in whole pages, are left on the disk."""
    status = os.statvfs(folder)
    size = status.f_bavail * status.f_frsize - free // _PAGE * _PAGE
    with (folder / _FILLER).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))


def read_only(folder: Path, seed: int, files: int, rows: int) -> tuple[list[list[str]], list[str]]:
    """Make a store on a disk, remount that read-only, and query and index; returns rows of a table, and what failed."""
    broken = []
    with small_disk(folder / "read-only") as disk:
        cli = Cli(disk / "work")
        cli.folder.mkdir()
        case = CASES["index after edits"].prepare(cli, make_corpus(seed, files, rows))
        asked = questions(seed, 1)[0]
        before = cli.must("query", asked, "--json")
        if (mounted := _mount("-o", "remount,ro", str(disk))).returncode:
            raise RuntimeError(f"the disk cannot be made read-only: {mounted.stderr.strip()}")
        rows_of_table = []
        for arguments in (("query", asked, "--json"), ("verify",), case.arguments, ("delete", "docs"), ("optimize",)):
            done = cli.run(*arguments)
            reads = arguments[0] in ("query", "verify")
            lines = done.stderr.strip().splitlines()
            kept = done.returncode == 0 if reads else (done.returncode, len(lines)) == (ERROR_EXIT, 1)
            if arguments[0] == "query":
                kept = kept and done.stdout == before
            said = "" if reads and kept else done.stderr.strip().replace(f"{disk}/work/", "")
            rows_of_table.append([f"`ragembed {arguments[0]}`", str(done.returncode), said])
            if not kept:
                broken.append(f"in a read-only folder, {arguments[0]} ended with {done.returncode}: {done.stderr}")
    return rows_of_table, broken


COMMANDS = ("index", "index after edits", "delete PATH", "delete --where", "refit", "optimize")


def measure(
    folder: Path, levels: int, seed: int, files: int, rows: int, only: Collection[str] = COMMANDS
) -> dict[str, Tally]:
    """Run commands at ``levels`` of free space each; returns what became of it by command."""
    corpus, asked = make_corpus(seed, files, rows), questions(seed, _QUESTIONS)
    tallies = {}
    for i, name in enumerate(only):
        place = folder / f"case-{i}"
        place.mkdir()
        case = CASES[name].prepare(Cli(place), corpus)
        with small_disk(folder / f"disk-{i}") as disk:
            tallies[name] = Disk(name, case, place, disk, asked).run(levels)
    return tallies


def main() -> None:
    """Measure, print the tables and put them into the page of results."""
    options = parser(__doc__, "about 15 minutes; a trial three")
    options.add_argument("--levels", type=int, help="of free space for each command (default: 25, in a trial 4)")
    options.add_argument("--command", choices=COMMANDS, action="append", help="one of the commands; may be repeated")
    arguments = options.parse_args()
    files, rows, levels = (20, 1200, 4) if arguments.trial else (60, 2500, 25)
    with scratch(arguments.folder) as folder:
        levels = arguments.levels or levels
        tallies = measure(folder, levels, arguments.seed, files, rows, arguments.command or COMMANDS)
        rows_of_table, broken = read_only(folder, arguments.seed, files, rows)
    about = (
        f"A tmpfs of {_DISK_MIB} MiB with the store and, at {levels} levels of free space, from none to what the "
        f"command needs, a file that takes the rest; seed {arguments.seed}. One clear line: exit status {ERROR_EXIT} "
        "and one line that begins with `Error:`. Intact: with space again, the store holds and answers what it did "
        "before, or holds what the command makes of it; where `index` commits batches, this goes for each file. Done: "
        "the command had made its change when it failed, at what comes after, such as merging. Finished: the next run "
        "makes what it should."
    )
    header = ["command", "needs, MiB", "runs", "full", "one clear line", "read while full", "intact", "done"]
    measured = [_row(name, tally) for name, tally in tallies.items()]
    parts = [about, table([*header, "verify clean", "finished"], measured), "On a disk that is mounted read-only:"]
    parts.append(table(["command", "exit status", "says"], rows_of_table))
    broken = [*(sentence for tally in tallies.values() for sentence in tally.broken), *broken]
    finish("full-disk", "full and read-only disks", parts, broken, trial=arguments.trial)


def _row(name: str, tally: Tally) -> list[str]:
    counts = (tally.runs, tally.full, tally.clear, tally.answered_full, tally.intact, tally.done, tally.clean)
    return [f"`{name}`", f"{tally.needs / 2**20:.1f}", *map(str, counts), str(tally.finished)]


if __name__ == "__main__":
    main()
