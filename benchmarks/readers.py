"""Read the files of Debian's documentation packages: outcomes and relative times of each reader.

The packages are downloaded with ``apt-get download`` and unpacked with ``dpkg -x``; nothing is installed.
"""

from __future__ import annotations

import gzip
import random
import resource
import subprocess
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from data import Setting
from processes import say
from report import per_cent, significant, table
from speed import Outcome

from ragembed.documents.discovery import generated_reason
from ragembed.documents.readers import only_document_errors, read, reader_for
from ragembed.errors import DocumentError, RagembedError

PACKAGES = (
    "git-doc", "asciidoc", "asciidoctor-doc", "manpages", "manpages-dev", "freebsd-manpages", "gnome-user-docs",
    "sqlite3-doc", "debian-policy", "developers-reference", "libxml2-doc", "pandoc-data", "docbook-xsl",
    "asciidoc-common", "python-nbsphinx-doc", "python-nbconvert-doc", "iso-codes", "ansible-core", "nodejs-doc",
    "texlive-bibtex-extra", "apache2-doc", "elpa-magit", "cargo-doc", "postgresql-15", "zabbix-server-pgsql",
    "postgresql-doc-15", "python3-pandas", "bind9-doc", "python3-docx",
)  # fmt: skip
MOST_PER_SUFFIX, MOST_BYTES_PER_SUFFIX = 150, 10_000_000
LARGEST = 20 * 1024 * 1024
PLAIN = "text"
SHOWN = 0.02
"""The share of the time from which a format has a row."""


@dataclass
class Tally:
    """The files of one format."""

    files: int = 0
    bytes: int = 0
    read: int = 0
    documents: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def readers(setting: Setting) -> Outcome:
    """Read a sample of the files of each suffix."""
    folder = setting.cache / "debian-documentation"
    for package in PACKAGES[: setting.choose(len(PACKAGES), 4)]:
        _unpack(package, folder)
    tallies: dict[str, Tally] = defaultdict(Tally)
    generated: Counter[str] = Counter()
    for path in _sample(folder, setting.seed, setting.choose(MOST_PER_SUFFIX, 5)):
        _read(path, tallies, generated)
    whole = sum(tally.seconds for tally in tallies.values())
    rows = [
        _row(name, tally, whole, tallies[PLAIN])
        for name, tally in sorted(tallies.items())
        if tally.seconds >= SHOWN * whole
    ]
    files = sum(tally.files for tally in tallies.values())
    failures = [failure for tally in tallies.values() for failure in tally.failures]
    for failure in failures:
        say(failure)
    reasons = sum((tally.refused for tally in tallies.values()), Counter())
    slowest = max(tally.slowest for tally in tallies.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    header = ("format", "files", "MB", "read", "documents", "refused", "unhandled", "share of time", "per MB, ÷ text")
    about = (
        f"{files:,} files of {len(PACKAGES)} packages of Debian's documentation, at most {MOST_PER_SUFFIX} and "
        f"{MOST_BYTES_PER_SUFFIX / 1e6:.0f} MB per suffix, each read once without chunking. A refused file ends in one "
        "clear error; an unhandled error would be a bug. The table has the formats that take "
        f"{per_cent(SHOWN)} of the time or more. Unhandled errors: {len(failures)}. The slowest file takes "
        f"{per_cent(slowest / whole)} of the time. Peak memory of the process: {significant(peak, 3)} MiB. Reasons to "
        f"refuse: {_counts(reasons)}. Skipped before reading: {_counts(generated)}."
    )
    return Outcome([about, table(header, rows)])


def _counts(counter: Counter[str]) -> str:
    return "; ".join(f"{reason}: {count}" for reason, count in counter.most_common()) or "none"


def _unpack(package: str, folder: Path) -> None:
    """Download and unpack a package, if that has not been done, and decompress its .gz files."""
    place = folder / package
    if place.is_dir():
        return
    archive = folder / "archives" / package
    archive.mkdir(parents=True, exist_ok=True)
    say(f"downloads {package}")
    subprocess.run(["apt-get", "download", "-q", package], cwd=archive, check=True, capture_output=True)
    (deb,) = archive.glob("*.deb")
    subprocess.run(["dpkg", "-x", deb, place], check=True)
    for path in sorted(place.rglob("*.gz")):
        if path.is_file() and not path.is_symlink() and not path.with_suffix("").exists():
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()


def _sample(folder: Path, seed: int, most: int) -> list[Path]:
    by_suffix: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and 0 < path.stat().st_size <= LARGEST and path.suffix != ".deb":
            by_suffix[path.suffix.lower()].append(path)
    draw = random.Random(seed)
    chosen: list[Path] = []
    for paths in by_suffix.values():
        room = MOST_BYTES_PER_SUFFIX
        for path in draw.sample(paths, min(most, len(paths))):
            room -= path.stat().st_size
            if room < 0:
                break
            chosen.append(path)
    return chosen


def _read(path: Path, tallies: dict[str, Tally], generated: Counter[str]) -> None:
    data = path.read_bytes()
    reader = reader_for(path.name, data)
    if reader is None:
        return
    if reason := generated_reason(path.name, data[:8192]):
        generated[reason] += 1
        return
    tally = tallies[reader.name]
    tally.files += 1
    tally.bytes += len(data)
    started = time.perf_counter()
    try:
        with only_document_errors():
            tally.documents += sum(1 for _ in read(path.name, data))
        tally.read += 1
    except RagembedError as error:
        if isinstance(error, DocumentError) and error.__cause__ is not None and "its reader failed" in str(error):
            tally.failures.append(f"{path}: {error}")
        else:
            tally.refused[str(error).split(":")[0]] += 1
    seconds = time.perf_counter() - started
    tally.seconds += seconds
    tally.slowest = max(tally.slowest, seconds)


def _row(name: str, tally: Tally, whole: float, plain: Tally) -> list[str]:
    relative = (tally.seconds / tally.bytes) / (plain.seconds / plain.bytes) if plain.bytes else 0.0
    return [
        name, f"{tally.files:,}", significant(tally.bytes / 1e6, 3), f"{tally.read:,}", f"{tally.documents:,}",
        f"{tally.refused.total()}", f"{len(tally.failures)}", per_cent(tally.seconds / whole),
        f"{significant(relative)} ×",
    ]  # fmt: skip
