"""``ragembed verify``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ragembed.cli import ERROR_EXIT
from ragembed.cli.options import WritingCommand, format_option, store_option
from ragembed.cli.output import print_record, readable_bytes, say
from ragembed.cli.progress import StderrProgress
from ragembed.indexes.storage.layout import choose_store
from ragembed.indexes.verify import Part, Problem, Report, verify_store

_LASTING = {Part.DATABASE, Part.CANARY}
"""What a repair cannot mend."""


@click.command(cls=WritingCommand)
@click.option(
    "--repair", is_flag=True, help="Rebuild what can be: an index from its vectors, vectors from their texts."
)
@click.option(
    "--trust-database",
    is_flag=True,
    help="With --repair: accept the rows of store.db although they are not what was committed.",
)
@store_option
@format_option
def command(repair: bool, trust_database: bool, store: Path | None, wait_seconds: float, output: str) -> None:
    """Read a whole store and report everything that could change an answer.

    SQLite checks the database and the full-text index. Every row is compared with the digest of its table, every file
    with its hash, every index with the vectors that it was made from, and some texts are encoded again. Exit status: 0
    if all is as it was committed, 2 if something is not.
    """
    if trust_database and not repair:
        raise click.UsageError("--trust-database says how to repair: give it with --repair")
    report = verify_store(
        choose_store(store),
        progress=StderrProgress(),
        repair=repair,
        trust_database=trust_database,
        wait_seconds=wait_seconds,
    )
    if not print_record(_as_dict(report), output):
        _print(report, repair=repair)
    if report.problems:
        raise click.exceptions.Exit(ERROR_EXIT)


def _print(report: Report, *, repair: bool) -> None:
    for problem in report.repaired:
        say(f"rebuilt {problem.file}: {problem.message}")
    for problem in report.problems:
        say(f"{problem.file}: {problem.message}")
    for note in report.notes:
        say(f"note: {note}", err=True)
    read = f"{report.files:,} files ({readable_bytes(report.bytes)})"
    if not report.problems:
        say(
            f"{read}, {report.chunks:,} chunks, {report.vectors:,} vectors in {_segments(report.segments)}, "
            f"{report.canaries} texts encoded again: all is as it was committed"
        )
        return
    count = len(report.problems)
    remedy = (
        "" if repair or report.parts() <= _LASTING else "; rebuild what can be rebuilt with: ragembed verify --repair"
    )
    say(f"{count:,} {'problem' if count == 1 else 'problems'} in {read}{remedy}", err=True)


def _segments(count: int) -> str:
    return f"{count:,} {'segment' if count == 1 else 'segments'}"


def _as_dict(report: Report) -> dict[str, Any]:
    fields = asdict(report)
    fields["problems"] = [_problem(problem) for problem in report.problems]
    fields["repaired"] = [_problem(problem) for problem in report.repaired]
    return {"ok": not report.problems, **fields}


def _problem(problem: Problem) -> dict[str, Any]:
    return {"part": problem.part.value, "file": problem.file, "message": problem.message}
