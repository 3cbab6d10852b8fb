"""The tables of a paper, measured again: each figure of ours beside the one that the paper prints.

Source: Stankevičius & Lukoševičius 2024, tables A1 to A14 (their means are tables 4 and 5), in stankevicius2024.tsv.
What is compared with what is described in README.md.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from report import machine, table, write_section

from ragembed.config import DEFAULT_MODEL, EmbedderConfig
from ragembed.errors import RagembedError
from ragembed.evaluation.tasks import ClusteringTask, StsTask, Task, evaluate, read_clustering, read_sts
from ragembed.version import __version__

PUBLISHED = Path(__file__).resolve().parent / "stankevicius2024.tsv"
PAPER_MODEL = "bert-base-uncased"
TASKS: Mapping[str, str] = {"sts": "Spearman", "clustering": "accuracy"}
SIZES: Mapping[str, Mapping[str, int]] = {
    "sts": {
        "sts12": 3108,
        "sts13": 1500,
        "sts14": 3750,
        "sts15": 3000,
        "sts16": 1186,
        "stsb": 1379,
        "sickr": 4927,
        "str": 5500,
    },
    "clustering": {
        "agnews": 8000,
        "biomedical": 20000,
        "googlets": 11109,
        "searchsnippets": 12340,
        "stackoverflow": 20000,
        "tweet": 2472,
    },
}
"""Pairs or texts in each collection of the paper (its tables 2 and 3); of another number, it is another collection."""
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "T0": {"template": "t0"},
    "T4": {"template": "t4"},
    "BERT": {"layers": "first+last"},
    "BERT+Avg.": {"layers": "first+last", "extractor": "bert+avg"},
    "Avg.": {"layers": "first+last", "extractor": "avg"},
    "B2S": {"extractor": "words"},
    "B2S-100": {"extractor": "words:drop=100"},
    "RE": {"extractor": "re"},
}
GROUPS = (("T0",), ("T4",), ("BERT", "BERT+Avg.", "Avg."), ("B2S",), ("B2S-100",), ("RE",))
"""Columns that share the model's passes."""
TEMPLATES, WORDS, AVERAGED = ("T0", "T4"), ("B2S", "B2S-100"), ("BERT+Avg.", "Avg.")
STEPS = ("none", "zscore", "quantile-u", "abtt:2", "normalize", "whiten")
WIKITEXT_STEPS = ("quantile-u", "whiten")
MASKS = "[MASK]"
AVERAGE = "average"

Place: TypeAlias = "tuple[str, str, str, str, str]"
"""Task, collection, weighting, post-processor and column, as the paper has them; the collection may be ``average``."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of our tables, and the weighting and post-processor that the paper prints on the row it is compared with.

    ``wikitext_idf`` and ``wikitext_steps`` tell that token weights and post-processors are fitted on Wikitext, and not
    on the collection itself.
    """

    weighting: str
    steps: str
    wikitext_idf: bool = False
    wikitext_steps: bool = False

    @property
    def name(self) -> str:
        """What was done, naming the corpus that idf was fitted on."""
        weighting = "avg." if self.weighting == "uniform" else self.weighting
        if self.weighting == "idf":
            weighting = f"idf of {'Wikitext' if self.wikitext_idf else 'the collection'}"
        if self.steps == "none":
            return weighting
        return f"{weighting} + {self.steps}{' of Wikitext' if self.wikitext_steps else ''}"

    @property
    def printed(self) -> tuple[str, str]:
        """Weighting and post-processor of the printed row: the superscripts of idf stand for the other corpus there."""
        weighting = {"uniform": "avg.", "idf": "idf^T" if self.wikitext_idf else "idf^W"}.get(
            self.weighting, self.weighting
        )
        return weighting, self.steps.replace(":", "-") + ("^W" if self.wikitext_steps else "")


@dataclass(frozen=True, slots=True)
class Setting:
    """What the user gave: models and files."""

    model: str | None
    avg_corpus: str | None
    wikitext: str | None
    words_file: str | None

    def model_of(self, column: str) -> str:
        """Return the model of a column; random embeddings need its tokenizer alone, whose vocabulary MiniLM has too."""
        if column in WORDS and self.words_file is not None:
            return self.words_file
        return self.model or (DEFAULT_MODEL if column == "RE" else PAPER_MODEL)

    def comparable(self, column: str) -> bool:
        """Tell whether the paper's figures of a column are of this model; a vocabulary has to be that of BERT."""
        if column in WORDS:
            return True
        model = self.model_of(column)
        return Path(model).name == PAPER_MODEL or (column == "RE" and model == DEFAULT_MODEL)

    def config(self, column: str, row: Row) -> EmbedderConfig:
        """Return the configuration of a cell."""
        masks = row.weighting == MASKS
        return EmbedderConfig.from_dict(COLUMNS[column]).replace(
            model=self.model_of(column),
            sides="one",
            pooling="masks" if masks else "mean",
            weighting="uniform" if masks else row.weighting,
            weighting_corpus=self.wikitext if row.wikitext_idf else None,
            postprocess=() if row.steps == "none" else (row.steps,),
            postprocess_corpus=self.wikitext if row.wikitext_steps else None,
            avg_corpus=self.avg_corpus if column in AVERAGED else None,
        )


def main() -> None:
    """Measure, print the tables, and with ``--write`` put them into the page of results."""
    arguments = _arguments()
    setting = Setting(arguments.model, arguments.avg_corpus, arguments.wikitext, arguments.b2s)
    columns = _columns(arguments.only, setting)
    published = read_published()
    try:
        read = {task: _read(task, arguments.data, arguments.runs) for task in arguments.task or TASKS}
        if not any(read.values()):
            sys.exit(
                f"no collection in {arguments.data}: expected files {' or '.join(f'{task}/*.tsv' for task in read)}"
            )
        for task, collections in read.items():
            if not collections:
                continue
            values = _measure(collections, columns, setting)
            body = section(task, collections, values, setting, published)
            print(body)
            if arguments.write:
                write_section(f"paper_tables:{task}", body)
    except RagembedError as error:
        sys.exit(str(error))


def read_published(path: Path = PUBLISHED) -> dict[Place, float]:
    """Read the paper's figures, in per cent, by their place."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["task"], row["data"], row["weighting"], row["postprocess"], column): float(row[column])
            for row in csv.DictReader(file, delimiter="\t")
            for column in COLUMNS
            if row[column]
        }


def rows_of(column: str, *, wikitext: bool) -> list[Row]:
    """Return the rows of a column; mask tokens are averaged where a template has them."""
    rows = [Row(weighting, steps) for weighting in ("uniform", "idf", "-biases") for steps in STEPS]
    if wikitext:
        rows += [Row("idf", steps, wikitext_idf=True) for steps in STEPS]
        rows += [Row(name, steps, wikitext_steps=True) for name in ("uniform", "idf") for steps in WIKITEXT_STEPS]
    if column in TEMPLATES:
        rows += [Row(MASKS, steps) for steps in STEPS]
    return rows


def data_name(stem: str) -> str:
    """Return the name under which the paper's figures of a file are kept: ``STS-B`` is ``stsb``."""
    return re.sub(r"[^a-z0-9]", "", stem.lower())


def cell(ours: float, papers: float | None) -> str:
    """Return our figure, and in brackets the paper's and the difference where the paper has one.

    >>> cell(47.81, 48.8), cell(72.48, 72.5), cell(40.2, None)
    ('47.8 (48.8, -1.0)', '72.5 (72.5, +0.0)', '40.2')
    """
    return f"{ours:.1f}" if papers is None else f"{ours:.1f} ({papers:.1f}, {round(ours - papers, 1) + 0.0:+.1f})"


def column_table(
    task: str, column: str, values: Mapping[Row, Mapping[str, float]], published: Mapping[Place, float]
) -> str:
    """Return the table of a column: a row for each of ours, a column for each collection, and a mean.

    The mean is over those collections that the paper has figures of, else over all. Where the paper prints a mean
    alone, it stands beside ours if these are all of the paper's collections.
    """
    names = list(next(iter(values.values())))
    theirs = {data for kind, data, *_ in published if kind == task} - {AVERAGE}
    averaged = [name for name in names if data_name(name) in theirs] or names
    lines = []
    for row, ours in values.items():
        papers = {name: published.get((task, data_name(name), *row.printed, column)) for name in names}
        cells = [cell(ours[name], papers[name]) for name in names]
        if len(averaged) > 1:
            known = [figure for name in averaged if (figure := papers[name]) is not None]
            mean = fmean(known) if len(known) == len(averaged) else None
            if not known and {data_name(name) for name in averaged} == {*SIZES[task]}:
                mean = published.get((task, AVERAGE, *row.printed, column))
            cells.append(cell(fmean(ours[name] for name in averaged), mean))
        lines.append([row.name, *cells])
    which = AVERAGE if averaged == names else f"{AVERAGE} of {', '.join(averaged)}"
    return table([column, *names, *([which] if len(averaged) > 1 else [])], lines)


def section(
    task: str,
    collections: Sequence[Task],
    values: Mapping[str, Mapping[Row, Mapping[str, float]]],
    setting: Setting,
    published: Mapping[Place, float],
) -> str:
    """Return the part of the page of results that is about ``task``."""
    other = [one.name for one in collections if size(one) != SIZES[task].get(data_name(one.name))]
    left_out = {data_name(name) for name in other}
    kept = {place: figure for place, figure in published.items() if place[1] not in left_out}
    tables = [
        column_table(task, column, rows, kept if setting.comparable(column) else {}) for column, rows in values.items()
    ]
    heading = f"## Tables of Stankevičius & Lukoševičius 2024: {task}"
    about = f"{TASKS[task]} x 100; in brackets the paper's figure, and ours minus the paper's."
    return "\n\n".join([heading, about, *tables, "\n".join(_notes(collections, list(values), setting, other))])


def size(task: Task) -> int:
    """Return the number of pairs or texts of a collection."""
    return len(task.pairs.scores) if isinstance(task, StsTask) else len(task.documents)


def _notes(
    collections: Sequence[Task], columns: Sequence[str], setting: Setting, other: Sequence[str]
) -> Iterator[str]:
    yield "- Everything is fitted on the collection's own texts, except where a row names Wikitext."
    yield (
        "- idf fitted on the collection stands beside the rows that the paper prints under idf with the superscript W, "
        "idf fitted on Wikitext beside those under T: this is the assignment that reproduces the figures."
    )
    if other:
        yield f"- No figures of the paper for {', '.join(other)}: the number of records is not that of the paper."
    unlike = [column for column in columns if not setting.comparable(column)]
    if unlike:
        yield f"- No figures of the paper for {', '.join(unlike)}: the model is not {PAPER_MODEL}."
    if {*AVERAGED} & {*columns}:
        corpus = setting.avg_corpus or "each collection"
        yield f"- The static vectors of Avg. are means over {corpus}, the paper's over Wikitext-103."
    if setting.wikitext is not None:
        yield f"- Wikitext is {setting.wikitext}; the paper's is Wikitext-2."
    yield from (
        f"- Mean of {one.runs} runs of k-means, each the best of 10 initialisations."
        for one in collections[:1]
        if isinstance(one, ClusteringTask)
    )
    models = dict.fromkeys(setting.model_of(column) for column in columns)
    yield f"- ragembed {__version__}, {', '.join(models)}, {date.today().isoformat()}, {machine()}."


def _measure(
    collections: Sequence[Task], columns: Sequence[str], setting: Setting
) -> dict[str, dict[Row, dict[str, float]]]:
    """Return the figures in per cent, by column, row and collection."""
    values: dict[str, dict[Row, dict[str, float]]] = {column: {} for column in columns}
    for collection in collections:
        for group in GROUPS:
            cells = [
                (column, row)
                for column in group
                if column in columns
                for row in rows_of(column, wikitext=setting.wikitext is not None)
            ]
            if not cells:
                continue
            print(f"{collection.name}: {', '.join(dict.fromkeys(column for column, _ in cells))}", file=sys.stderr)
            measured = evaluate(collection, [setting.config(column, row) for column, row in cells])
            for (column, row), (_, one) in zip(cells, measured, strict=True):
                values[column].setdefault(row, {})[collection.name] = float(one.scores[one.headline])
    return values


def _read(task: str, folder: Path, runs: int) -> list[Task]:
    paths = sorted((folder / task).glob("*.tsv"))
    return [read_sts(path) if task == "sts" else read_clustering(path, runs) for path in paths]


def _columns(only: Sequence[str] | None, setting: Setting) -> list[str]:
    """Return the columns to measure, in the paper's order: those asked for, or all that there are models for."""
    if setting.words_file is not None:
        return [column for column in COLUMNS if only is None or column in only]
    if only is not None and (needy := [column for column in only if column in WORDS]):
        sys.exit(f"{needy[0]} needs a file of word vectors: give it with --b2s FILE")
    return [column for column in COLUMNS if column not in WORDS and (only is None or column in only)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA_DIR", help="folder with sts/*.tsv and clustering/*.tsv")
    parser.add_argument("--model", help=f"id or folder (default: {PAPER_MODEL}; for RE, a tokenizer of its vocabulary)")
    parser.add_argument("--avg-corpus", type=_file, metavar="FILE", help="texts, one a line, to fit Avg. on")
    parser.add_argument("--wikitext", type=_file, metavar="FILE", help="Wikitext-2, one text a line: adds its rows")
    parser.add_argument("--b2s", type=_file, metavar="FILE", help="word vectors: adds the columns B2S and B2S-100")
    parser.add_argument("--only", type=_column, action="append", metavar="COLUMN", help=f"{', '.join(COLUMNS)}; again")
    parser.add_argument("--task", choices=tuple(TASKS), action="append", help="may be given again (default: both)")
    parser.add_argument("--runs", type=_positive, default=10, help="runs of k-means (default: 10, as in the paper)")
    parser.add_argument("--write", action="store_true", help="write a section of results.md, too")
    return parser.parse_args()


def _column(text: str) -> str:
    known = {column.lower().rstrip("."): column for column in COLUMNS}
    if text.lower().rstrip(".") not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is no column: expected one of {', '.join(COLUMNS)}")
    return known[text.lower().rstrip(".")]


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return text


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is too few: expected 1 or more")
    return number


if __name__ == "__main__":
    main()
