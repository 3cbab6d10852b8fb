"""Measure the drift that ``ragembed status --drift`` reports after additions."""

from __future__ import annotations

import csv
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from data import Setting
from processes import say
from report import table
from speed import Outcome

from ragembed import Embedder
from ragembed.config.settings import EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.evaluation import read_beir
from ragembed.indexes import ChunkRecord, Store
from ragembed.indexes.doctor.drift import DriftReport, measure_drift
from ragembed.indexes.indexing.refit import refit_store

_STEPS = (("abtt:2", "normalize"), ("zscore",), ("whiten:100",), ("quantile-u",), ("center", "normalize"))
_CHANGES = {
    "10 % added, same kind": (1.0, 0.1, 0.0),
    "100 % added, same kind": (1.0, 1.0, 0.0),
    "10 % added, another kind": (1.0, 0.0, 0.1),
    "100 % added, another kind": (1.0, 0.0, 1.0),
    "50 % replaced by another kind": (0.5, 0.0, 0.5),
    "90 % replaced by another kind": (0.1, 0.0, 0.9),
}
"""Shares of the store's size: texts that stay, added texts of the same kind, and added texts of another kind."""


def drift(setting: Setting) -> Outcome:
    """Measure drift after additions to small stores of one collection, over several draws."""
    draws, size = setting.choose(5, 1), setting.choose(500, 100)
    kinds = {"MiniLM, `idf:0.5`, `center`": ("transformer", ("center", "normalize"))}
    kinds |= {f"RE, {steps[0]}": ("re:dim=384", steps) for steps in _STEPS}
    rows = []
    for kind, (extractor, steps) in list(kinds.items())[: setting.choose(len(kinds), 1)]:
        config = EmbedderConfig.from_preset("minilm", extractor=extractor, weighting="idf:0.5", postprocess=steps)
        for one, other in (("cran", "npl"), ("npl", "agnews"))[: setting.choose(2, 1)]:
            for change, shares in _CHANGES.items():
                say(f"{kind}, {one} + {other}: {change}")
                found = []
                for draw in range(draws):
                    rng = random.Random(setting.seed + draw)
                    same, another = (_texts(setting.data, name, rng) for name in (one, other))
                    path = setting.folder / f"drift-{len(rows)}-{draw}"
                    found.append(_drift(path, Embedder(config), same, another, shares, size))
                rows.append([f"{kind}, {one} + {other}, {change}", *_shown(found)])
    about = (
        f"Stores of {size:,} texts of one collection, changed with texts of the same and of another collection; "
        f"medians of {draws} draws. Overlap is the share of the ten nearest vectors of pseudo-queries that stay the "
        "same after a refit. Chance is the same share for refits on random parts of the store. The last column shows "
        "the verdict of `ragembed status --drift`, and how often it occurred."
    )
    heads = ["extractor, texts, change", "overlap", "chance", "weights moved", "verdict"]
    return Outcome([about, table(heads, rows)])


def _drift(
    path: Path, embedder: Embedder, same: Sequence[str], other: Sequence[str], shares: Sequence[float], size: int
) -> DriftReport:
    kept, more, another = (round(share * size) for share in shares)
    with Store.create(path, embedder.fit(same[:size])) as store:
        store.add(ChunkRecord(str(i), Chunk(text)) for i, text in enumerate(same[:size]))
        refit_store(path)  # records the vectors of the fit
        store.delete([str(i) for i in range(kept, size)])
        added = [*same[size : size + more], *other[:another]]
        store.add(ChunkRecord(f"new{i}", Chunk(text)) for i, text in enumerate(added))
        return measure_drift(store)


def _shown(found: Sequence[DriftReport]) -> list[str]:
    verdicts = Counter(report.verdict for report in found)
    numbers = [[report.overlap, report.chance, report.weight_shift] for report in found]
    middle = [statistics.median(values) for values in zip(*numbers, strict=True)]
    counts = ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items())
    return [f"{middle[0]:.2f}", f"{middle[1]:.2f}", f"{middle[2]:.1%}", counts]


def _texts(data: Path, name: str, rng: random.Random) -> list[str]:
    """Return the distinct texts of a collection in random order."""
    if (data / "retrieval" / name).is_dir():
        texts = set(read_beir(data / "retrieval" / name).documents.values())
    else:
        with (data / "clustering" / f"{name}.tsv").open(encoding="utf-8", newline="") as rows:
            texts = {row["text"] for row in csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE)}
    found = sorted(text for text in texts if len(text.split()) > 3)
    rng.shuffle(found)
    return found
