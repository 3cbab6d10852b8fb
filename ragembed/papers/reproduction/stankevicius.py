"""Stankevičius & Lukoševičius 2024, *Extracting Sentence Embeddings from Pretrained Transformer Models*.

Applied Sciences 14(19), 8887. The version on arXiv has the same tables and figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from ragembed.config.settings import EmbedderConfig
from ragembed.papers.reproduction.data import in_group, printed, published
from ragembed.papers.reproduction.reproduction_run import Cell, Item, Reproduction, Value

PAPER = "stankevicius2024"
GROUPS = ("STS", "clustering", "classification")
COLUMNS = ("T0", "T4", "BERT", "BERT + Avg.", "Avg.", "B2S", "B2S-100", "RE")
_WEIGHTINGS = ("avg.", "idf^W", "idf^T", "-biases", "[MASK]")
_STEPS = ("", "normalize", "quantile-u", "quantile-u^W", "whiten", "whiten^W", "zscore")
_APPENDIX = {name: f"table A{number}" for number, name in enumerate((*in_group("STS"), *in_group("clustering")), 1)}
_WEIGHTS = tuple(number / 4 for number in range(-4, 7))
_COMBINED = ("first+last", "1+2+last", "0+1+2+last")


def base(run: Reproduction, column: str) -> EmbedderConfig | None:
    """Return the configuration of a column with plain means, or None if its model or word vectors are missing."""
    plain = EmbedderConfig(model=run.inputs.model, weighting="uniform", postprocess=(), query_fit="shared")
    if column in ("T0", "T4"):
        if run.has_mask:
            return run.config.replace(template=column.lower())
        run.note(f"{column}: the model has no mask token, which the template needs")
        return None
    if column == "RE":
        return plain.replace(extractor="re")
    if column == "BERT":
        return run.config.replace(layers="first+last")
    if column in ("B2S", "B2S-100"):
        if len(run.inputs.word_vectors) != 1:
            run.note(
                f"{column}: needs one file of word vectors (--word-vectors FILE), got {len(run.inputs.word_vectors)}; "
                "'ragembed papers train b2s --paragraphs' makes one from a model"
            )
            return None
        extractor = "words" if column == "B2S" else "words:drop=100"
        return plain.replace(model=str(run.inputs.word_vectors[0]), extractor=extractor)
    corpus = run.avg_corpus()
    if corpus is None:
        return None
    if column == "Avg.":
        return plain.replace(extractor="avg", layers="first+last", avg_corpus=corpus)
    return run.config.replace(extractor="bert+avg", layers="first+last", avg_corpus=corpus)


def row_config(run: Reproduction, config: EmbedderConfig, row: str) -> EmbedderConfig | None:
    """Return the configuration of a row such as ``idf^T + quantile-u^W``, or None if it does not apply.

    The superscript W marks a fit on Wikitext-2. For idf the two superscripts are exchanged in the paper's tables: idf
    fitted on the collection gives the numbers printed under idf^W, and idf fitted on Wikitext-2 those under idf^T.
    """
    weighting, _, step = row.partition(" + ")
    changes: dict[str, object] = {}
    if weighting == "[MASK]":
        if config.template == "[X]":
            return None
        changes["pooling"] = "masks"
    elif weighting != "avg.":
        changes["weighting"] = weighting.partition("^")[0]
    if weighting == "idf^T":
        changes["weighting_corpus"] = run.wikitext()
        if config.template != "[X]":
            changes["template_tokens"] = "counted"
    if step:
        name, _, corpus = step.partition("^")
        changes["postprocess"] = ("abtt:2",) if name == "abtt-2" else (name,)
        if corpus:
            changes["postprocess_corpus"] = run.wikitext()
    if None in changes.values():
        return None
    return config.replace(**changes)


def cells(
    run: Reproduction, columns: Iterable[str], rows: Iterable[str], names: Iterable[str], prefix: str = ""
) -> Iterator[Cell]:
    """Yield the cells of a part of a table."""
    rows, names = tuple(rows), tuple(names)
    for column in columns:
        if not run.wants(column) or (config := base(run, column)) is None:
            continue
        for row in rows:
            found = row_config(run, config, row)
            if found is not None:
                yield from (Cell(prefix + row, column, name, found) for name in names)


def _appendix(name: str, run: Reproduction) -> Iterator[Value]:
    yield from run.evaluate(cells(run, COLUMNS, published(PAPER, _APPENDIX[name]), run.chosen([name])))


def _grouped(table: str, run: Reproduction) -> Iterator[Value]:
    """Measure table 4 or 5, whose rows start with a group."""
    for group in GROUPS:
        rows = [row.partition(": ")[2] for row in published(PAPER, table) if row.startswith(f"{group}: ")]
        yield from run.evaluate(cells(run, COLUMNS, rows, run.chosen(in_group(group)), f"{group}: "))


def _templates(run: Reproduction) -> Iterator[Value]:
    if not run.has_mask:
        run.note("the model has no mask token, which the templates need")
        return
    for group in GROUPS:
        for name in run.chosen(in_group(group)):
            yield from run.evaluate(
                Cell(template, group, name, run.config.replace(template=template.lower(), pooling="masks"))
                for template in published(PAPER, "table 1")
            )


def _mean_of_appendix(table: str, row: str, column: str, names: Sequence[str]) -> float | None:
    """Return the mean of tables A1 to A14 over the measured collections, or the printed mean if they do not say it."""
    label = row.partition(": ")[2]
    found = [published(PAPER, _APPENDIX[name]).get(label, {}).get(column) for name in names if name in _APPENDIX]
    known = [value for value in found if value is not None]
    return fmean(known) if known and len(known) == len(names) else printed(PAPER, table)(row, column, names)


def _describe(table: str, run: Reproduction) -> Iterator[Value]:
    """Measure table 2 or 3: sizes, vocabulary and lengths, by words (W) and by tokens of the model (B)."""
    from ragembed.models.tokenizer import TextTokenizer
    from ragembed.papers.sentences.description import describe

    tokenizer = TextTokenizer(run.model_folder)
    for name in run.chosen(list(dict.fromkeys(row.partition(",")[0] for row in published(PAPER, table)))):
        path = run.find(name)
        for found in describe(path, tokenizer) if path is not None else ():
            row = name if found.split is None else f"{name}, {found.split}"
            values = {"texts": found.texts, "classes": found.classes, "imbalance": found.imbalance}
            for measure in ("vocabulary", "length", "alphabetic"):
                values[f"words: {measure}"] = getattr(found.words, measure)
                values[f"tokens: {measure}"] = getattr(found.tokens, measure)
            values["overlap"] = found.overlap
            yield from (Value(row, key, name, float(value)) for key, value in values.items() if value is not None)


# Figures


def _by_layer(run: Reproduction) -> Iterator[Value]:
    """Measure figure 4: templates with three poolings, and BERT beside RE, by layer."""
    layers = [*map(str, range(run.layers + 1)), "first+last"]
    lines: list[tuple[str, EmbedderConfig]] = []
    if run.has_mask:
        for template in ("T0", "T4"):
            framed = run.config.replace(template=template.lower())
            for label, pooling in (("avg.", "mean"), ("avg. no [MASK]", "no-mask"), ("[MASK]", "masks")):
                lines.append((f"{template}: {label}", framed.replace(pooling=pooling)))
    lines.append(("BERT and RE: BERT avg.", run.config))
    plain = base(run, "RE")
    for group in GROUPS:
        for name in run.chosen(in_group(group)):
            found = [
                Cell(f"{group}: {label}", layer, name, config.replace(layers=layer))
                for label, config in lines
                if run.wants(label.partition(":")[0])
                for layer in layers
            ]
            if plain is not None:
                found += [Cell(f"{group}: BERT and RE: RE avg.", layer, name, plain) for layer in layers]
            yield from run.evaluate(found)


def _by_weight(groups: Sequence[str], by_collection: bool, run: Reproduction) -> Iterator[Value]:
    """Measure figure 5 or one of A1 to A3: BERT + Avg. by its weight and its layers."""
    corpus = run.avg_corpus()
    if corpus is None:
        return
    layers = [*map(str, range(run.layers + 1)), *_COMBINED]
    for group in groups:
        for name in run.chosen(in_group(group)):
            start = name if by_collection else group
            yield from run.evaluate(
                Cell(
                    f"{start}: w={weight:g}",
                    layer,
                    name,
                    run.config.replace(extractor=f"bert+avg:w={weight:g}", layers=layer, avg_corpus=corpus),
                )
                for layer in layers
                for weight in _WEIGHTS
            )


def _isotropy(group: str, run: Reproduction) -> Iterator[Value]:
    """Measure figure 1 or 2: IsoScore on Wikitext-2 against the mean score of a group."""
    import numpy as np

    from ragembed.papers.sentences.sts import pearson_correlation

    rows = [f"{w} + {s}" if s else w for w in _WEIGHTINGS for s in _STEPS if not s.startswith("whiten")]
    names = run.chosen(in_group(group))
    found = [replace(cell, column=f"{cell.column}: {group}") for cell in cells(run, COLUMNS, rows, names)] + [
        replace(cell, column=f"{cell.column}: IsoScore", task="iso-score")
        for cell in cells(run, COLUMNS, rows, ["wikitext-2"])
    ]
    scores: dict[str, dict[str, list[float]]] = {}
    for value in run.evaluate(found):
        yield value
        if value.value is not None:
            scores.setdefault(value.column, {}).setdefault(value.row, []).append(value.value)
    for column in COLUMNS:
        if any(lacking.startswith(f"{column}: ") for _, lacking in run.unmeasured):
            continue
        isotropy, measured = scores.get(f"{column}: IsoScore", {}), scores.get(f"{column}: {group}", {})
        both = [row for row in measured if row in isotropy]
        if len({isotropy[row][0] for row in both}) > 1:
            one, other = np.array([[isotropy[row][0], fmean(measured[row])] for row in both]).T
            yield Value("Pearson correlation", f"{column}: {group}", "", 100 * pearson_correlation(one, other))


def _alignment(run: Reproduction) -> Iterator[Value]:
    """Measure figure 3: alignment of the pairs with the score 5, and uniformity; of STS-B, those of the train split."""
    rows = [f"{w} + {s}" if s else w for w in _WEIGHTINGS for s in _STEPS]
    for name in run.pairs("stsb"):
        task = "isotropy, train" if name == "stsb" else "isotropy"
        found = [
            replace(cell, column=f"{cell.column}: {score}", score=score, task=task)
            for cell in cells(run, COLUMNS, rows, [name])
            for score in ("alignment", "uniformity")
        ]
        yield from run.evaluate(found)


def items() -> Iterator[Item]:
    """Yield the tables and figures of the paper."""
    item: Callable[..., Item] = partial(Item, PAPER)
    everything = tuple(name for group in GROUPS for name in in_group(group))
    wikitext = ("wikitext-2",)
    yield item("table 1", "templates, vector of [MASK]", everything, _templates, printed(PAPER, "table 1"))
    for table, title in (("table 2", "collections for clustering"), ("table 3", "the other collections")):
        names = tuple(dict.fromkeys(row.partition(",")[0] for row in published(PAPER, table)))
        measured, every = (partial(_describe, table), printed(PAPER, table)), {"stsb": "train, dev and test"}
        yield item(table, title, names, *measured, splits=every)
    for table, title in (("table 4", "token weights and post-processors"), ("table 5", "post-processors of means")):
        measured = partial(_grouped, table), partial(_mean_of_appendix, table)
        yield item(table, f"{title}, means over collections", (*everything, *wikitext), *measured)
    for name, table in _APPENDIX.items():
        title = f"token weights and post-processors, {name}"
        yield item(table, title, (name, *wikitext), partial(_appendix, name), printed(PAPER, table))
    for number, group in ((1, "STS"), (2, "clustering")):
        title, names = f"IsoScore on Wikitext-2 and scores of {group}", (*in_group(group), *wikitext)
        yield item(f"figure {number}", title, names, partial(_isotropy, group), draw="correlations")
    pairs, train = ("stsb", *wikitext), {"stsb": "train"}
    yield item("figure 3", "alignment and uniformity", pairs, _alignment, draw="alignment", splits=train)
    yield item("figure 4", "scores by layer, with templates and without", everything, _by_layer, draw="layers")
    by_weight = partial(_by_weight, GROUPS, False)
    yield item("figure 5", "BERT + Avg. by weight and layer", (*everything, *wikitext), by_weight, draw="heat_maps")
    for number, group in enumerate(GROUPS, 1):
        title, names = f"BERT + Avg. by weight and layer, each collection of {group}", (*in_group(group), *wikitext)
        yield item(f"figure A{number}", title, names, partial(_by_weight, (group,), True), draw="heat_maps")
