"""``ragembed doctor --integrity`` and ``--repair``: the verification of stores, their repair and compaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragembed.cli import ERROR_EXIT
from ragembed.cli.output import counted, say, say_choice, warnings_as_notes
from ragembed.cli.requests import index_config
from ragembed.cli.searched import StoreReport
from ragembed.errors import IncompatibleStoreError, ModelError
from ragembed.indexes import Store
from ragembed.indexes.verify import Part, Problem, Report, verify_store
from ragembed.printable import readable_bytes
from ragembed.progress import StderrProgress

_LASTING = {Part.DATABASE, Part.CANARY}
"""Parts that cannot be repaired."""


def checked(store: Path, *, quiet: bool, wait_seconds: float) -> StoreReport:
    """Return the report of all damage of a store."""
    report = verify_store(store, progress=StderrProgress(quiet=quiet), wait_seconds=wait_seconds)
    return StoreReport(_as_dict(report), lambda: _print(report, repair=False), ERROR_EXIT if report.problems else 0)


def repaired(
    store: Path,
    index: Mapping[str, Any],
    device: str | None,
    *,
    trust_database: bool,
    quiet: bool,
    wait_seconds: float,
) -> StoreReport:
    """Repair a store; if nothing is left to repair, compact it. ``index`` holds the options of the vector index."""
    index_config(index, None)  # raises ConfigError for invalid options before anything is repaired
    progress = StderrProgress(quiet=quiet)
    report = verify_store(
        store, progress=progress, repair=True, trust_database=trust_database, wait_seconds=wait_seconds
    )
    compaction: dict[str, Any] | None = None
    if not report.problems:
        try:
            with Store.open(store, device=device) as opened:
                compaction = _compacted(opened, index, progress, wait_seconds)
        except (IncompatibleStoreError, ModelError) as error:  # the command line cannot load the embedder
            if device is not None or any(value is not None for value in index.values()):
                raise
            report.notes.append(f"the store was checked, but not compacted: {error}")

    def show() -> None:
        _print(report, repair=True)
        if compaction is not None:
            _print_compaction(compaction)

    record = {**_as_dict(report), "compaction": compaction}
    return StoreReport(record, show, ERROR_EXIT if report.problems else 0)


def _compacted(store: Store, index: Mapping[str, Any], progress: StderrProgress, wait_seconds: float) -> dict[str, Any]:
    """Merge small segments and free unused space; return the sizes before and after."""
    before, old_choice, old_check = store.status(), store.index_choice(), store.index_check()
    with warnings_as_notes():
        store.optimize(progress, wait_seconds, index=index_config(index, store))
    after, picked, check = store.status(), store.index_choice(), store.index_check()
    if picked is not None and check is not None and picked != old_choice and check != old_check:
        say_choice(picked, check)
    return {
        "segments": {"before": len(before["segments"]), "after": len(after["segments"])},
        "unused_vectors": {"before": before["unused_vectors"], "after": after["unused_vectors"]},
        "bytes": {"before": before["bytes"], "after": after["bytes"]},
        "index": after["index"],
    }


def _print_compaction(sizes: Mapping[str, Any]) -> None:
    segments, unused, size = sizes["segments"], sizes["unused_vectors"], sizes["bytes"]
    say(
        f"segments: {segments['before']:,} to {segments['after']:,}; "
        f"unused vectors: {unused['before']:,} to {unused['after']:,}; "
        f"size: {readable_bytes(size['before'])} to {readable_bytes(size['after'])}"
    )


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
        "" if repair or report.parts() <= _LASTING else "; run ragembed doctor --repair to rebuild the damaged parts"
    )
    say(f"{counted(len(report.problems), 'problem')} in {read}{remedy}", err=True)


def _as_dict(report: Report) -> dict[str, Any]:
    fields = asdict(report)
    fields["problems"] = [_problem(problem) for problem in report.problems]
    fields["repaired"] = [_problem(problem) for problem in report.repaired]
    return {"ok": not report.problems, **fields}


def _problem(problem: Problem) -> dict[str, Any]:
    return {"part": problem.part.value, "file": problem.file, "message": problem.message}
