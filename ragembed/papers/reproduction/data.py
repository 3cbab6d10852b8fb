"""The collections of the papers, where their files are expected and published, and the numbers that the papers print.

The folder ``published`` has one file per paper, with one block per table. The first line of a block has the name of the
table and its columns, the other lines a row each. Means are without their deviations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

from ragembed.corpus import Corpus
from ragembed.files import make_folders, replace_file

_SHORTEST = 10
"""Sentences of Wikitext with fewer characters are left out (Stankevičius & Lukoševičius 2024, section 3.5.4)."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"“])")


@dataclass(frozen=True, slots=True)
class PaperCollection:
    """A collection of a paper: its group, the ``paths`` where it may be, and the number of records in the paper."""

    name: str
    group: str
    task: str
    paths: tuple[str, ...]
    source: str
    records: int | None = None

    def find(self, folder: Path) -> Path | None:
        """Return the file or folder of the collection below ``folder``, or None if it is missing."""
        return next((path for name in self.paths if (path := folder / name).exists()), None)


SENTEVAL = "https://github.com/facebookresearch/SentEval"
_CLUSTERING = "https://github.com/rashadulrakib/short-text-clustering-enhancement"
_WIKITEXT = "https://huggingface.co/datasets/Salesforce/wikitext"


def _pairs(name: str, records: int, source: str = SENTEVAL, *more: str) -> PaperCollection:
    return PaperCollection(name, "STS", "sts", (f"sts/{name}.tsv", f"{name}.tsv", *more), source, records)


def _topics(name: str, records: int) -> PaperCollection:
    return PaperCollection(
        name, "clustering", "clustering", (f"clustering/{name}.tsv", f"{name}.tsv"), _CLUSTERING, records
    )


def _labels(name: str, *folders: str, source: str = SENTEVAL, task: str = "classification") -> PaperCollection:
    paths = (f"classification/{name}.tsv", *(f"classification/{folder}" for folder in folders), *folders)
    return PaperCollection(name, "classification", task, paths, source)


_SICK = ("SICK", "sick", "sts/SICK")
_STSB = ("STS/STSBenchmark", "stsb", "sts/STSBenchmark")
COLLECTIONS: Mapping[str, PaperCollection] = {
    one.name: one
    for one in (
        _pairs("sts12", 3108),
        _pairs("sts13", 1500),
        _pairs("sts14", 3750),
        _pairs("sts15", 3000),
        _pairs("sts16", 1186),
        _pairs("stsb", 1379, SENTEVAL, *_STSB),
        _pairs("sickr", 4927, "https://zenodo.org/records/2787612", *_SICK),
        _pairs("str", 5500, "https://zenodo.org/records/7599667"),
        _topics("agnews", 8000),
        _topics("biomedical", 20000),
        _topics("googlets", 11109),
        _topics("searchsnippets", 12340),
        _topics("stackoverflow", 20000),
        _topics("tweet", 2472),
        _labels("mr", "MR"),
        _labels("cr", "CR"),
        _labels("subj", "SUBJ"),
        _labels("mpqa", "MPQA"),
        _labels("sst2", "SST/binary", "SST2"),
        _labels("sst5", "SST/fine", "SST5"),
        _labels("trec", "TREC"),
        _labels("mrpc", "MRPC"),
        _labels("scicite", "SciCite", "scicite", source="https://github.com/allenai/scicite"),
        _labels("sicke", *_SICK, source="https://zenodo.org/records/2787612"),
        _labels("sickr-trained", *_SICK, source="https://zenodo.org/records/2787612", task="relatedness"),
        _labels("stsb-trained", *_STSB, task="relatedness"),
        *(
            PaperCollection(
                name,
                "probing",
                "perceptron",
                (f"probing/{file}.txt", f"{file}.txt"),
                f"{SENTEVAL}/tree/main/data/probing",
            )
            for name, file in {
                "SentLen": "sentence_length",
                "WC": "word_content",
                "TreeDepth": "tree_depth",
                "TopConst": "top_constituents",
                "BShift": "bigram_shift",
                "Tense": "past_present",
                "SubjNum": "subj_number",
                "ObjNum": "obj_number",
                "SOMO": "odd_man_out",
                "CoordInv": "coordination_inversion",
            }.items()
        ),
        PaperCollection("wikitext-2", "corpus", "isotropy", ("wikitext-2",), _WIKITEXT),
        PaperCollection("wikitext-103", "corpus", "isotropy", ("wikitext-103",), _WIKITEXT),
        PaperCollection(
            "oxford",
            "dictionary",
            "",
            ("dictionaries/oxford.tsv", "oxford.tsv"),
            "https://github.com/shonosuke/ishiwatari-naacl2019",
        ),
        PaperCollection(
            "wordnet",
            "dictionary",
            "",
            ("dictionaries/wordnet", "dictionaries/wordnet.tsv", "wordnet"),
            "https://wordnet.princeton.edu/download",
        ),
    )
}
"""Every collection of the papers, by its name."""


def in_group(group: str) -> tuple[str, ...]:
    """Return the names of the collections that a paper averages over."""
    trained = ("sickr-trained", "stsb-trained")
    return tuple(name for name, one in COLLECTIONS.items() if one.group == group and name not in trained) + (
        trained if group == "classification" else ()
    )


def sentences(folder: Path, out: Path) -> Path:
    """Split the text files of ``folder`` into sentences, one per line, and return the file with them in ``out``."""
    file = out / f"{folder.name}.sentences.txt"
    if not file.exists():
        make_folders(out)
        parts = [sentence for path in _texts(folder) for line in Corpus(path) for sentence in _SENTENCE.split(line)]
        kept = (" ".join(part.split()) for part in parts)
        replace_file(file, "\n".join(part for part in kept if len(part) >= _SHORTEST).encode())
    return file


def _texts(folder: Path) -> Iterator[Path]:
    """Yield the text files of Wikitext, in the order of their names."""
    yield from sorted(path for path in folder.iterdir() if path.suffix in (".txt", ".tokens", ".raw"))


Numbers = Mapping[str, Mapping[str, float]]
"""Numbers by row and column."""
Printed = Callable[[str, str, Sequence[str]], "float | None"]
"""Returns the paper's number for a row, a column and the collections that were measured."""


@cache
def published(paper: str, table: str) -> Numbers:
    """Return the numbers of a table, such as ``published("stankevicius2024", "table A1")["avg."]["RE"]``."""
    for name, columns, rows in _blocks(paper):
        if name == table:
            return {
                row: {column: float(cell) for column, cell in zip(columns, cells, strict=False) if cell}
                for row, *cells in rows
            }
    raise KeyError(f"no table {table!r} of {paper!r}")


def printed(paper: str, table: str, columns: Mapping[str, str] = MappingProxyType({})) -> Printed:
    """Return the lookup of the numbers of a table, by row, column and the collections that were measured.

    With ``columns``, names of columns by collection, an average is that of the columns of these collections.
    """

    def number(row: str, column: str, names: Sequence[str]) -> float | None:
        numbers = published(paper, table).get(row, {})
        if column != "average" or not columns:
            return numbers.get(column)
        known = [numbers[columns[name]] for name in names if columns.get(name) in numbers]
        return fmean(known) if known and len(known) == len(names) else None

    return number


@cache
def _blocks(paper: str) -> tuple[tuple[str, list[str], list[list[str]]], ...]:
    text = (files("ragembed.papers.reproduction") / "published" / f"{paper}.tsv").read_text(encoding="utf-8")
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        (name, *columns), *rows = (line.split("\t") for line in block.split("\n"))
        blocks.append((name, columns, rows))
    return tuple(blocks)
