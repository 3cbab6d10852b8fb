"""Fixtures: tiny pre-trained models with poolers and masked-word heads, a dictionary and sentence pairs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conftest import WORDS
from tests.pretrained import pretrained


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def bert(tmp_path_factory) -> Path:
    return pretrained(tmp_path_factory.mktemp("bert"), 1)


@pytest.fixture(scope="session")
def bert_with_dropout(tmp_path_factory) -> Path:
    return pretrained(tmp_path_factory.mktemp("dropping"), 1, dropout=True)


@pytest.fixture(scope="session")
def roberta(tmp_path_factory) -> Path:
    return pretrained(tmp_path_factory.mktemp("roberta"), 2, roberta=True)


def senses(entries: int = 24, seed: int = 0) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    names = [*WORDS[8:30], *(f"{one} {other}" for one in WORDS[30:36] for other in WORDS[36:44])][:entries]
    return [
        (name, " ".join(draw.choices(WORDS, k=draw.randint(3, 9)))) for name in names for _ in range(draw.randint(1, 3))
    ]


@pytest.fixture(scope="session")
def glossary(tmp_path_factory) -> Path:
    """A dictionary of 24 entries with one to three definitions each."""
    file = tmp_path_factory.mktemp("glossary") / "glossary.tsv"
    file.write_text("".join(f"{entry}\t{definition}\n" for entry, definition in senses()), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def pairs(tmp_path_factory) -> Path:
    """Sentence pairs. The score is the number of words that the two sentences share."""
    draw = random.Random(3)
    lines = ["score\tsentence1\tsentence2"]
    for i in range(20):
        first = draw.sample(WORDS, 5)
        kept = i % 5
        lines.append(f"{kept}\t{' '.join(first)}\t{' '.join([*first[:kept], *draw.sample(WORDS, 5 - kept)])}")
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
