"""``ragembed doctor``."""

from __future__ import annotations

from pathlib import Path

import click

from ragembed.cli import ERROR_EXIT
from ragembed.cli.options import format_option, quiet_option, store_option
from ragembed.cli.output import counted, print_records, say, shown_path
from ragembed.cli.progress import StderrProgress
from ragembed.cli.project import choose_store
from ragembed.indexes.doctor import Diagnosis, Finding, diagnose
from ragembed.indexes.doctor.run import CHECKS

EXIT = {None: 0, "hint": 0, "problem": 1, "damage": ERROR_EXIT}
"""The exit status for the severity of the worst finding."""


@click.command(name="doctor")
@store_option
@quiet_option
@format_option
@click.pass_context
def command(context: click.Context, store: Path | None, quiet: bool, output: str) -> None:
    """Check a store and its files in every way, and say what to do.

    \b
    ragembed doctor
    ragembed doctor --json

    Looks for damage, changed and unreadable files, drift, texts in other languages than the model's, boilerplate,
    duplicates, cut tables and code, an index that misses its recall, missing extras and versions that do not match.
    Prints the findings with the greatest effect first, each with the command that fixes it. Nothing is changed, and
    another process may write meanwhile. Of large stores, some checks read a sample and say so.

    Exit status: 0 if there is nothing to do, or only hints; 1 if results are affected; 2 if the store is damaged.
    """  # noqa: D301  click reads the backspace character as "do not wrap"
    where = choose_store(store)
    diagnosis = diagnose(where, StderrProgress(quiet=quiet))
    if not print_records(diagnosis.to_dict(), "findings", output):
        _print(diagnosis, where, quiet=quiet)
    context.exit(EXIT[diagnosis.severity])


def _print(diagnosis: Diagnosis, store: Path, *, quiet: bool) -> None:
    for finding in diagnosis.findings:
        _print_finding(finding)
    for skipped in diagnosis.not_run:
        say(f"not run: {skipped.check}: {skipped.reason}")
    if quiet:
        return
    for note in diagnosis.notes:
        say(f"note: {note}", err=True)
    checks = len(CHECKS) + 1
    say(
        f"{counted(len(diagnosis.findings), 'finding')} in {shown_path(store)}; "
        f"{checks - len(diagnosis.not_run):,} of {counted(checks, 'check')} ran",
        err=True,
    )


def _print_finding(finding: Finding) -> None:
    say(f"{finding.severity}: {finding.title} [{finding.id}]")
    say(f"    {finding.detail}")
    for example in finding.examples:
        say(f"    - {example}")
    if finding.count > len(finding.examples) > 0:
        say(f"    - and {finding.count - len(finding.examples):,} more")
    say(f"    $ {finding.command}")
