"""A diagnosis: one snapshot of a store, verified first and then read by the other checks. Nothing is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ragembed.errors import IncompatibleStoreError, RagembedError, StoreDamagedError
from ragembed.indexes.doctor import file_checks, store_checks, text_checks
from ragembed.indexes.doctor.commands import Commands
from ragembed.indexes.doctor.findings import Diagnosis, Examination, Finding, SkippedCheck, by_effect, stored_settings
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.layout import choose_store, require_store
from ragembed.indexes.store import Store
from ragembed.indexes.types import VectorEncoder
from ragembed.indexes.verify import Part
from ragembed.indexes.verify.verification import verify_snapshot
from ragembed.progress import Progress, SilentProgress
from ragembed.version import __version__

INTEGRITY = "integrity"
CHECKS: Mapping[str, Callable[[Examination], Iterator[Finding]]] = {
    "version": store_checks.check_version,
    "run": store_checks.check_run,
    "files": file_checks.check_files,
    "skipped": file_checks.check_skipped,
    "duplicate files": file_checks.check_duplicate_files,
    "boilerplate": file_checks.check_boilerplate,
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


def diagnose(store: str | Path | None = None, progress: Progress | None = None) -> Diagnosis:
    """Check a store and its files in every way, as ``ragembed doctor`` does, without changing anything.

    The store is verified first. If its database is damaged, the other checks do not run. A writer may be active
    meanwhile: all checks read the same generation. Large stores are sampled where a full pass would take minutes, and
    the notes say so.

    Parameters
    ----------
    store : str or pathlib.Path, optional
        Folder of the store. By default, ``$RAGEMBED_STORE``, else the nearest ``.ragembed`` in the working directory or
        a folder above it.
    progress : object, optional
        Listener with the methods ``start(phase, unit, total)``, ``advance(count)`` and ``finish()``.

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
            return _of_store(opened, progress or SilentProgress())
    except IncompatibleStoreError as error:
        finding = Finding(
            "version",
            "damage",
            "another version of ragembed made the store",
            "This version cannot read it. Use that version, or index again with the command, which makes a new store.",
            1,
            1.0,
            (str(error),),
            Commands(path).again(),
        )
    except StoreDamagedError as error:
        finding = store_checks.damaged([str(error)], Commands(path), lasting=True)
    return _without_checks(path, None, (finding,), "the store cannot be opened")


def _of_store(store: Store, progress: Progress) -> Diagnosis:
    """Examine a snapshot; again if a writer may have removed files of it, which looks like damage."""
    for _ in range(_TRIES):
        diagnosis = store.read(lambda: _of_snapshot(store, progress))
        if diagnosis.severity != "damage" or store.read_database(_generation) == diagnosis.generation:
            return diagnosis
    reason = "a writer changed the store during each attempt: run it again when the writer is done"
    return _without_checks(store.path, diagnosis.generation, (), reason, INTEGRITY)


def _of_snapshot(store: Store, progress: Progress) -> Diagnosis:
    with store.snapshot() as snapshot:
        return _examined(store, snapshot, progress)


def _examined(store: Store, snapshot: Snapshot, progress: Progress) -> Diagnosis:
    embedder = _embedder(snapshot)
    report = verify_snapshot(store.path, snapshot.connection, embedder, progress)
    try:
        roots, options, commands = stored_settings(store)
    except (RagembedError, sqlite3.DatabaseError, *_MISREAD) as error:
        findings = tuple(store_checks.damage(report.problems, Commands(store.path), loaded=True))
        if not findings:
            raise StoreDamagedError(f"the store's database has invalid settings: {error}") from error
        return _without_checks(store.path, _generation(snapshot.connection), findings, "the database is damaged")
    findings = tuple(store_checks.damage(report.problems, commands, loaded=embedder is not None))
    if report.parts() & {Part.DATABASE, Part.ROWS}:
        return _without_checks(store.path, _generation(snapshot.connection), findings, "the database is damaged")
    sources = catalog.sources(snapshot.connection)
    exam = Examination(store, snapshot, report, embedder, commands, roots, options, sources, progress, report.notes)
    if store.being_written:
        exam.notes.append(f"a process is writing to the store: this is generation {_generation(snapshot.connection)}")
    results = [result for name, check in CHECKS.items() for result in _run(name, check, exam)]
    found = [*findings, *(result for result in results if isinstance(result, Finding))]
    not_run = tuple(result for result in results if isinstance(result, SkippedCheck))
    return Diagnosis(
        str(store.path), _generation(snapshot.connection), __version__, by_effect(found), not_run, tuple(exam.notes)
    )


def _run(
    name: str, check: Callable[[Examination], Iterator[Finding]], exam: Examination
) -> Iterator[Finding | SkippedCheck]:
    """Yield the findings of a check, and why it ended early if it did."""
    if name in _READ_VECTORS and exam.report.parts() - _BESIDE_VECTORS:
        yield SkippedCheck(name, "the files with the vectors are damaged")
        return
    try:
        yield from check(exam)
    except (RagembedError, OSError) as error:
        if isinstance(error, FileNotFoundError) and not exam.report.problems:
            raise  # A writer has removed a file of this generation: the reader takes a newer one.
        yield SkippedCheck(name, str(error))


def _embedder(snapshot: Snapshot) -> VectorEncoder | None:
    try:
        return snapshot.embedder()
    except (RagembedError, OSError):
        return None  # The verification finds the reason.


def _generation(connection: sqlite3.Connection) -> int | None:
    found = catalog.meta(connection, "generation", 0)
    return found if isinstance(found, int) else None


def _without_checks(
    path: Path, generation: int | None, findings: tuple[Finding, ...], reason: str, *more: str
) -> Diagnosis:
    not_run = tuple(SkippedCheck(name, reason) for name in (*more, *CHECKS))
    return Diagnosis(str(path), generation, __version__, by_effect(list(findings)), not_run)
