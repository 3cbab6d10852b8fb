"""Liu 2024, *DefSent+: Improving Sentence Embeddings of Language Models by Projecting Definition Sentences*.

Rows of trained models are trained here, from ``--model`` and the dictionaries in the folder of the data. Only the rows
of the model's own family are run. A training that was interrupted continues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, get_args

from ragembed.files import file_sha256, make_folders, replace_file
from ragembed.models.files import find_model
from ragembed.papers.reproduction.data import blocks, printed, published
from ragembed.papers.reproduction.reproduction_run import (
    PAPER_RUNS,
    Cell,
    Item,
    Reproduction,
    Value,
    digest_of,
    path_sha256,
)
from ragembed.papers.sentences.sentence_collections import read_scored_pairs
from ragembed.papers.training.settings import POOLINGS

PAPER = "defsent-plus"
_STS = {
    **{name: name.upper() for name in ("sts12", "sts13", "sts14", "sts15", "sts16")},
    "stsb": "STS-B",
    "sickr": "SICK-R",
}
_SENTEVAL = {name: name.upper() for name in ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")}
_DATASETS = {
    "a": ("a: Oxford and WordNet", ("oxford", "wordnet")),
    "b": ("b: Oxford", ("oxford",)),
    "c": ("c: Oxford, single words", ("oxford",)),
}
_ROW = re.compile(r"DefSent\+ ([\w-]+?)(\(ICA\))?, (\d)\w\w-\((\w+),(\w+)\)-([abc])")
_ORDINALS = ("1st", "2nd", "3rd", "4th")
_FAMILIES = {"bert": "BERT", "roberta": "RoBERTa"}


class Training(NamedTuple):
    """A trained row of a table: its dictionaries, its steps and its combination."""

    dataset: str
    steps: int
    pooling: str
    entries: str
    ica: bool

    @property
    def name(self) -> str:
        """Name of the folder of the training."""
        return f"{self.dataset}-{self.steps}-{self.pooling}-{self.entries}{'-ica' if self.ica else ''}"


def _family(run: Reproduction) -> str:
    """Return the paper's name of the kind of model, such as ``simcse-RoBERTa-base``."""
    return _paper_name(_recipe(run.inputs.model))


def _recipe(model: str) -> str:
    """Return the recipe for a model; the name of the model decides whether it is one of SimCSE or SNCSE."""
    from ragembed.papers.training.settings import recipe_for

    found, kind = recipe_for(find_model(model).folder), _contrastive(model)
    return f"{kind}-{found.removeprefix('simcse-')}" if kind else found


def _contrastive(model: str) -> str:
    """Return ``simcse`` or ``sncse`` if the name of the model has it, else nothing."""
    return next((each for each in ("simcse", "sncse") if each in Path(model).name.lower()), "")


def _trained_row(run: Reproduction) -> str | None:
    """Return the row of a model that DefSent+ trained, or None for another model."""
    from ragembed.papers.training.outcome import FILE, read_report

    folder = find_model(run.inputs.model).folder
    if not (folder / FILE).is_file():
        return None
    report = read_report(folder)
    family, step = _paper_name(_recipe(report["model"])), report["settings"]["steps"][-1]
    if report["method"] == "defsent":
        return f"DefSent {family}"
    combination = f"{'CLS' if step['pooling'] == 'cls' else 'Mean'},{step['entries'].upper()}"
    ica, dataset = "" if step["ica"] == "none" else "(ICA)", "a" if len(report["dictionaries"]) > 1 else "b"
    return f"DefSent+ {family}{ica}, {_ORDINALS[len(report['steps']) - 1]}-({combination})-{dataset}"


def _paper_name(recipe: str) -> str:
    """Return the paper's name of the models of a recipe."""
    return "-".join(_FAMILIES.get(part, part) for part in recipe.split("-"))


def _dictionaries(run: Reproduction, dataset: str) -> tuple[Path, ...] | None:
    """Return the dictionaries of a dataset, or None if one is missing."""
    found = [run.find(name) for name in _DATASETS[dataset][1]]
    return None if None in found else tuple(path for path in found if path is not None)


def _sizes(run: Reproduction) -> Iterator[Value]:
    """Measure table 1: the sizes of the dictionaries, with the tokenizer of the model."""
    from ragembed.models.tokenizer import TextTokenizer
    from ragembed.papers.training.dictionary import read_dictionaries, single_tokens, statistics
    from ragembed.papers.training.glosses import TrainingTexts

    tokenizer = TextTokenizer(run.model_folder)
    kind = "RoBERTa" if "RoBERTa" in _family(run) else "BERT"
    for dataset, (row, _) in _DATASETS.items():
        paths = _dictionaries(run, dataset)
        if paths is None:
            continue
        dictionary = read_dictionaries(paths)
        if dataset == "c":
            dictionary, _ = single_tokens(dictionary, tokenizer)
        texts = TrainingTexts.of(dictionary, tokenizer, None, 0)
        found = statistics(dictionary, texts.windows.lengths[texts.text])
        columns = dict(
            zip(("definitions", "entries", f"longest, {kind}", f"median, {kind}"), found.values(), strict=True)
        )
        yield from (Value(row, column, "dictionaries", float(value)) for column, value in columns.items())


def _pairs(run: Reproduction) -> dict[str, Path]:
    """Return the tables of sentence pairs; the test pairs of a folder of SentEval are written as a table."""
    found = {name: run.find(name) for name in run.chosen(tuple(_STS))}
    return {name: _table(run, name, path) for name, path in found.items() if path is not None}


def _table(run: Reproduction, name: str, path: Path) -> Path:
    if path.is_file():
        return path
    _, pairs = read_scored_pairs(path)
    rows = zip(pairs.scores, pairs.sentences1, pairs.sentences2, strict=True)
    lines = ["score\tsentence1\tsentence2", *(f"{score}\t{first}\t{second}" for score, first, second in rows)]
    file = run.inputs.out / "pairs" / f"{name}.tsv"
    make_folders(file.parent)
    replace_file(file, "\n".join([*lines, ""]).encode())
    return file


def _train(run: Reproduction, training: Training) -> Mapping[str, Any] | None:
    """Return the report of a training, or None if a dictionary or all sentence pairs are missing."""
    from ragembed.papers.training import RECIPES, TrainingRequest, TrainingSettings, train_from_dictionary
    from ragembed.papers.training.outcome import read_report
    from ragembed.papers.training.settings import EntryKind, Pooling

    paths = _dictionaries(run, training.dataset)
    pairs = _pairs(run)
    if paths is None or not pairs:
        return None
    recipe = RECIPES[_recipe(run.inputs.model)]
    pooling = next(each for each in get_args(Pooling) if each == training.pooling)
    entries = next(each for each in get_args(EntryKind) if each == training.entries)
    steps = recipe.steps(
        training.steps,
        ((pooling, entries),),
        recipe.learning_rates[: training.steps],
        "unit-variance" if training.ica else "none",
    )
    head = run.inputs.head_from
    inputs = {
        "model": find_model(run.inputs.model).sha256,
        "head": None if head is None else find_model(head, option="--head-from").sha256,
        "dictionaries": [path_sha256(path) for path in paths],
        "pairs": {name: file_sha256(path) for name, path in pairs.items()},
        "runs": run.inputs.runs,
    }
    # The folder belongs to these inputs, so that a training with others is not taken for this one.
    out = run.inputs.out / "trainings" / f"{Path(run.inputs.model).name}-{training.name}-{digest_of(inputs)[:8]}"
    if run.inputs.runs != PAPER_RUNS:
        run.note(f"trainings of each row: {run.inputs.runs}; in the paper, {PAPER_RUNS}")
    if (out / "training.json").is_file():
        return read_report(out)
    if not run.inputs.measure:
        run.note(f"{training.name}: not trained")
        return None
    request = TrainingRequest(
        paths,
        run.inputs.model,
        out,
        TrainingSettings(steps, runs=run.inputs.runs),
        tuple(pairs.values()),
        device=run.inputs.device,
        head_from=head,
        single_words=training.dataset == "c",
    )
    return train_from_dictionary(request, run.progress)


def _scores(report: Mapping[str, Any], best: bool) -> tuple[str, Mapping[str, float]]:
    """Return the best pooling and its score of each collection: of the best run, or the mean over the runs."""
    from ragembed.papers.training.train import best_pooling

    last = report["steps"][-1]
    runs = [last["runs"][last["best"]]] if best else last["runs"]
    means = {
        pooling: {name: fmean(run["sts"][pooling][name] for run in runs) for name in scores}
        for pooling, scores in runs[0]["sts"].items()
    }
    pooling, _ = best_pooling(means)
    return pooling, means[pooling]


def _similarity(table: str, run: Reproduction) -> Iterator[Value]:
    """Measure table 2 (means over runs), 3 (best runs of contrastive models) or 6 (the other statistic of each)."""
    family = _family(run)
    raw = not family.startswith(("simcse-", "sncse-"))
    best = table == "table 3" or (table == "table 6" and raw)
    yield from _untrained(run, _STS, "")
    if _trained_row(run) is not None:
        return
    found = [row for row in published(PAPER, table) if (match := _ROW.fullmatch(row)) and match[1] == family]
    if not found:
        run.note(f"{table} has no DefSent+ row for models of the kind {family}")
    for row in found:
        match = _ROW.fullmatch(row)
        if match is None:
            continue
        _, ica, steps, pooling, entries, dataset = match.groups()
        training = Training(dataset, int(steps), pooling.lower(), entries.lower(), ica is not None)
        report = _train(run, training)
        if report is None:
            continue
        used, scores = _scores(report, best)
        yield from _row(row, scores)
        run.note(f"{row}: {'best run' if best else 'mean of the runs'}, pooling {used}")


def _untrained(run: Reproduction, columns: Mapping[str, str], task: str) -> Iterator[Value]:
    """Measure the model itself with its best pooling, in the row of the paper for such a model, if there is one.

    The paper tries the vector of [CLS] and the prompt for SimCSE, and on STS only the prompt for SNCSE.
    """
    name = _trained_row(run)
    poolings: Iterable[str] = POOLINGS
    if name is None:
        family, kind = _family(run), _contrastive(run.inputs.model)
        _, _, rest = family.partition("-")
        name = {"simcse": f"SimCSE {rest}", "sncse": f"SNCSE {rest}"}.get(kind, f"{family}, untrained")
        poolings = {"simcse": ("cls", "prompt"), "sncse": POOLINGS if task else ("prompt",)}.get(kind, POOLINGS)
    values = list(run.evaluate(_poolings(run, columns, task, poolings)))
    if values:
        best = _best(values)
        run.note(f"{name}: the model itself, pooling {best}")
        yield from _row(name, {v.collection: v.value for v in values if v.row == best and v.value is not None})


def _poolings(
    run: Reproduction, columns: Mapping[str, str], task: str, poolings: Iterable[str] = POOLINGS
) -> Iterator[Cell]:
    configs = {row: run.config.replace(**POOLINGS[row]) for row in poolings if row != "prompt" or run.has_mask}
    for name in run.chosen(tuple(columns)):
        yield from (Cell(row, columns[name], name, config, task=task) for row, config in configs.items())


def _best(values: Sequence[Value]) -> str:
    sums: dict[str, float] = {}
    for value in values:
        sums[value.row] = sums.get(value.row, 0.0) + (value.value or 0.0)
    return max(sums, key=lambda row: sums[row], default="mean")


def _row(row: str, scores: Mapping[str, float]) -> Iterator[Value]:
    for name, score in scores.items():
        yield Value(row, (_STS | _SENTEVAL)[name], name, score)
        yield Value(row, "average", name, score)


def _grid(run: Reproduction) -> Iterator[Value]:
    """Measure table 8: the four combinations of pooling and entry vectors after one step on dataset a."""
    for column in ("mean,amp", "cls,amp", "mean,ac", "cls,ac"):
        if not run.wants(column):
            continue
        pooling, entries = column.split(",")
        report = _train(run, Training("a", 1, pooling, entries, ica=False))
        if report is not None:
            _, scores = _scores(report, best=False)
            yield Value(f"DefSent+ {_family(run)}", column, "STS", fmean(scores.values()))
            run.note(f"{column}: mean of {', '.join(scores)}")


def _learning_rates(run: Reproduction) -> Iterator[Value]:
    """Return the learning rates of the recipes, as the trainings of tables 2, 3 and 8 use them (table 5)."""
    from ragembed.papers.training import RECIPES

    for name, recipe in RECIPES.items():
        for number, step in enumerate(recipe.steps(), 1):
            yield Value(f"DefSent+ {_paper_name(name)}", f"step {number}, millionths", "", step.learning_rate * 1e6)
    run.note("the learning rates are settings of the recipes; nothing is measured")


def _pooling_scores(run: Reproduction) -> Iterator[Value]:
    """Measure table 7: each pooling of the model on STS and on SentEval; the paper names the best one."""
    family = _family(run)
    for task, columns, kind in (("STS", _STS, ""), ("SentEval", _SENTEVAL, "nested")):
        values = list(run.evaluate(_poolings(run, columns, kind)))
        yield from (Value(value.row, task, value.collection, value.value, value.note) for value in values)
        if values:
            run.note(f"{task}: best pooling {_best(values)}")
    rows = next(rows for name, _, rows in blocks(PAPER) if name == "table 7")
    sts, senteval = next(used for row, *used in rows if row.startswith((f"DefSent+ {family}(", f"DefSent+ {family},")))
    run.note(f"the paper uses {sts} on STS and {senteval} on SentEval for DefSent+ {family}")


def _supervised(run: Reproduction) -> Iterator[Value]:
    """Measure table 4: SentEval with its default configuration and the best pooling of the model."""
    yield from _untrained(run, _SENTEVAL, "nested")


def items() -> Iterator[Item]:
    """Yield the tables of the paper; its figures are the pictures that ``ragembed papers train --pictures`` draws."""
    item: Callable[..., Item] = partial(Item, PAPER)
    books, sts = ("oxford", "wordnet"), tuple(_STS)

    def similarity(table: str, title: str) -> Item:
        return item(table, title, (*sts, *books), partial(_similarity, table), printed(PAPER, table, _STS))

    yield item("table 1", "dictionaries", books, _sizes, printed(PAPER, "table 1"))
    yield similarity("table 2", "STS of models trained from raw ones, means of the runs")
    yield similarity("table 3", "STS of models trained from contrastive ones, best run")
    yield item("table 4", "SentEval", tuple(_SENTEVAL), _supervised, printed(PAPER, "table 4", _SENTEVAL))
    yield item("table 5", "learning rates of the recipes", (), _learning_rates, printed(PAPER, "table 5"))
    yield similarity("table 6", "STS, the other statistic of the released models")
    yield item("table 7", "poolings of the model", (*sts, *_SENTEVAL), _pooling_scores)
    yield item("table 8", "combinations of pooling and entry vectors", (*sts, *books), _grid, printed(PAPER, "table 8"))
