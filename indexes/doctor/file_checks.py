"""Checks of the files that a store was made from: changed, missing, skipped and duplicate files."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ragembed.documents.discovery import FileCandidate
from ragembed.documents.places import RemotePath, exists, shown_path
from ragembed.documents.readers.definitions import LANGUAGES, is_available
from ragembed.documents.readers.registry import named_reader, unread_reason
from ragembed.errors import ConfigError
from ragembed.extras import has_extra
from ragembed.indexes.doctor.findings import CannotCheckError, Examination, Finding, Severity, examples
from ragembed.indexes.indexing.request import IndexingOptions
from ragembed.indexes.indexing.scan import Scan, Scanner
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.layout import file_path, is_below
from ragembed.indexes.types import SourceRecord
from ragembed.printable import counted

_EXTRA = re.compile(r"pip install .*\[([\w-]+)\]")
_TOO_LARGE = "is over the limit"
_GENERATED = "(the rule !"
_EMPTY = "contains no text"
_MEGABYTE = 1024 * 1024


def check_files(exam: Examination) -> Iterator[Finding]:
    """Compare the indexed files with those on disk, as the next run of ``ragembed index`` would."""
    if exam.options is None:
        return  # The chunks were added as texts.
    places = {root: file_path(root, exam.store.path) for root in exam.commands.roots}
    remote = [root for root, place in places.items() if isinstance(place, RemotePath)]
    if remote:
        exam.notes.append(f"remote files were not compared with the store: {', '.join(remote)}")
    missing = [root for root in places if root not in remote and not exists(places[root])]
    for root in missing:
        if below := [name for name in exam.sources if is_below(name, root)]:
            yield _missing_path(exam, root, below)
    paths = [place for root, place in places.items() if root not in remote and root not in missing]
    yield from _stale(exam, exam.options, [place for place in paths if isinstance(place, Path)])


def _missing_path(exam: Examination, root: str, names: list[str]) -> Finding:
    return Finding(
        "missing-path",
        "problem",
        f"{_shown(exam, root)} is missing or empty",
        f"Results still come from {counted(len(names), 'file')} of it. Mount its disk again, or remove the files from "
        "the store with the command.",
        exam.commands.remove(root),
        *_about(exam, names),
    )


def _about(exam: Examination, names: list[str]) -> tuple[int, float, tuple[str, ...]]:
    """Return the number of files, their share of the files in the store, and the first of them."""
    share = min(1.0, len(names) / max(len(exam.sources), 1))
    return len(names), share, examples([_shown(exam, name) for name in names])


def _stale(exam: Examination, options: IndexingOptions, paths: list[Path]) -> Iterator[Finding]:
    embedder = exam.own_embedder()
    if exam.store.being_written:
        raise CannotCheckError("another process is writing to the store: run it again when that is done")
    try:
        scanner = Scanner(exam.store.path, options, exam.sources, embedder.tokenizer, embedder.text_tokens)
        scan = Scan.of(paths, [], exam.store.path)
        skipped = catalog.skipped(exam.connection)
        exam.progress.start("comparing", "files", None)
        for candidate in scanner.waiting(paths, scan, exam.progress):
            name = scanner.name_of(candidate)
            source = exam.sources.get(name)
            scan.kept.add(name)
            if source is None and name not in skipped:
                scan.added.append(name)
            elif source is not None and (scanner.uses_other_reader(candidate, source) or _differs(candidate, source)):
                scan.changed.append(name)
            exam.progress.advance(1)
        scanner.finish(scan)
        exam.progress.finish()
    except ConfigError as error:
        raise CannotCheckError(str(error)) from error
    for root, names in scan.emptied(exam.store.path).items():
        yield _missing_path(exam, root, names)
        scan.removed = [name for name in scan.removed if name not in set(names)]
    stale = [*scan.changed, *scan.removed, *scan.added]
    if stale:
        yield Finding(
            "stale",
            "problem",
            f"the files have changed since the last run: {len(scan.changed):,} changed, {len(scan.added):,} added, "
            f"{len(scan.removed):,} removed",
            "Results show old texts, miss new files and name removed ones. Files that an updated reader reads "
            "differently count as changed.",
            exam.commands.run("index"),
            *_about(exam, stale),
        )


def _differs(candidate: FileCandidate, source: SourceRecord) -> bool:
    """Return whether the content of a file with another time is not the indexed one; true if it cannot be read."""
    if candidate.size != source.size:
        return True
    try:
        data, _ = candidate.read()
    except OSError:
        return True
    return hashlib.sha256(data).hexdigest() != source.sha256


def check_skipped(exam: Examination) -> Iterator[Finding]:
    """Sort the files that the last runs skipped by what can be done about them."""
    if exam.options is None:
        return
    reasons = {
        name: reason
        for name, reason in catalog.skipped(exam.connection).items()
        if _GENERATED not in reason and _is_there(exam, name)
    }
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(_group(name, reason), []).append(name)
    total = len(exam.sources) + len(reasons)
    for group, names in sorted(groups.items()):
        shown = examples([f"{_shown(exam, name)}: {reasons[name]}" for name in names])
        yield _skipped(exam, group, names, len(names) / total, shown)


def _group(name: str, reason: str) -> str:
    """Return the id of the finding for a skipped file; for a missing extra, with its name after a colon."""
    if extra := _EXTRA.search(reason):
        return f"missing-extra:{extra[1]}"
    if _TOO_LARGE in reason:
        return "too-large" if named_reader(PurePosixPath(name).name) else "unread-format"
    if reason == unread_reason(PurePosixPath(name).name):
        return "unread-format"
    return "empty" if reason.startswith(_EMPTY) else "unreadable"


def _skipped(exam: Examination, group: str, names: list[str], share: float, shown: tuple[str, ...]) -> Finding:
    files, are = counted(len(names), "file"), _are(names)
    kind, _, extra = group.partition(":")
    severity: Severity = "problem"
    command = exam.commands.excluding(names, exam.sources)
    if kind == "missing-extra":
        title = f"{files} {are} not read without the extra {extra!r}"
        detail = (
            "No search finds them. The extra is installed now: index again."
            if has_extra(extra)
            else "No search finds them. Install the extra, and the programs that the reason names, and index again."
        )
        command = exam.commands.install(extra, exam.commands.run("index"))
    elif kind == "too-large":
        title = f"{files} {are} larger than the limit"
        detail = "The command raises the limit to the largest of them."
        command = exam.commands.run("index", "--max-size", _size(exam, names))
    elif kind == "unread-format":
        severity, title = "hint", f"{files} {are} in a format that is not read"
        detail = "Convert them, as the reason says, or exclude them with the command."
        suffixes = Counter(PurePosixPath(name).suffix.lower() for name in names)
        if patterns := [f"*{suffix}" for suffix, _ in suffixes.most_common() if suffix]:
            command = exam.commands.excluding_patterns(patterns)
    elif kind == "empty":
        severity, title = "hint", f"{files} {'contains' if len(names) == 1 else 'contain'} no text"
        detail = "No search finds them. If that is right, exclude them with the command."
    else:
        title = f"{files} cannot be read"
        detail = "Repair or convert them, as the reason says, and index again; or exclude them with the command."
    return Finding(kind, severity, title, detail, command, len(names), share, shown)


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _size(exam: Examination, names: list[str]) -> str:
    """Return the size of the largest file in whole megabytes."""
    sizes = [place.stat().st_size for name in names if isinstance(place := file_path(name, exam.store.path), Path)]
    return f"{-(-max(sizes, default=0) // _MEGABYTE)}M"


def _is_there(exam: Examination, name: str) -> bool:
    place = file_path(name, exam.store.path)
    return isinstance(place, RemotePath) or os.path.lexists(place)


def _shown(exam: Examination, name: str) -> str:
    return shown_path(file_path(name, exam.store.path))


def check_duplicate_files(exam: Examination) -> Iterator[Finding]:
    """Find files with the same content."""
    groups: dict[str, list[str]] = {}
    for name, source in exam.sources.items():
        groups.setdefault(source.sha256, []).append(name)
    copies = [
        (copy, names[0])
        for group in groups.values()
        if len(group) > 1
        for names in [sorted(group, key=lambda name: (name.count("/"), len(name), name))]
        for copy in names[1:]
    ]
    if copies:
        yield Finding(
            "duplicate-files",
            "hint",
            f"{counted(len(copies), 'file')} {'is a copy' if len(copies) == 1 else 'are copies'} of other files",
            "Copies take the places of other results where near-duplicates are not combined. The command excludes "
            "them.",
            exam.commands.excluding([copy for copy, _ in copies], exam.sources),
            len(copies),
            len(copies) / len(exam.sources),
            examples([f"{_shown(exam, copy)} is a copy of {_shown(exam, name)}" for copy, name in copies]),
        )


def check_code_extra(exam: Examination) -> Iterator[Finding]:
    """Find source code that is not divided at its definitions because semble-grammars is missing."""
    suffixes = {name: PurePosixPath(name).suffix.lower() for name in exam.sources}
    code = [name for name, suffix in suffixes.items() if suffix in LANGUAGES and not is_available(suffix)]
    if code:
        yield Finding(
            "missing-extra",
            "hint",
            f"{counted(len(code), 'file')} of source code {_are(code)} not divided at functions and classes",
            "Install the extra 'documents', and index again: chunks then contain whole definitions.",
            exam.commands.install("documents", exam.commands.run("index")),
            *_about(exam, code),
        )
