"""A diagnosis: one snapshot of a store, verified first and then read by the other checks. Nothing is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ragembed.errors import IncompatibleStoreError, RagembedError, StoreDamagedError
from ragembed.indexes.doctor import file_checks, store_checks, text_checks
from ragembed.indexes.doctor.findings import SEVERITIES, Diagnosis, Examination, Finding, SkippedCheck
from ragembed.indexes.indexing.commands import Commands
from ragembed.indexes.integrity import Part
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.layout import choose_store, require_store
from ragembed.indexes.store import Store
from ragembed.indexes.verification import verify_snapshot
from ragembed.progress import Progress, progress_for
from ragembed.version import __version__

INTEGRITY = "integrity"
CHECKS: Mapping[str, Callable[[Examination], Iterator[Finding]]] = {
    "version": store_checks.check_version,
    "run": store_checks.check_run,
    "files": file_checks.check_files,
    "skipped": file_checks.check_skipped,
    "duplicate files": file_checks.check_duplicate_files,
    "code": file_checks.check_code_extra,
    "language": text_checks.check_language,
    "words": text_checks.check_words,
    "near-duplicates": text_checks.check_near_duplicates,
    "cut chunks": text_checks.check_cuts,
    "drift": store_checks.check_drift,
    "relevance": store_checks.check_relevance,
    "index": store_checks.check_index,
    "speed": store_checks.check_speed,
    "space": store_checks.check_space,
}
"""The checks that follow the one of the integrity, in their order."""

_READ_VECTORS = ("near-duplicates", "drift", "index")
_BESIDE_VECTORS = {Part.FOLDER, Part.WORDS, Part.LOG, Part.POSTINGS, Part.CANARY}
"""Parts of a store whose damage does not matter to the checks in ``_READ_VECTORS``."""

_TRIES = 5
_MISREAD = (ValueError, TypeError, AttributeError, KeyError)
"""Errors of reading settings that are not what ragembed writes."""


def diagnose(store: str | Path | None = None, progress: Progress | bool | None = None) -> Diagnosis:
    """Check a store and its files in every way, as ``ragembed doctor`` does, without changing anything.

    The store is verified first. If its database is damaged, the other checks do not run. A writer may be active
    meanwhile: all checks read the same generation. Large stores are sampled where a full pass would take minutes, and
    the notes say so.

    Parameters
    ----------
    store : str or pathlib.Path, optional
        Folder of the store. By default, ``$RAGEMBED_STORE``, else the nearest ``.ragembed`` in the working directory or
        a folder above it.
    progress : bool or object, optional
        As in :func:`ragembed.index`.

    Returns
    -------
    Diagnosis
        The findings, those with the greatest effect first, and the checks that could not run.

    Raises
    ------
    StoreNotFoundError
        If there is no store.
    StoreError
        If the store may not be read.

    Examples
    --------
    >>> import ragembed
    >>> diagnosis = ragembed.diagnose(".ragembed")  # doctest: +SKIP
    >>> [(finding.id, finding.command) for finding in diagnosis.findings]  # doctest: +SKIP
    [('stale', 'ragembed index')]
    """
    path = require_store(choose_store(None if store is None else Path(store)))
    try:
        with Store.open(path) as opened:
            return _of_store(opened, progress_for(progress))
    except IncompatibleStoreError as error:
        finding = Finding(
            "version",
            "damage",
            "another version of ragembed made the store",
            "This version cannot read it. Use that version, or index again with the command, which makes a new store.",
            Commands(path).again(),
            examples=(str(error),),
        )
    except StoreDamagedError as error:
        finding = store_checks.damaged([str(error)], Commands(path), lasting=True)
    return _without_checks(path, None, [finding], "the store cannot be opened")


def _of_store(store: Store, progress: Progress) -> Diagnosis:
    """Examine a snapshot; again if a writer may have removed files of it, which looks like damage."""

    def examined() -> Diagnosis:
        with store.snapshot() as snapshot:
            return _examined(store, snapshot, progress)

    for _ in range(_TRIES):
        diagnosis = store.read(examined)
        if diagnosis.severity != "damage" or store.read_database(_generation) == diagnosis.generation:
            return diagnosis
    reason = "a writer changed the store during each attempt: run it again when the writer is done"
    return _without_checks(store.path, diagnosis.generation, [], reason, INTEGRITY)


def _examined(store: Store, snapshot: Snapshot, progress: Progress) -> Diagnosis:
    try:
        embedder = snapshot.embedder()
    except (RagembedError, OSError):
        embedder = None  # The verification finds the reason.
    report = verify_snapshot(store.path, snapshot.connection, embedder, progress)
    problems, generation = report.problems, _generation(snapshot.connection)
    try:
        commands = Commands.of(store)
    except (RagembedError, sqlite3.DatabaseError, *_MISREAD) as error:
        findings = list(store_checks.damage(problems, Commands(store.path), loaded=True))
        if not findings:
            raise StoreDamagedError(f"the store's database has invalid settings: {error}") from error
        return _without_checks(store.path, generation, findings, "the database is damaged")
    findings = list(store_checks.damage(problems, commands, loaded=embedder is not None))
    damaged = report.parts()
    if damaged & {Part.DATABASE, Part.ROWS}:
        return _without_checks(store.path, generation, findings, "the database is damaged")
    sources = catalog.sources(snapshot.connection)
    exam = Examination(store, snapshot, damaged, embedder, commands, sources, progress, report.notes)
    if store.being_written:
        exam.notes.append(f"a process is writing to the store: this is generation {generation}")
    results = [result for name, check in CHECKS.items() for result in _run(name, check, exam)]
    findings += [result for result in results if isinstance(result, Finding)]
    not_run = tuple(result for result in results if isinstance(result, SkippedCheck))
    return Diagnosis(str(store.path), generation, __version__, _by_effect(findings), not_run, tuple(exam.notes))


def _run(
    name: str, check: Callable[[Examination], Iterator[Finding]], exam: Examination
) -> Iterator[Finding | SkippedCheck]:
    """Yield the findings of a check, and why it ended early if it did."""
    if name in _READ_VECTORS and exam.damaged - _BESIDE_VECTORS:
        yield SkippedCheck(name, "the files with the vectors are damaged")
        return
    try:
        yield from check(exam)
    except (RagembedError, OSError) as error:
        if isinstance(error, FileNotFoundError) and not exam.damaged:
            raise  # A writer has removed a file of this generation: the reader takes a newer one.
        yield SkippedCheck(name, str(error))


def _generation(connection: sqlite3.Connection) -> int | None:
    generation = catalog.meta(connection, "generation", 0)
    return generation if isinstance(generation, int) else None


def _without_checks(path: Path, generation: int | None, findings: list[Finding], reason: str, *more: str) -> Diagnosis:
    not_run = tuple(SkippedCheck(name, reason) for name in (*more, *CHECKS))
    return Diagnosis(str(path), generation, __version__, _by_effect(findings), not_run)


def _by_effect(findings: list[Finding]) -> tuple[Finding, ...]:
    """Return the findings by severity, then by share, largest first, then by name."""
    return tuple(sorted(findings, key=lambda one: (SEVERITIES.index(one.severity), -one.share, one.id, one.title)))
