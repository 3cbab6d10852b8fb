"""The collections of the papers, where their files are expected and published, and the numbers that the papers print.

The folder ``published`` has one file per paper, with one block per table. The first line of a block has the name of the
table and its columns, the other lines a row each. Means are without their deviations. The file ``differences`` says
what differs from the papers: each line has the paper, the tables and figures, and the text.
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
from ragembed.papers.sentences.sentence_collections import FOLDERS

_SHORTEST = 10
"""Sentences of Wikitext with fewer characters are left out (Stankevičius & Lukoševičius 2024, section 3.5.4)."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"“])")


@dataclass(frozen=True, slots=True)
class PaperCollection:
    """A collection of a paper: its group, the ``paths`` where it may be, and the number of records in the paper.

    ``split`` says what is measured. ``folder`` is the name in :data:`FOLDERS` of the files of a folder.
    """

    name: str
    group: str
    task: str
    paths: tuple[str, ...]
    source: str
    records: int | None = None
    split: str = "all"
    folder: str = ""

    def find(self, folder: Path) -> Path | None:
        """Return the file or folder of the collection below ``folder``, or None if it is missing."""
        return next((path for name in self.paths if (path := folder / name).exists()), None)

    @property
    def expected(self) -> str:
        """The place and the files of the collection as published."""
        names = FOLDERS[self.folder][0] if self.folder else ()
        # A file with the pairs of a part of STS stands beside one with their scores.
        shown = ", ".join(name.replace(".input.", ".{input,gs}.") for name in names)
        return f"{self.paths[0]} with {shown}" if shown else self.paths[0]


SENTEVAL = "https://github.com/facebookresearch/SentEval"
_STS = "https://ixa2.si.ehu.eus/stswiki"
_CLUSTERING = "https://github.com/rashadulrakib/short-text-clustering-enhancement"
_WIKITEXT = "https://huggingface.co/datasets/Salesforce/wikitext"
_WITH_DEV = "train, dev and test"


def _pairs(
    name: str, records: int, folder: str, *places: str, source: str = _STS, split: str = "all"
) -> PaperCollection:
    paths = (*places, f"sts/{name}.tsv", f"{name}.tsv")
    return PaperCollection(name, "STS", "sts", paths, source, records, split, folder)


def _year(name: str, records: int, published: str) -> PaperCollection:
    """Return a year of STS: the folder as published, or as SentEval renames it."""
    senteval = f"STS/{name.upper()}-en-test"
    folder = "STS2016" if name == "sts16" else name.upper()
    return _pairs(name, records, folder, published, f"STS/{published}", senteval)


def _topics(name: str, records: int, file: str) -> PaperCollection:
    repository = _CLUSTERING.rpartition("/")[2]
    places = (f"{repository}/data/{file}", f"{repository}-master/data/{file}", f"clustering/{name}.tsv", f"{name}.tsv")
    return PaperCollection(name, "clustering", "clustering", places, _CLUSTERING, records)


def _labels(
    name: str, folder: str, *places: str, source: str = SENTEVAL, task: str = "classification", split: str = "all"
) -> PaperCollection:
    paths = (*places, *(f"classification/{place}" for place in places), f"classification/{name}.tsv")
    return PaperCollection(name, "classification", task, paths, source, split=split, folder=folder)


_SICK = ("SICK", "sick", "sts/SICK")
_STSB = ("STS/STSBenchmark", "stsbenchmark", "stsb", "sts/STSBenchmark")
COLLECTIONS: Mapping[str, PaperCollection] = {
    one.name: one
    for one in (
        _year("sts12", 3108, "test-gold"),
        _year("sts13", 1500, "test-gs"),
        _year("sts14", 3750, "sts-en-test-gs-2014"),
        _year("sts15", 3000, "test_evaluation_task2a"),
        _year("sts16", 1186, "sts2016-english-with-gs-v1.0"),
        _pairs("stsb", 1379, "STS-B", *_STSB, split="test"),
        _pairs("sickr", 4927, "SICK-R", *_SICK, source=SENTEVAL, split="test"),
        _pairs("str", 5500, "STR", "STR", "semantic-textual-relatedness", source="https://zenodo.org/records/7599667"),
        _topics("agnews", 8000, "agnewsdataraw-8000"),
        _topics("biomedical", 20000, "biomedical/biomedical_true_text"),
        _topics("googlets", 11109, "TS"),
        _topics("searchsnippets", 12340, "search_snippets/search_snippets_true_text"),
        _topics("stackoverflow", 20000, "stackoverflow/stackoverflow_true_text"),
        _topics("tweet", 2472, "tweet-original-order.txt"),
        _labels("mr", "MR", "MR"),
        _labels("cr", "CR", "CR"),
        _labels("subj", "SUBJ", "SUBJ"),
        _labels("mpqa", "MPQA", "MPQA"),
        _labels("sst2", "SST", "SST/binary", "SST2", split=_WITH_DEV),
        _labels("sst5", "SST", "SST/fine", "SST5", split=_WITH_DEV),
        _labels("trec", "TREC", "TREC", split="train and test"),
        _labels("mrpc", "MRPC", "MRPC", split="train and test"),
        _labels(
            *("scicite", "SCICITE", "scicite", "SciCite", "sci-cite"),
            source="https://github.com/allenai/scicite",
            split=_WITH_DEV,
        ),
        _labels("sicke", "SICK-E", *_SICK, split=_WITH_DEV),
        _labels("sickr-trained", "SICK-R", *_SICK, task="relatedness", split=_WITH_DEV),
        _labels("stsb-trained", "STS-B", *_STSB, source=_STS, task="relatedness", split=_WITH_DEV),
        *(
            PaperCollection(
                name,
                "probing",
                "perceptron",
                (f"probing/{file}.txt", f"{file}.txt"),
                f"{SENTEVAL}/tree/main/data/probing",
                split=_WITH_DEV,
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
        *(
            PaperCollection(name, "corpus", "isotropy", (name, f"{name}-raw"), _WIKITEXT)
            for name in ("wikitext-2", "wikitext-103")
        ),
        PaperCollection(
            "oxford",
            "dictionary",
            "",
            ("data/oxford", "dictionaries/oxford", "dictionaries/oxford.tsv", "oxford.tsv"),
            "https://github.com/shonosuke/ishiwatari-naacl2019",
        ),
        PaperCollection(
            "wordnet",
            "dictionary",
            "",
            ("dictionaries/wordnet", "dictionaries/wordnet.tsv", "wordnet", "WordNet-3.0"),
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
def differences(paper: str, item: str) -> tuple[str, ...]:
    """Return what differs from the paper in a table or figure, and why."""
    rows = (line.split("\t") for line in published_text("differences").splitlines())
    return tuple(text for name, items, text in rows if name == paper and item in items.split(", "))


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
    blocks = []
    for block in published_text(paper).strip("\n").split("\n\n"):
        (name, *columns), *rows = (line.split("\t") for line in block.split("\n"))
        blocks.append((name, columns, rows))
    return tuple(blocks)


def published_text(name: str) -> str:
    """Return a file of the folder ``published``."""
    return (files("ragembed.papers.reproduction") / "published" / f"{name}.tsv").read_text(encoding="utf-8")
