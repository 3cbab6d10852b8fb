"""What methods cost beside the plain way, in one process, taking turns: SBERT-WK, and the quantile post-processors.

Ratios of medians; the machine is noisy, so run it with nothing else running.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import sklearn
from collection import TEST_DATA
from report import machine, significant, table, write_section
from sklearn.preprocessing import QuantileTransformer

from ragembed import Embedder
from ragembed.postprocess import Chain

_ROWS, _DIMENSIONS = 100_000, 384


def main() -> None:
    """Measure, print the tables and put them into the page of results."""
    arguments = _arguments()
    sentences = _sentences(arguments.pairs, arguments.sentences)
    about = (
        f"{date.today().isoformat()}; {machine()}; median of {arguments.repeat} turns (least–most). A ratio below 1 is "
        "less than the plain way."
    )
    tables = [_extractors(sentences, arguments.repeat), _quantiles(arguments.repeat)]
    body = "\n\n".join(["## Costs", about, *tables])
    print(body)
    write_section("costs", body)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, default=TEST_DATA / "sts" / "sts14.tsv", help="table of sentences")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=11)
    return parser.parse_args()


def _sentences(path: Path, count: int) -> list[str]:
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    found = list(dict.fromkeys(row[name] for row in rows for name in ("sentence1", "sentence2")))[:count]
    if len(found) < count:
        sys.exit(f"{path} has {len(found)} different sentences: expected {count}")
    return found


def _extractors(sentences: Sequence[str], repeat: int) -> str:
    plain = Embedder.from_preset("minilm", weighting="uniform", postprocess=()).fit(sentences)
    others = {
        "SBERT-WK": Embedder.from_preset("sbert-wk", postprocess=()).fit(sentences),
        "SBERT-WK, released code": Embedder.from_preset(
            "sbert-wk", extractor="sbert-wk:variant=released-code", postprocess=()
        ).fit(sentences),
        "first + last layer, idf": Embedder.from_preset("bert", weighting="idf", postprocess=()).fit(sentences),
        "BERT + Avg., first + last layer, idf": Embedder.from_preset("bert+avg", postprocess=()).fit(sentences),
        "Avg., idf": Embedder.from_preset("avg", postprocess=()).fit(sentences),
        "RE, idf": Embedder.from_preset("re", postprocess=()).fit(sentences),
    }
    rows = []
    for name, embedder in others.items():
        calls = {"plain": lambda: plain.raw_documents(sentences), name: lambda e=embedder: e.raw_documents(sentences)}
        times = _turns(calls, repeat)
        ratio = statistics.median(times[name]) / statistics.median(times["plain"])
        rows.append([name, _spread(times["plain"]), _spread(times[name]), significant(ratio, 3)])
    about = (
        f"Encoding {len(sentences):,} sentences with MiniLM, fitted before, tokenizing included: each beside the plain "
        "mean of the last layer, the two taking turns."
    )
    return f"{about}\n\n{table(['', 'plain, s', 'this, s', 'ratio'], rows)}"


def _quantiles(repeat: int) -> str:
    vectors = np.random.default_rng(0).standard_normal((_ROWS, _DIMENSIONS)).astype(np.float32)
    parts = []
    for spec, output in (("quantile-u", "uniform"), ("quantile-n", "normal")):
        chain = Chain([spec]).fit(vectors)
        theirs = QuantileTransformer(n_quantiles=1000, subsample=None, output_distribution=output).fit(vectors)
        difference = float(np.abs(chain.transform(vectors[:2000]) - theirs.transform(vectors[:2000])).max())
        name = f"scikit-learn {sklearn.__version__}"
        calls = {name: lambda t=theirs: t.transform(vectors), f"ragembed {spec}": lambda c=chain: c.transform(vectors)}
        about = f"Transform of {_ROWS:,} × {_DIMENSIONS} float32, {spec}; greatest difference {difference:.1g}."
        parts.append(f"{about}\n\n{_table(name, _turns(calls, max(repeat // 2, 1)))}")
    return "\n\n".join(parts)


def _turns(calls: Mapping[str, Callable[[], object]], repeat: int) -> dict[str, list[float]]:
    """Return the wall-clock times, s, of each call, once unmeasured and then in turns, the first one alternating."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeat):
        for name in list(calls)[:: 1 if turn % 2 == 0 else -1]:
            started = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - started)
    return times


def _table(reference: str, times: Mapping[str, Sequence[float]]) -> str:
    base = statistics.median(times[reference])
    rows = [[name, _spread(taken), significant(statistics.median(taken) / base)] for name, taken in times.items()]
    return table(["", "wall-clock time, s", "ratio"], rows)


def _spread(taken: Sequence[float]) -> str:
    return f"{statistics.median(taken):.3f} ({min(taken):.3f}–{max(taken):.3f})"


if __name__ == "__main__":
    main()
