"""``ragembed doctor``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from ragembed.cli import ERROR_EXIT
from ragembed.cli.options import (
    INDEX_OPTIONS,
    WritingCommand,
    format_option,
    index_options,
    shared,
)
from ragembed.cli.output import counted, say, say_choice, shown_path, warnings_as_notes
from ragembed.cli.requests import index_config
from ragembed.cli.searched import StoreReport, each_in_option, report_stores, say_notes
from ragembed.errors import IncompatibleStoreError, ModelError
from ragembed.indexes import Diagnosis, Store, diagnose
from ragembed.indexes.doctor.diagnosis import CHECKS
from ragembed.indexes.integrity import Part, Problem, Report
from ragembed.indexes.verification import verify_store
from ragembed.printable import readable_bytes
from ragembed.progress import StderrProgress

EXIT = {None: 0, "hint": 0, "problem": 1, "damage": ERROR_EXIT}
"""The exit status for the severity of the worst finding."""

_ONLY_REPAIR = ("trust_database", "device", *INDEX_OPTIONS)
_LASTING = {Part.DATABASE, Part.CANARY}
"""Parts that cannot be repaired."""


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
@shared("store")
@each_in_option
@index_options
@shared("device", "quiet")
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

    Looks for damage, changed and unreadable files, drift, texts in other languages than the model's,
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
    options = {"trust_database": trust_database, "device": device, **index}
    if not repair and (alone := [name for name in _ONLY_REPAIR if options[name] is not None]):
        parameters = click.get_current_context().command.params
        option = next(parameter.opts[0] for parameter in parameters if parameter.name == alone[0])
        raise click.UsageError(f"{option} applies only with --repair: add --repair")
    if wait_seconds and not (repair or integrity):
        raise click.UsageError("--wait applies only with --integrity or --repair: add one of them")
    progress = StderrProgress(quiet=quiet)

    def examined(stores: Mapping[str, Path]) -> StoreReport:
        [where] = stores.values()
        if not (repair or integrity):
            diagnosis = diagnose(where, progress)
            show = partial(_print_diagnosis, diagnosis, where, quiet=quiet)
            return StoreReport(diagnosis.to_dict(), show, EXIT[diagnosis.severity], "findings")
        if repair:
            index_config(index, None)  # raises ConfigError for invalid options before anything is repaired
        report = verify_store(
            where, progress=progress, repair=repair, trust_database=bool(trust_database), wait_seconds=wait_seconds
        )
        compaction = _compaction(where, report, index, device, progress, wait_seconds) if repair else None
        fields = {
            **asdict(report),
            "problems": [_fields(problem) for problem in report.problems],
            "repaired": [_fields(problem) for problem in report.repaired],
            **({"compaction": compaction} if repair else {}),
        }
        show = partial(_print_report, report, compaction, repair=repair)
        return StoreReport({"ok": not report.problems, **fields}, show, ERROR_EXIT if report.problems else 0)

    report_stores(store, collections, output, examined)


def _compaction(
    where: Path,
    report: Report,
    index: Mapping[str, Any],
    device: str | None,
    progress: StderrProgress,
    wait_seconds: float,
) -> dict[str, Any] | None:
    """Compact a store without damage; return the sizes before and after, or None with a note if it cannot be done."""
    if report.problems:
        return None
    try:
        with Store.open(where, device=device) as store:
            before, old_choice, old_check = store.status(), store.index_choice(), store.index_check()
            with warnings_as_notes():
                store.optimize(progress, wait_seconds, index=index_config(index, store))
            after, choice, check = store.status(), store.index_choice(), store.index_check()
    except (IncompatibleStoreError, ModelError) as error:  # the command line cannot load the embedder
        if device is not None or any(value is not None for value in index.values()):
            raise
        report.notes.append(f"the store was checked, but not compacted: {error}")
        return None
    if choice is not None and check is not None and choice != old_choice and check != old_check:
        say_choice(choice, check)
    return {
        "segments": {"before": len(before["segments"]), "after": len(after["segments"])},
        **{name: {"before": before[name], "after": after[name]} for name in ("unused_vectors", "bytes")},
        "index": after["index"],
    }


def _fields(problem: Problem) -> dict[str, str]:
    return {"part": problem.part.value, "file": problem.file, "message": problem.message}


def _print_report(report: Report, compaction: Mapping[str, Any] | None, *, repair: bool) -> None:
    for problem in report.repaired:
        say(f"rebuilt {problem.file}, because {problem.message}")
    for problem in report.problems:
        say(f"{problem.file}: {problem.message}")
    say_notes(report.notes)
    read = f"{counted(report.files, 'file')} ({readable_bytes(report.bytes)})"
    if report.problems:
        can_repair = not repair and not report.parts() <= _LASTING
        remedy = "; run ragembed doctor --repair to rebuild the damaged parts" if can_repair else ""
        say(f"{counted(len(report.problems), 'problem')} in {read}{remedy}", err=True)
    else:
        say(
            f"{read}, {counted(report.chunks, 'chunk')}, {counted(report.vectors, 'vector')} in "
            f"{counted(report.segments, 'segment')}, {counted(report.canaries, 'text')} encoded again: no damage found"
        )
    if compaction is not None:
        segments, unused, size = (compaction[name] for name in ("segments", "unused_vectors", "bytes"))
        say(
            f"segments: {segments['before']:,} to {segments['after']:,}; "
            f"unused vectors: {unused['before']:,} to {unused['after']:,}; "
            f"size: {readable_bytes(size['before'])} to {readable_bytes(size['after'])}"
        )


def _print_diagnosis(diagnosis: Diagnosis, store: Path, *, quiet: bool) -> None:
    for finding in diagnosis.findings:
        say(f"{finding.severity}: {finding.title} [{finding.id}]")
        say(f"    {finding.detail}")
        for example in finding.examples:
            say(f"    - {example}")
        if finding.count > len(finding.examples) > 0:
            say(f"    - and {finding.count - len(finding.examples):,} more")
        say(f"    $ {finding.command}")
    for skipped in diagnosis.not_run:
        say(f"not run: {skipped.check}: {skipped.reason}")
    if quiet:
        return
    say_notes(diagnosis.notes)
    checks = len(CHECKS) + 1
    say(
        f"{counted(len(diagnosis.findings), 'finding')} in {shown_path(store)}; "
        f"{checks - len(diagnosis.not_run):,} of {counted(checks, 'check')} ran",
        err=True,
    )
