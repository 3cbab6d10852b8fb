"""``ragembed verify``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ragembed.cli import ERROR_EXIT
from ragembed.cli.options import WritingCommand, format_option, store_option
from ragembed.cli.output import counted, say
from ragembed.cli.progress import StderrProgress
from ragembed.cli.searched import StoreReport, each_in_option, report_stores
from ragembed.indexes.verify import Part, Problem, Report, verify_store
from ragembed.printable import readable_bytes

_LASTING = {Part.DATABASE, Part.CANARY}
"""Parts that cannot be repaired."""


@click.command(name="verify", cls=WritingCommand)
@click.option(
    "--repair", is_flag=True, help="Rebuild damaged indexes from their vectors, and damaged vectors from their texts."
)
@click.option(
    "--trust-database",
    is_flag=True,
    help="With --repair, accept the rows in store.db even if they differ from the committed ones.",
)
@store_option
@each_in_option
@format_option
def command(
    repair: bool,
    trust_database: bool,
    store: Path | None,
    collections: str | None,
    wait_seconds: float,
    output: str,
) -> None:
    """Check a store for damage and repair it.

    \b
    ragembed verify
    ragembed verify --repair

    Reads the whole store. SQLite checks the database and the full-text index. Every row is compared with the digest of
    its table, every file with its hash, and every index with its vectors. Some texts are encoded again and compared
    with their vectors.

    Exit status: 0 if the store is undamaged, 2 if it is damaged.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    if trust_database and not repair:
        raise click.UsageError("--trust-database applies only with --repair: add --repair")

    def examined(where: Path) -> StoreReport:
        report = verify_store(
            where,
            progress=StderrProgress(),
            repair=repair,
            trust_database=trust_database,
            wait_seconds=wait_seconds,
        )
        status = ERROR_EXIT if report.problems else 0
        return StoreReport(_as_dict(report), lambda: _print(report, repair=repair), status)

    report_stores(store, collections, output, examined)


def _print(report: Report, *, repair: bool) -> None:
    for problem in report.repaired:
        say(f"rebuilt {problem.file}, because {problem.message}")
    for problem in report.problems:
        say(f"{problem.file}: {problem.message}")
    for note in report.notes:
        say(f"note: {note}", err=True)
    read = f"{counted(report.files, 'file')} ({readable_bytes(report.bytes)})"
    if not report.problems:
        say(
            f"{read}, {counted(report.chunks, 'chunk')}, {counted(report.vectors, 'vector')} in "
            f"{counted(report.segments, 'segment')}, {counted(report.canaries, 'text')} encoded again: no damage found"
        )
        return
    remedy = (
        "" if repair or report.parts() <= _LASTING else "; run ragembed verify --repair to rebuild the damaged parts"
    )
    say(f"{counted(len(report.problems), 'problem')} in {read}{remedy}", err=True)


def _as_dict(report: Report) -> dict[str, Any]:
    fields = asdict(report)
    fields["problems"] = [_problem(problem) for problem in report.problems]
    fields["repaired"] = [_problem(problem) for problem in report.repaired]
    return {"ok": not report.problems, **fields}


def _problem(problem: Problem) -> dict[str, Any]:
    return {"part": problem.part.value, "file": problem.file, "message": problem.message}
