"""Run the tables and figures of the papers on the test data, beside the published numbers.

The measurements are kept in the folder of the benchmarks: an interrupted benchmark continues, and the benchmarks share
what they measure. Each writes its section after every table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from data import Setting
from processes import say
from report import table as markdown_table
from speed import Outcome

from ragembed import EmbedderConfig
from ragembed.config.settings import DEFAULT_MODEL
from ragembed.extractors.kept_states import kept_states
from ragembed.papers.reproduction import find_item
from ragembed.papers.reproduction.data import sentences
from ragembed.papers.reproduction.reproduction_report import notes, table
from ragembed.papers.reproduction.reproduction_run import Inputs, reproduce
from ragembed.papers.training import B2sRequest, B2sSettings, train_b2s

STS = ("sts12", "sts13", "sts14")
CLUSTERING = ("agnews", "searchsnippets", "stackoverflow")
QUICK = [
    *(("stankevicius2024", f"table {number}") for number in (2, 3)),
    *(("sbert-wk", name) for name in ("table III", "table VII", "figure 3")),
    ("defsent-plus", "table 7"),
]
MEANS = [("stankevicius2024", name) for name in ("table 4", "table 5", "table 1", "figure 4", "figure 5")]
SMALL_CORPUS = B2sSettings(min_count=2, threshold=1e-3, epochs=5, learning_rate=0.01)
RUNS = 1
"""Runs of k-means for each number. The papers average 10, which takes ten times as long."""
_ABOUT = (
    f"The model is {DEFAULT_MODEL}; the papers use other models. Only the column RE is the same in both: random "
    "embeddings over the vocabulary of bert-base-uncased. Each cell has the measured number and, in brackets, the "
    "paper's number and the measured one minus it. Measurements that earlier runs kept are not repeated; the minutes "
    "are those of the last run."
)
_B2S = (
    " B2S are word vectors that `ragembed papers train b2s` trained on the sentences of Wikitext-2 in the test data; "
    "those of the paper were trained on Wikipedia."
)


def papers(setting: Setting) -> Outcome:
    """Measure the tables that need few forward passes."""
    return Outcome(_items(setting, QUICK[:1] if setting.trial else QUICK, (*STS, *CLUSTERING), about=_ABOUT))


def papers_means(setting: Setting) -> Outcome:
    """Measure the tables and figures of *Extracting sentence embeddings* with means over the collections."""
    if setting.trial:
        return Outcome(_items(setting, MEANS[1:2], STS[:1], about=_ABOUT, columns=("RE",)))
    return Outcome(_items(setting, MEANS, (*STS, *CLUSTERING), _word_vectors(setting), about=_ABOUT + _B2S))


def _word_vectors(setting: Setting) -> tuple[Path, ...]:
    """Return word vectors that were trained on Wikitext-2; none if they are missing and nothing is to be measured."""
    out = setting.cache / "reproduced" / "b2s"
    if not (out / "vectors.bin").is_file():
        if not setting.measure:
            return ()
        say("training B2S on Wikitext-2")
        corpus = sentences(setting.data / "wikitext-2", setting.cache / "reproduced" / "stankevicius2024")
        encoder = EmbedderConfig(model=DEFAULT_MODEL, pooling="mean", weighting="uniform", postprocess=())
        train_b2s(B2sRequest(corpus, encoder, out, SMALL_CORPUS))
    return (out / "vectors.bin",)


def _items(
    setting: Setting,
    names: Sequence[tuple[str, str]],
    collections: Sequence[str],
    word_vectors: tuple[Path, ...] = (),
    *,
    about: str,
    columns: tuple[str, ...] = (),
) -> list[str]:
    """Return the paragraphs of tables and figures; they are also written after each one."""
    paragraphs = [about]
    with kept_states():
        for paper, name in names:
            say(f"{paper}, {name}")
            inputs = Inputs(
                setting.data,
                setting.cache / "reproduced" / paper,
                DEFAULT_MODEL,
                word_vectors,
                runs=RUNS,
                collections=tuple(collections),
                columns=columns,
                measure=setting.measure,
            )
            paragraphs += _paragraphs(inputs, paper, name)
            setting.publish([*paragraphs, "The other tables and figures of this section are not measured yet."])
    return paragraphs


def _paragraphs(inputs: Inputs, paper: str, name: str) -> Iterator[str]:
    outcome = reproduce(find_item(paper, name), inputs)
    header, *rows = table(outcome)
    yield f"### {paper}, {name}: {outcome.item.title}"
    yield markdown_table(header, rows) if rows else "Nothing is measured."
    found = [line for line in notes(outcome) if not line.startswith("missing: ")]
    missing = ", ".join(one.name for one in outcome.missing)
    yield "; ".join([*found, *([f"missing: {missing}"] if missing else [])]) + "."
