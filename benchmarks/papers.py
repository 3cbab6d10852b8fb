"""Run the tables and figures of the papers on the test data, beside the published numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from data import Setting
from processes import say
from report import table as markdown_table
from speed import Outcome

from ragembed.config.settings import DEFAULT_MODEL
from ragembed.reproduction.papers import find_item
from ragembed.reproduction.report import notes, table
from ragembed.reproduction.run import Inputs, reproduce

STS = ("sts12", "sts13", "sts14")
CLUSTERING = ("agnews", "searchsnippets", "stackoverflow")
RANDOM = [("stankevicius2024", f"table A{number}") for number in (1, 2, 3)]
QUICK = [
    *(("stankevicius2024", f"table {number}") for number in (2, 3)),
    *(("sbert-wk", name) for name in ("table III", "table VII", "figure 1", "table I", "table VIII")),
]
ON_STSB = [("stankevicius2024", "figure 3"), *(("sbert-wk", name) for name in ("figure 1", "table I", "table VIII"))]
LONG = [
    *(("stankevicius2024", f"table {number}") for number in ("1", "4", "5", "A1", "A2", "A3", "A9", "A12", "A13")),
    *(("stankevicius2024", f"figure {number}") for number in ("1", "2", "3", "4", "5", "A1", "A2")),
    ("sbert-wk", "figure 3"),
]


def papers(setting: Setting) -> Outcome:
    """Measure the tables of random embeddings, which need no model, and those that need few forward passes."""
    measured = [] if setting.trial else list(_items(setting, QUICK, ()))
    return Outcome([_ABOUT, *_items(setting, RANDOM[1:2] if setting.trial else RANDOM, ("RE",)), *measured])


def papers_model(setting: Setting) -> Outcome:
    """Measure everything else with the default model; the measurements are kept in the folder of the benchmarks."""
    return Outcome([_ABOUT, *_items(setting, LONG[:1] if setting.trial else LONG, ())])


_ABOUT = (
    f"The model is {DEFAULT_MODEL}; the papers use other models. Only the column RE is the same in both: random "
    "embeddings over the vocabulary of bert-base-uncased. Each cell has the measured number and, in brackets, the "
    "paper's number and the measured one minus it."
)


def _items(setting: Setting, names: Sequence[tuple[str, str]], columns: tuple[str, ...]) -> Iterator[str]:
    for paper, name in names:
        say(f"{paper}, {name}")
        # Where a paper measures on STS-B, which is not among the test data, STS13 replaces it.
        chosen = ("sts13",) if (paper, name) in ON_STSB else (*STS, *CLUSTERING)
        inputs = Inputs(
            setting.data,
            setting.cache / "reproduced" / paper,
            DEFAULT_MODEL,
            runs=setting.choose(10, 1),
            collections=chosen,
            columns=columns,
        )
        outcome = reproduce(find_item(paper, name), inputs)
        header, *rows = table(outcome)
        yield f"### {paper}, {name}: {outcome.item.title}"
        yield markdown_table(header, rows)
        found = [line for line in notes(outcome) if not line.startswith("missing: ")]
        missing = ", ".join(one.name for one in outcome.missing)
        yield "; ".join([*found, *([f"missing: {missing}"] if missing else [])]) + "."
