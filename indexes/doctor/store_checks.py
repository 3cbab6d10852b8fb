"""Checks of a store itself: damage, version, the fit, the index, and unused space."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ragembed.extras import is_installed
from ragembed.indexes.doctor.drift import measure_drift
from ragembed.indexes.doctor.findings import Commands, Examination, Finding, examples
from ragembed.indexes.faiss_index.choose import LEAST_APPROXIMATE
from ragembed.indexes.faiss_index.records import AUTO, FLAT, faiss
from ragembed.indexes.indexing import fitting
from ragembed.indexes.indexing.index_run import MANY_TEXTS
from ragembed.indexes.integrity import Part, Problem
from ragembed.indexes.lexical.analyzer import AnalyzerConfig
from ragembed.indexes.search.relevance import LEAST_CHUNKS, stored_relevance
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.transactions import free_pages
from ragembed.indexes.storage.upkeep import UNUSED_ABOVE, degradation, needs_check, unused_share
from ragembed.indexes.storage.upkeep import check_index as measured_index
from ragembed.printable import counted
from ragembed.version import __version__, install_command, upgrade_command

SHRUNK = 2.0
"""A fit is reported if it counts more than this times the chunks of the store; growth of as much fits again."""

_LASTING = {Part.DATABASE, Part.ROWS, Part.LOG}
"""Damage of the database, which nothing can rebuild."""
_NUMBER = re.compile(r"\d+")


def damage(problems: list[Problem], commands: Commands, *, loaded: bool) -> Iterator[Finding]:
    """Yield the findings for the problems that a verification found; ``loaded`` says whether the embedder is there."""
    broken = [problem for problem in problems if problem.part is not Part.CANARY]
    if broken:
        lasting = bool({problem.part for problem in broken} & _LASTING)
        yield damaged([f"{problem.file}: {problem.message}" for problem in broken], commands, lasting=lasting)
    changed = [problem.message for problem in problems if problem.part is Part.CANARY]
    if changed and loaded:
        yield Finding(
            "model",
            "damage",
            "the model does not give the vectors that it gave when the store was made",
            "Queries and documents no longer match. Restore the earlier version of the model or library, or index "
            "again with the command below, which makes a new store.",
            commands.again(),
            len(changed),
            examples=examples(changed),
        )
    elif changed:
        yield Finding(
            "model",
            "damage",
            "the model of the store cannot be loaded",
            "Only lexical search works. Restore the model; the command lists the models on this machine.",
            "ragembed models",
            examples=examples(changed),
        )


def damaged(messages: list[str], commands: Commands, *, lasting: bool) -> Finding:
    """Return the finding for damage of the files; ``lasting`` damage cannot be repaired."""
    remedy = (
        "Damage of the database cannot be repaired: restore a backup, or index again with the command below, which "
        "makes a new store. If only commits are lost, 'ragembed doctor --repair --trust-database' accepts the rest."
        if lasting
        else "The command rebuilds the damaged parts."
    )
    return Finding(
        "damaged",
        "damage",
        f"the store is damaged: {counted(len(messages), 'problem')}",
        f"Searches can fail or return wrong results. {remedy}",
        commands.again() if lasting else commands.run("doctor", "--repair"),
        len(messages),
        examples=examples(messages),
    )


def check_version(exam: Examination) -> Iterator[Finding]:
    """Compare the versions that made the store with the installed ones."""
    made = str(catalog.meta(exam.connection, "ragembed") or "")
    if _numbers(made) > _numbers(__version__):
        yield Finding(
            "version",
            "problem",
            f"ragembed {made} made the store, and {__version__} is installed",
            "The older version reads the format, but may read and search documents differently. The command "
            "upgrades, if the place that this copy comes from has the newer version.",
            upgrade_command(),
        )
    analyzer = catalog.analyzer_config(exam.connection)
    if analyzer != AnalyzerConfig.of_language(analyzer.language):
        yield Finding(
            "version",
            "problem",
            "another version of the stemmer made the full-text index",
            "Stems of queries may differ from those of documents. The next run of index rebuilds the full-text index.",
            exam.commands.run("index"),
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(version)[:3]]


def check_run(exam: Examination) -> Iterator[Finding]:
    """Report an interrupted run of ``ragembed index``."""
    if exam.store.unfinished and not exam.store.being_written:
        yield Finding(
            "interrupted",
            "problem",
            "the last indexing run was interrupted",
            "Files or vectors are missing from the store. The next run continues it.",
            exam.commands.run("index"),
        )


def check_drift(exam: Examination) -> Iterator[Finding]:
    """Measure drift, and find fits that are pending."""
    exam.own_embedder()
    pending = fitting.pending_fit(exam.store)
    if pending is not None and "run '" in pending and not exam.store.unfinished:
        yield Finding(
            "not-fitted",
            "problem",
            "post-processors are not fitted yet",
            "Until they are fitted, search uses other vectors than the settings ask for.",
            exam.commands.run("index"),
            examples=(pending,),
        )
    exam.require_no_server("ragembed status --drift")
    exam.progress.start("measuring drift", "chunks", None)
    report = measure_drift(exam.store)
    exam.progress.finish()
    reasons = report.reasons or tuple(fitting.warn_if_outgrown(exam.store))
    if report.verdict == "refit":
        yield Finding(
            "drift",
            "problem",
            "the post-processors no longer suit the documents",
            "The documents have changed since the fit. A refit encodes no document again.",
            exam.commands.run("refit"),
            len(reasons),
            1.0 - (report.overlap or 0.0) / report.chance,
            reasons,
        )
    elif reasons:
        yield Finding(
            "drift",
            "problem",
            "the token weights no longer suit the documents",
            "The documents have changed since the fit, and the raw vectors depend on it. The command makes a new "
            f"store.{_by_file(exam.commands)}",
            exam.commands.again(),
            len(reasons),
            max(report.weight_shift or 0.0, report.unseen or 0.0),
            reasons,
        )
    elif exam.chunks:
        yield from _shrunk(exam)


def _shrunk(exam: Examination) -> Iterator[Finding]:
    """Report a fit that counts more than twice the chunks of the store, as after an interrupted run or a deletion."""
    embedder = exam.own_embedder()
    fitted, steps = embedder.describe()["fitted_on"], embedder.config.postprocess
    if embedder.config.fits_tokens and fitted["texts"] > SHRUNK * exam.chunks:
        what, count, remedy = "token weights", fitted["texts"], f"makes a new store.{_by_file(exam.commands)}"
        command = exam.commands.again()
    elif (
        fitting.fits_on_store(embedder, steps)
        and fitted["documents"] > SHRUNK * exam.chunks
        and exam.chunks >= fitting.least_fit(steps)
    ):
        what, count, remedy = "post-processors", fitted["documents"], "fits them again."
        command = exam.commands.run("refit")
    else:
        return
    yield Finding(
        "drift",
        "hint",
        f"the {what} were fitted on {count:,} chunks, and the store has {exam.chunks:,}",
        "A run was interrupted, or files were removed since: the fit counts texts that the store does not have. The "
        f"command {remedy}",
        command,
        count - exam.chunks,
        1.0 - exam.chunks / count,
    )


def _by_file(commands: Commands) -> str:
    names = commands.needs_file()
    return f" Give {', '.join(names)} in a file with --config." if names else ""


def check_relevance(exam: Examination) -> Iterator[Finding]:
    """Report a store whose relevance is not fitted, although it has enough chunks."""
    exam.own_embedder()
    if exam.chunks >= LEAST_CHUNKS and stored_relevance(exam.connection) is None:
        yield Finding(
            "relevance",
            "hint",
            "the relevance of hits is not fitted",
            "Weak matches are not marked, and --min-relevance leaves nothing out.",
            exam.commands.run("refit"),
            share=0.0,
        )


def check_index(exam: Examination) -> Iterator[Finding]:
    """Compare the recall of the index with what it promises; measure it if the last measurement is out of date."""
    connection, wanted = exam.connection, catalog.index_config(exam.connection)
    rows = catalog.count(connection, "vectors") - catalog.count(connection, "tombstones")
    others = {record.files.kind for record in catalog.segments(connection)} - {FLAT}
    if others and not faiss.is_installed():
        yield _without_faiss(exam, rows, "dense search of the index fails", problem=True)
        return
    evaluation = catalog.index_check(connection)
    if needs_check(connection, rows):
        embedder = exam.any_embedder()
        exam.require_no_server("ragembed doctor --repair")
        exam.progress.start("measuring the index", "queries", None)
        evaluation = measured_index(exam.store.path, connection, embedder, rows)
        exam.progress.finish()
    if evaluation is not None and (message := degradation(wanted, None, evaluation)) is not None:
        recall = evaluation.measurement.recall
        yield Finding(
            "recall",
            "problem",
            "the index misses its target",
            "Dense search misses vectors, or is slower or larger than you allow.",
            exam.commands.run("doctor", "--repair"),
            share=0.0 if recall is None else 1.0 - recall.mean,
            examples=(message.partition(";")[0],),
        )
    if wanted.kind == AUTO and rows >= LEAST_APPROXIMATE and not faiss.is_installed():
        yield _without_faiss(exam, rows, "each search reads every vector", problem=False)


def _without_faiss(exam: Examination, rows: int, effect: str, *, problem: bool) -> Finding:
    return Finding(
        "missing-extra",
        "problem" if problem else "hint",
        "FAISS is not installed",
        f"Without it, {effect}.",
        exam.commands.install("cpu", exam.commands.run("doctor", "--repair")),
        rows,
        1.0 if problem else 0.0,
    )


def check_speed(exam: Examination) -> Iterator[Finding]:
    """Report a store whose model runs in NumPy because neither OpenVINO nor PyTorch is installed."""
    has_runtime = is_installed("openvino") or is_installed("torch")
    if exam.own_embedder().encodes_with_model and exam.chunks >= MANY_TEXTS and not has_runtime:
        yield Finding(
            "missing-extra",
            "hint",
            "PyTorch is not installed",
            "The model runs with NumPy, which encodes documents more slowly. The vectors are the same.",
            install_command("torch"),
            exam.chunks,
            0.0,
        )


def check_space(exam: Examination) -> Iterator[Finding]:
    """Find vectors that no chunk uses and free pages of the database; the next run of ``index`` also removes most."""
    if (share := unused_share(exam.connection)) > UNUSED_ABOVE:
        vectors, unused = (catalog.count(exam.connection, table) for table in ("vectors", "tombstones"))
        free, pages = free_pages(exam.connection)
        yield Finding(
            "unused-space",
            "hint",
            f"{share:.0%} of the store is unused",
            f"{counted(unused, 'vector')} of {vectors:,} belong to no chunk, and {free:,} of {pages:,} pages of the "
            "database are free.",
            exam.commands.run("doctor", "--repair"),
            unused,
            share,
        )
