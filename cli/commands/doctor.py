"""``ragembed doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ragembed.cli import ERROR_EXIT
from ragembed.cli.integrity import checked, repaired
from ragembed.cli.options import (
    INDEX_OPTIONS,
    WritingCommand,
    device_option,
    format_option,
    index_options,
    quiet_option,
    store_option,
)
from ragembed.cli.output import counted, say, shown_path
from ragembed.cli.searched import StoreReport, each_in_option, report_stores
from ragembed.indexes.doctor import Diagnosis, Finding, diagnose
from ragembed.indexes.doctor.diagnosis import CHECKS
from ragembed.progress import StderrProgress

EXIT = {None: 0, "hint": 0, "problem": 1, "damage": ERROR_EXIT}
"""The exit status for the severity of the worst finding."""


_ONLY_REPAIR = ("trust_database", "device", *INDEX_OPTIONS)


@click.command(name="doctor", cls=WritingCommand)
@click.option("--integrity", is_flag=True, help="Look only for damage, and compare each index with its vectors.")
@click.option(
    "--repair",
    is_flag=True,
    help="Rebuild damaged indexes from their vectors, and damaged vectors from their texts. Then compact the store.",
)
@click.option(
    "--trust-database",
    is_flag=True,
    default=None,
    help="With --repair, accept the rows in store.db even if they differ from the committed ones.",
)
@store_option
@each_in_option
@index_options
@device_option
@quiet_option
@format_option
def command(
    integrity: bool,
    repair: bool,
    trust_database: bool | None,
    store: Path | None,
    collections: str | None,
    device: str | None,
    quiet: bool,
    wait_seconds: float,
    output: str,
    **index: Any,
) -> None:
    """Check a store and its files in every way, and say what to do.

    \b
    ragembed doctor
    ragembed doctor --integrity
    ragembed doctor --repair

    Looks for damage, changed and unreadable files, drift, texts in other languages than the model's, boilerplate,
    duplicates, cut tables and code, an index that misses its recall, missing extras and versions that do not match.
    Prints the findings with the greatest effect first, each with the command that fixes it. Nothing is changed, and
    another process may write meanwhile. Of large stores, some checks read a sample and say so.

    --integrity reads the whole store instead. SQLite checks the database and the full-text index. Every row is compared
    with the digest of its table, every file with its hash, and every index with its vectors. Some texts are encoded
    again and compared with their vectors.

    --repair does the same, and rebuilds what is damaged. It then merges small segments, removes vectors that no chunk
    uses, frees unused space, and rebuilds an approximate index if the vectors have changed. With an index option, such
    as --index or --min-recall, it replaces the index. If it is interrupted, the next run continues it.

    Exit status: 0 if there is nothing to do, or only hints; 1 if results are affected; 2 if the store is damaged.
    """
    given = {"trust_database": trust_database, "device": device, **index}
    if not repair and (alone := [name for name in _ONLY_REPAIR if given[name] is not None]):
        option = next(each.opts[0] for each in click.get_current_context().command.params if each.name == alone[0])
        raise click.UsageError(f"{option} applies only with --repair: add --repair")
    if wait_seconds and not (repair or integrity):
        raise click.UsageError("--wait applies only with --integrity or --repair: add one of them")

    def examined(where: Path) -> StoreReport:
        if repair:
            trust = bool(trust_database)
            return repaired(where, index, device, trust_database=trust, quiet=quiet, wait_seconds=wait_seconds)
        if integrity:
            return checked(where, quiet=quiet, wait_seconds=wait_seconds)
        diagnosis = diagnose(where, StderrProgress(quiet=quiet))
        return StoreReport(
            diagnosis.to_dict(), lambda: _print(diagnosis, where, quiet=quiet), EXIT[diagnosis.severity], "findings"
        )

    report_stores(store, collections, output, examined)


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
