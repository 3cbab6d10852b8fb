"""What both sides are given: texts, vectors, metadata and questions, the same for the same seed, in a folder.

``corpus.py REQUEST`` makes it, in a process of its own. It is read in the environment of either side, so nothing but
NumPy is imported here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from layout import DIM, EXTRA, FILTERED, FILTERS, QUESTIONS, UNFILTERED, K
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Filter = dict[str, Any]

_OF_A_CLUSTER = 500
_SPREAD, _NEAR = 0.8, 0.5
"""Length of the noise beside the unit vector that it is added to: of a document, and of a question or extra."""
_TIE = 1e-4
"""Of cosines: a store may round vectors to float16."""
_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "zo")
_WORDS = tuple("".join(syllables) for syllables in product(_SYLLABLES, repeat=4))
_FEWEST_WORDS, _MOST_WORDS = 20, 60
_YEARS, _FIRST_YEAR, _GROUPS, _DAYS = 100, 1926, 1000, 10_000


class Corpus:
    """The corpus in ``folder``: documents are known by their numbers, the first ``count`` of which are indexed."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    @cached_property
    def texts(self) -> list[str]:
        """The texts of all documents, extra ones included."""
        texts: list[str] = json.loads((self._folder / "texts.json").read_text(encoding="utf-8"))
        return texts

    @property
    def count(self) -> int:
        """How many documents are indexed."""
        return len(self.texts) - EXTRA

    @cached_property
    def vectors(self) -> Floats:
        """The unit vectors of all documents, mapped into memory, shape ``(count + EXTRA, d)``."""
        return np.asarray(np.load(self._folder / "vectors.npy", mmap_mode="r"))

    @cached_property
    def questions(self) -> Floats:
        """The unit vectors of questions, shape ``(QUESTIONS, d)``."""
        vectors: Floats = np.load(self._folder / "questions.npy")
        return vectors

    @cached_property
    def _exact(self) -> dict[str, list[tuple[int, float]]]:
        exact: dict[str, list[tuple[int, float]]] = json.loads((self._folder / "exact.json").read_text("utf-8"))
        return exact

    def question(self, number: int) -> str:
        """Return the text of a question."""
        return f"question {number}"

    def metadata(self, number: int) -> dict[str, int]:
        """Return what document ``number`` has as metadata."""
        return {name: int(column[number]) for name, column in self._fields.items()}

    @cached_property
    def _fields(self) -> dict[str, NDArray[np.int64]]:
        ranks: NDArray[np.int64] = np.load(self._folder / "ranks.npy")
        return _fields(ranks)

    def numbers(self, documents: Iterable[Any]) -> list[int]:
        """Return the numbers of LangChain documents; -1 where the text is not that of the number."""
        told = [(document.metadata["number"], document.page_content) for document in documents]
        return [number if self.texts[number] == text else -1 for number, text in told]

    def expected(self, name: str, question: int) -> int:
        """Return how many documents the question has to find under the filter ``name``: K, or all that match."""
        return min(K, self._exact[name][question][0])

    def right(self, name: str, question: int, numbers: Sequence[int]) -> int:
        """Return how many of ``numbers``, which came back under the filter ``name``, are of the K nearest that match.

        What is as near as the last of them, but for rounding, counts.
        """
        matching = selected(name, question, self._fields)
        least = self._exact[name][question][1] - _TIE
        found = {number for number in numbers if 0 <= number < self.count and matching[number]}
        return sum(float(self.vectors[number] @ self.questions[question]) >= least for number in found)


def filter_of(name: str, question: int) -> Filter:
    """Return the filter ``name`` of a question, in LangChain's form; each question has another one."""
    field, operator, value = _condition(name, question)
    return {field: {"$gte": value} if operator == ">=" else value}


def selected(name: str, question: int, fields: dict[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Return whether each document matches."""
    if name == UNFILTERED:
        return np.ones(len(fields["number"]), dtype=np.bool_)
    field, operator, value = _condition(name, question)
    matching: NDArray[np.bool_] = fields[field] >= value if operator == ">=" else fields[field] == value
    return matching


def _condition(name: str, question: int) -> tuple[str, str, int]:
    if name == "1 in 1,000":
        return "group", "==", question % _GROUPS
    if name == "1 in 100":
        return "year", "==", _FIRST_YEAR + question % _YEARS
    return "day", ">=", _DAYS // 2 - FILTERED // 2 + question


def _fields(ranks: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    count = len(ranks) - EXTRA
    return {
        "number": np.arange(len(ranks)),
        "group": ranks % _GROUPS,
        "year": _FIRST_YEAR + ranks % _YEARS,
        "day": ranks * _DAYS // count,
    }


def make(folder: Path, count: int, seed: int) -> None:
    """Write a corpus of ``count`` documents, and what exact search finds in it."""
    rng = np.random.default_rng(seed)
    centres = _unit(rng.standard_normal((max(1, count // _OF_A_CLUSTER), DIM)))
    documents = _around(centres[rng.integers(len(centres), size=count)], _SPREAD, rng)
    questions = _around(documents[rng.integers(count, size=QUESTIONS)], _NEAR, rng)
    extra = _around(questions[np.arange(EXTRA) % QUESTIONS], _NEAR, rng)
    ranks = np.concatenate([rng.permutation(count), np.arange(count, count + EXTRA)])
    folder.mkdir()
    np.save(folder / "vectors.npy", np.concatenate([documents, extra]))
    np.save(folder / "questions.npy", questions)
    np.save(folder / "ranks.npy", ranks)
    texts = [_text(rng) for _ in range(count + EXTRA)]
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    fields = {name: column[:count] for name, column in _fields(ranks).items()}
    exact = {UNFILTERED: [_exact(documents @ question) for question in questions]}
    for name in FILTERS:
        exact[name] = [
            _exact(documents[selected(name, number, fields)] @ questions[number]) for number in range(FILTERED)
        ]
    (folder / "exact.json").write_text(json.dumps(exact), encoding="utf-8")


def _exact(cosines: Floats) -> tuple[int, float]:
    """Return how many there are, and the K-th highest or the lowest."""
    last = min(K, len(cosines))
    return len(cosines), float(np.sort(cosines)[-last]) if last else 0.0


def _around(centres: Floats, spread: float, rng: np.random.Generator) -> Floats:
    return _unit(centres + rng.standard_normal(centres.shape) * spread / np.sqrt(DIM))


def _unit(vectors: NDArray[np.float64]) -> Floats:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _text(rng: np.random.Generator) -> str:
    """Return made-up words, few of which are frequent and many rare."""
    ranks = rng.zipf(1.3, rng.integers(_FEWEST_WORDS, _MOST_WORDS)) - 1
    return " ".join(_WORDS[rank % len(_WORDS)] for rank in ranks.tolist())


def main() -> None:
    """Make the corpus that the command line asks for."""
    request = json.loads(sys.argv[1])
    make(Path(request["folder"]), request["texts"], request["seed"])


if __name__ == "__main__":
    main()
