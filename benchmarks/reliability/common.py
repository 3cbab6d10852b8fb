"""What the scripts share: their options, a folder to work in, and their sections of the page of results."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path

import faiss
from report import machine, write_section

from ragembed.version import __version__

_SHOWN = 20


def parser(about: str | None, takes: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all scripts have; ``takes`` says how long the whole and a trial run."""
    made = argparse.ArgumentParser(
        description=f"{about}\n\nTakes {takes}.", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--trial", action="store_true", help="a short run that prints and writes nothing")
    made.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    made.add_argument("--folder", type=Path, help="where the stores are made (default: a temporary folder)")
    return made


@contextmanager
def scratch(parent: Path | None) -> Iterator[Path]:
    """Make a folder below ``parent``, with the user's cache in it too, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="ragembed-", dir=parent) as name:
        folder = Path(name).resolve()
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        yield folder


def finish(name: str, title: str, parts: Sequence[str], broken: Sequence[str], *, trial: bool) -> None:
    """Print the section, put it into the page of results unless this was a trial, and exit with 1 if ``broken``.

    ``parts`` are paragraphs and tables, ``broken`` a sentence for each promise that was not kept.
    """
    verdict = f"{len(broken):,} promises were broken." if broken else "No promise was broken."
    body = "\n\n".join([f"## Reliability: {title}", f"{date.today().isoformat()}; {machine()}; {versions()}.", *parts])
    body += f"\n\n{verdict}"
    print(body)
    if not trial:
        write_section(f"reliability:{name}", body)
    for sentence in broken[:_SHOWN]:
        print(sentence, file=sys.stderr)
    if broken:
        sys.exit(1)


def versions() -> str:
    """Return the versions of what a store is made with."""
    numpy = version("numpy")
    return f"ragembed {__version__}, SQLite {sqlite3.sqlite_version}, FAISS {faiss.__version__}, NumPy {numpy}"


def told(message: str) -> None:
    """Say on stderr how far a long run is."""
    print(message, file=sys.stderr, flush=True)
