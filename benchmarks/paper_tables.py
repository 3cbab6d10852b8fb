"""Reproduce the tables of a paper, and show each measured figure beside the figure in the paper.

Source: Stankevičius & Lukoševičius 2024, *Extracting Sentence Embeddings from Pretrained Transformer Models*, Applied
Sciences 14, 8887: tables A1 to A14, in stankevicius2024.tsv.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from data import Setting
from processes import say
from report import table
from speed import Outcome

from ragembed.config.settings import DEFAULT_MODEL, EmbedderConfig
from ragembed.errors import RagembedError
from ragembed.evaluation.tasks import StsTask, Task, evaluate, read_clustering, read_sts
from ragembed.models.files import find_model

PUBLISHED = Path(__file__).resolve().parent / "stankevicius2024.tsv"
MODEL = "bert-base-uncased"
SIZES = {
    "sts12": 3108,
    "sts13": 1500,
    "sts14": 3750,
    "sts15": 3000,
    "sts16": 1186,
    "stsb": 1379,
    "sickr": 4927,
    "str": 5500,
    "agnews": 8000,
    "biomedical": 20000,
    "googlets": 11109,
    "searchsnippets": 12340,
    "stackoverflow": 20000,
    "tweet": 2472,
}
"""Number of pairs or texts in each collection of the paper (tables 2 and 3); another number means other data."""
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "T0": {"template": "t0"},
    "T4": {"template": "t4"},
    "BERT": {"layers": "first+last"},
    "BERT+Avg.": {"layers": "first+last", "extractor": "bert+avg"},
    "Avg.": {"layers": "first+last", "extractor": "avg"},
    "RE": {"extractor": "re"},
}
WEIGHTINGS = {"uniform": "avg.", "idf": "idf^W", "-biases": "-biases", "[MASK]": "[MASK]"}
"""Token weights and their names in the paper. For random embeddings with idf fitted on the collection, the paper's
figures have the superscript W, not T."""
STEPS = ("none", "zscore", "quantile-u", "abtt:2", "normalize", "whiten")


def paper_tables(setting: Setting) -> Outcome:
    """Measure all columns if bert-base-uncased is installed, or else only random embeddings, which need no model."""
    columns = list(COLUMNS)
    try:
        find_model(MODEL, download=False)
    except RagembedError:
        say(f"{MODEL} is not installed: measuring random embeddings only, with the tokenizer of {DEFAULT_MODEL}")
        columns = ["RE"]
    runs = setting.choose(10, 1)
    parts = []
    for task, measure in {"sts": "Spearman", "clustering": f"accuracy of {runs} runs of k-means"}.items():
        paths = sorted((setting.data / task).glob("*.tsv"))[: 1 if setting.trial else None]
        tasks = [read_sts(path) if task == "sts" else read_clustering(path, runs) for path in paths]
        parts.append(f"{measure} × 100. The paper's figure, and ours minus the paper's, are in brackets.")
        parts += [_table(task, column, tasks) for column in columns]
    about = (
        f"Everything is fitted on the texts of the collection. The model is {MODEL}; random embeddings use its "
        "vocabulary. Figures of the paper are omitted for collections with another number of records. The static "
        "vectors of Avg. are means over each collection; in the paper, they are means over Wikitext-103."
    )
    return Outcome([about, *parts])


def _table(task: str, column: str, tasks: list[Task]) -> str:
    """Return the table of a column: a row for each setting, a column for each collection, and the mean."""
    published = _published()
    weightings = [name for name in WEIGHTINGS if name != "[MASK]" or "template" in COLUMNS[column]]
    keys = [(weighting, steps) for weighting in weightings for steps in STEPS]
    values: dict[str, list[float]] = {}
    for one in tasks:
        say(f"{one.name}: {column}")
        measured = evaluate(one, [_config(column, *key) for key in keys])
        values[one.name] = [float(found.scores[found.headline]) for _, found in measured]
    known = {one.name: _data_name(one) for one in tasks}
    rows = []
    for i, (weighting, steps) in enumerate(keys):
        printed = WEIGHTINGS[weighting], steps.replace(":", "-")
        papers = {name: published.get((task, data, *printed, column)) for name, data in known.items()}
        ours = {name: values[name][i] for name in values}
        cells = [_cell(ours[name], papers[name]) for name in ours]
        theirs = [figure for figure in papers.values() if figure is not None]
        mean = fmean(theirs) if len(theirs) == len(papers) else None
        rows.append([f"{printed[0].removesuffix('^W')}, {steps}", *cells, _cell(fmean(ours.values()), mean)])
    return table([column, *values, "mean"], rows)


def _config(column: str, weighting: str, steps: str) -> EmbedderConfig:
    masks = weighting == "[MASK]"
    return EmbedderConfig.from_dict(COLUMNS[column]).replace(
        model=DEFAULT_MODEL if column == "RE" else MODEL,
        query_fit="shared",
        pooling="masks" if masks else "mean",
        weighting="uniform" if masks else weighting,
        postprocess=() if steps == "none" else (steps,),
    )


def _data_name(task: Task) -> str:
    """Return the paper's name of a collection, or an unknown name if the number of records differs."""
    name = re.sub(r"[^a-z0-9]", "", task.name.lower())
    size = len(task.pairs.scores) if isinstance(task, StsTask) else len(task.documents)
    return name if size == SIZES.get(name) else f"{name}, {size} records"


def _published() -> dict[tuple[str, ...], float]:
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return {
            (row["task"], row["data"], row["weighting"], row["postprocess"], column): float(row[column])
            for row in csv.DictReader(file, delimiter="\t")
            for column in COLUMNS
            if row[column]
        }


def _cell(ours: float, papers: float | None) -> str:
    return f"{ours:.1f}" if papers is None else f"{ours:.1f} ({papers:.1f}, {round(ours - papers, 1) + 0.0:+.1f})"
