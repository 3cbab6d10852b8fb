"""Read and write runs, the rankings of a system, as TREC files or JSON Lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import filled_lines, json_object, listed, repeated
from ragembed.evaluation.judgements import is_json_lines

Ranking: TypeAlias = Sequence[tuple[str, float]]
"""Document ids with their scores, best first."""


def read_run(path: Path) -> dict[str, list[str]]:
    """Read a run, the ranking of each query, from a TREC run or JSON Lines; the format is detected.

    JSON objects have the ``_id`` of a query and its ``ranking``: ids, best first, or the score of each id, which are
    ordered as in :func:`by_score`.
    """
    return _read_json_lines(path) if is_json_lines(path) else _read_trec(path)


def write_run(path: Path, rankings: Mapping[str, Ranking], name: str) -> None:
    """Write a run as JSON Lines if the name of the file ends in ``.jsonl``, else as a TREC run.

    If scores are equal as float32, later ones are lowered to the next smaller number, so every reader gets the same
    order.
    """
    if path.suffix == ".jsonl":
        written = _json_lines(rankings)
    else:
        ids = [*rankings, *dict.fromkeys(document for ranking in rankings.values() for document, _ in ranking)]
        unfit = [key for key in ids if not key or key.split() != [key]]
        if unfit:
            raise ConfigError(
                f"{path}: a TREC run cannot hold ids with spaces, such as {listed(unfit, 3)}: give the file a name "
                "that ends in .jsonl"
            )
        written = _trec_lines(rankings, "-".join(name.split()) or "run")
    try:
        with path.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            file.writelines(written)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from error


def by_score(scores: Mapping[str, float]) -> list[str]:
    """Return document ids in the order of trec_eval: by score as float32, then by descending id."""
    with np.errstate(over="ignore", under="ignore"):
        singles = np.fromiter(scores.values(), dtype=np.float64, count=len(scores)).astype(np.float32).tolist()
    return [name for _, name in sorted(zip(singles, scores, strict=True), reverse=True)]


def _read_trec(path: Path) -> dict[str, list[str]]:
    scores: dict[str, dict[str, float]] = {}
    for number, line in filled_lines(path):
        fields = line.split()
        if len(fields) != 6:
            raise ConfigError(
                f"{path}, line {number}: {len(fields)} fields: expected 6 of a TREC run "
                "(query, Q0, document, rank, score, name)"
            )
        query, _, document, _, score, _ = fields
        of_query = scores.setdefault(query, {})
        if document in of_query:
            raise ConfigError(f"{path}, line {number}: document {document!r} is repeated for query {query!r}")
        of_query[document] = _number(score, f"{path}, line {number}: the score")
    return {query: by_score(of_query) for query, of_query in scores.items()}


def _read_json_lines(path: Path) -> dict[str, list[str]]:
    rankings: dict[str, list[str]] = {}
    for number, line in filled_lines(path):
        place = f"{path}, line {number}"
        row = json_object(path, number, line)
        query, ranking = row.get("_id"), row.get("ranking")
        if not isinstance(query, str) or not query:
            raise ConfigError(f"{place}: '_id' is {query!r}: expected a non-empty string")
        if query in rankings:
            raise ConfigError(f"{place}: a second line has the _id {query!r}")
        if isinstance(ranking, dict):
            rankings[query] = by_score(
                {name: _number(score, f"{place}: the score of {name!r}") for name, score in ranking.items()}
            )
        elif isinstance(ranking, list) and all(isinstance(document, str) for document in ranking):
            if again := repeated(ranking):
                raise ConfigError(f"{place}: the ranking of query {query!r} repeats {listed(sorted(again))}")
            rankings[query] = ranking
        else:
            raise ConfigError(f"{place}: 'ranking' is invalid: expected a list of ids, or an object with their scores")
    return rankings


def _trec_lines(rankings: Mapping[str, Ranking], name: str) -> Iterator[str]:
    for query, ranking in rankings.items():
        for rank, (document, score) in enumerate(_descending(ranking), 1):
            yield f"{query} Q0 {document} {rank} {score} {name}\n"


def _json_lines(rankings: Mapping[str, Ranking]) -> Iterator[str]:
    for query, ranking in rankings.items():
        scores = {document: float(str(score)) for document, score in _descending(ranking)}
        yield json.dumps({"_id": query, "ranking": scores}) + "\n"


def _descending(ranking: Iterable[tuple[str, float]]) -> Iterator[tuple[str, np.float32]]:
    last = np.float32(np.inf)
    for document, score in ranking:
        last = min(np.float32(score), np.nextafter(last, np.float32(-np.inf)))
        yield document, last


def _number(value: object, name: str) -> float:
    number = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{name} is {value!r}: expected a finite number")
    return number
