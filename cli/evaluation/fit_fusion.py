"""``ragembed eval retrieval --fit-fusion``: choose the weight of dense search by the judged queries of a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ragembed.cli.evaluation.results import print_csv
from ragembed.cli.evaluation.systems import Judged
from ragembed.cli.output import print_record, shown_path
from ragembed.errors import ConfigError
from ragembed.evaluation.retrieval import paired_bootstrap, score_rankings
from ragembed.evaluation.table import aligned
from ragembed.indexes import Store, apply_settings
from ragembed.indexes.store_evaluation import DEPTH, SearchSettings, in_store, rank_in_store
from ragembed.printable import printable

if TYPE_CHECKING:
    from ragembed.evaluation.retrieval import Measure

_ALPHAS = tuple(number / 10 for number in range(11))


def fit_fusion(judged: Judged, path: Path, measures: Mapping[str, Measure], depth: int | None, output: str) -> None:
    """Print the first of ``measures`` for each weight, and save the best weight in the store if it is better.

    To be better, the weight that is best on all queries but one must gain on the query left out, on average.
    """
    measure, rows = next(iter(measures)), []
    with Store.open(path) as store:
        now = store.fusion
        alphas = [now.alpha, *(alpha for alpha in _ALPHAS if alpha != now.alpha)]  # of equal weights, the first wins
        judgements = in_store(store, judged.queries, judged.origin)
        if len(judgements.relevance) < 2:
            raise ConfigError(f"{judged.origin} has one judged query: --fit-fusion needs at least 2")
        for alpha in alphas:
            search = SearchSettings("hybrid", replace(now, alpha=alpha))
            rankings = rank_in_store(store, judged.queries.queries, judgements, search, depth or DEPTH)
            ids = {query: [document for document, _ in ranking] for query, ranking in rankings.items()}
            rows.append(100.0 * score_rankings(ids, judgements.relevance, measures).values[measure])
    values = np.array(rows)
    others = values.sum(axis=1, keepdims=True) - values
    left_out = values[others.argmax(axis=0), np.arange(values.shape[1])]
    gain = paired_bootstrap(left_out, values[0])
    means = dict(zip(alphas, values.mean(axis=1).tolist(), strict=True))
    best = max(means, key=lambda alpha: means[alpha])
    if saved := best != now.alpha and gain.difference > 0:
        apply_settings(path, None, replace(now, alpha=best))
    about = {"task": "fusion", "collection": judged.name, "queries": values.shape[1], "store": str(path)}
    about |= {"measure": measure, "now": now.alpha, "best": best, "gain": asdict(gain), "saved": saved}
    lines = [{"alpha": alpha, measure: mean} for alpha, mean in sorted(means.items())]
    if output == "csv":
        print_csv(lines)
    elif not print_record({**about, "alphas": lines}, output):
        click.echo(printable("\n".join(_text(about, lines, shown_path(path)))))


def _text(about: Mapping[str, Any], lines: list[dict[str, float]], store: str) -> Iterator[str]:
    marks = {about["best"]: "best", about["now"]: "now"}
    rows = [[f"{line['alpha']:g}", f"{line[about['measure']]:.1f}", marks.get(line["alpha"], "")] for line in lines]
    gain = about["gain"]
    yield f"{about['collection']}, {about['queries']:,} queries, hybrid search in {store}"
    yield ""
    yield from aligned([["alpha", about["measure"], ""], *rows])
    yield ""
    yield (
        f"alpha chosen by the other queries for each query: {gain['difference']:+.1f} from now, 95 % interval "
        f"{gain['low']:+.1f} to {gain['high']:+.1f}, p = {gain['p_value']:.3f}"
    )
    yield f"saved alpha {about['best']:g} in the store" if about["saved"] else f"the store keeps alpha {about['now']:g}"
