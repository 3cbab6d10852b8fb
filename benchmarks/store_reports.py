"""Measure ``ragembed report``: time, memory, size of the file, and the share of neighbours that the map keeps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from data import Setting, write_files, write_tables
from processes import RAGEMBED, ROOT, say
from report import per_cent, significant, table
from speed import Outcome, texts_folder

from ragembed.evaluation import read_beir
from ragembed.languages import everyday_sentences

DIM = 384


def reports(setting: Setting) -> Outcome:
    """Make the report of the project's documentation, of Cranfield, of several languages, and of generated tables."""
    sizes = (200, 2_000) if setting.trial else (20_000, 100_000)
    random = ("--extractor", f"re:dim={DIM}")
    texts = texts_folder(setting, "rows-120-words", sizes[-1], 120) / "texts.txt"
    docs = setting.folder / "docs"
    shutil.copytree(ROOT / "docs" / "how-to" if setting.trial else ROOT / "docs", docs)
    cranfield = write_files(
        read_beir(setting.data / "retrieval" / "cran"), setting.folder / "cranfield", 100 if setting.trial else None
    )
    rows = [
        _row(setting, "documentation of ragembed, MiniLM", docs, ()),
        _row(setting, "Cranfield, MiniLM", cranfield, ()),
        _row(setting, "everyday sentences in several languages, MiniLM", _languages(setting.folder / "languages"), ()),
    ]
    for size in sizes:
        files = write_tables(setting, size, texts)
        rows.append(_row(setting, "tables, random embeddings", files, random))
        shutil.rmtree(files)
    about = (
        "`ragembed report` as a process, from start to exit. The last column is the share of the 10 nearest vectors of "
        "a vector that are among the 10 nearest points on the map, measured for up to 1,000 vectors. Each report is "
        "made twice; both files are equal."
    )
    head = ["store", "chunks", "seconds", "processor seconds", "peak memory, MiB", "file, MB", "neighbours kept"]
    return Outcome([about, table(head, rows)])


def _row(setting: Setting, name: str, files: Path, options: Sequence[str]) -> list[str]:
    say(f"report: {name}")
    store, page = setting.folder / f"{files.name}.store", setting.folder / f"{files.name}.html"
    setting.runner.run([*RAGEMBED, "index", files, "--store", store, "--quiet", *options])
    command = [*RAGEMBED, "report", "--store", store, "--out", page, "--json", "--quiet"]
    cost, printed = setting.runner.run(command)
    first = page.read_bytes()
    setting.runner.run(command)
    if page.read_bytes() != first:
        raise RuntimeError(f"two reports on {store} differ")
    shutil.copy(page, setting.cache)
    shutil.rmtree(store)
    found = json.loads(printed)
    return [
        name,
        f"{found['chunks']:,}",
        significant(cost.wall, 3),
        significant(cost.processor, 3),
        f"{cost.memory:,.0f}",
        significant(found["bytes"] / 1e6, 3),
        per_cent(found["neighbours_kept"]),
    ]


def _languages(folder: Path) -> Path:
    """Write everyday sentences, two per file, into a folder for each language."""
    for language, sentences in everyday_sentences().items():
        (folder / language).mkdir(parents=True)
        for start in range(0, len(sentences), 2):
            file = folder / language / f"{start // 2}.txt"
            file.write_text("\n".join(sentences[start : start + 2]) + "\n", encoding="utf-8")
    return folder
