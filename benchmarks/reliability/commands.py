"""The commands that write, each with a store for it to work on, and what it makes of that."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ragembed.indexes.layout import DATABASE, EMBEDDERS, RAW, SEGMENTS
from ragembed.indexes.layout import INDEX as INDEX_FILE
from ragembed.indexes.search import Mode
from reliability.corpus import Corpus, edited, write_corpus
from reliability.damage import flip
from reliability.stores import ALL_MODES, INDEX, Cli, Content, content


@dataclass(frozen=True, slots=True)
class Case:
    """A command, and what a store's files hold before and after it.

    ``at_once``: it changes all content in one commit. ``may_be_done``: a second run finds nothing to do and exits with
    1. ``damage``: what ``verify`` finds before it is done, by part and file. ``modes``: searches that answer meanwhile.
    """

    arguments: Sequence[str]
    before: Content
    after: Content
    at_once: bool = True
    may_be_done: bool = False
    damage: Sequence[tuple[str, str]] = ()
    modes: Sequence[Mode] = ALL_MODES


def _first_index(cli: Cli, corpus: Corpus) -> Case:
    write_corpus(cli.folder, corpus)
    return Case(INDEX, {}, _built_anew(cli, corpus), at_once=False)


def _index_after_edits(cli: Cli, corpus: Corpus) -> Case:
    before = _indexed(cli, corpus)
    after = edited(corpus)
    write_corpus(cli.folder, after, corpus)
    return Case(INDEX, before, _built_anew(cli, after), at_once=False)


def _delete_paths(cli: Cli, corpus: Corpus) -> Case:
    before = _indexed(cli, corpus)
    after = {name: chunks for name, chunks in before.items() if name.startswith("docs/b/")}
    return Case(("delete", "docs/a", "docs/rows.csv"), before, after, may_be_done=True)


def _delete_where(cli: Cli, corpus: Corpus) -> Case:
    before = _indexed(cli, corpus)
    after = {name: () if name.endswith(".md") else chunks for name, chunks in before.items()}
    return Case(("delete", "--where", "ext = 'md'"), before, after, may_be_done=True)


def _refit(cli: Cli, corpus: Corpus) -> Case:
    before = _indexed(cli, corpus)
    return Case(("refit", "--postprocess", "whiten"), before, before)


def _optimize(cli: Cli, corpus: Corpus) -> Case:
    _indexed(cli, corpus)
    cli.must("delete", "docs/b")
    for i, name in enumerate(("docs/new/x.md", "docs/new/y.md")):
        write_corpus(cli.folder, {name: f"# {name}\n\nnumber {i}\n"})
        cli.must("index", "docs/new")
    before = content(cli.store)
    return Case(("optimize",), before, before)


def _repair_segments(cli: Cli, corpus: Corpus) -> Case:
    before = _indexed(cli, corpus)
    folders = sorted((cli.store / SEGMENTS).iterdir())
    (cli.store / f"{DATABASE}-sums").unlink()
    return _repair(cli, before, (folders[0] / RAW, folders[1] / INDEX_FILE))


def _repair_embedder(cli: Cli, corpus: Corpus) -> Case:
    before = _indexed(cli, corpus)
    [state] = (cli.store / EMBEDDERS).glob("*/state.safetensors")
    return _repair(cli, before, (state, next((cli.store / SEGMENTS).iterdir()) / RAW))


def _repair(cli: Cli, before: Content, files: Sequence[Path]) -> Case:
    for i, file in enumerate(files):
        flip(file, file.stat().st_size // (3 + i), 1 << i)
    return Case(("verify", "--repair"), before, before, damage=cli.verify()[1], modes=("lexical",))


class Kind(NamedTuple):
    """A command's share of the kills, how much larger its store is than that of ``index``, and what makes its case.

    Where the start of the process takes most of the time, few kills would meet the command at work.
    """

    share: int
    scale: int
    prepare: Callable[[Cli, Corpus], Case]


CASES: Mapping[str, Kind] = {
    "index": Kind(20, 1, _first_index),
    "index after edits": Kind(20, 1, _index_after_edits),
    "delete PATH": Kind(8, 6, _delete_paths),
    "delete --where": Kind(8, 6, _delete_where),
    "refit": Kind(14, 3, _refit),
    "optimize": Kind(14, 6, _optimize),
    "verify --repair, segments": Kind(8, 3, _repair_segments),
    "verify --repair, embedder": Kind(8, 2, _repair_embedder),
}


def _indexed(cli: Cli, corpus: Corpus) -> Content:
    write_corpus(cli.folder, corpus)
    cli.must(*INDEX)
    return content(cli.store)


def _built_anew(cli: Cli, corpus: Corpus) -> Content:
    """Return the content of a store of ``corpus`` that is built in one go elsewhere."""
    clean = Cli(cli.folder.with_name(f"{cli.folder.name}.clean"))
    clean.folder.mkdir()
    found = _indexed(clean, corpus)
    shutil.rmtree(clean.folder)
    return found
