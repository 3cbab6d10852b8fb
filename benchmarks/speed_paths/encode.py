"""Encoding documents with the default preset, beside sentence-transformers and the matrix-product limit."""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from environments import LANGCHAIN
from report import significant, table

from ragembed.config import DEFAULT_MODEL
from ragembed.evaluation import read_beir
from ragembed.models import find_model
from ragembed.tokenizer import TextTokenizer
from speed_paths.limits import multiplier, operations, rate
from speed_paths.scores import Outcome, Score
from speed_paths.setting import PROGRAMS, Setting, say
from speed_paths.shown import of_medians, share, spread, times
from speed_paths.turns import Contestant, Turns, take_turns

_PRESET = "minilm"
_GOAL, _LEAST_SHARE, _LEAST_COSINE = 6.0, 0.5, 0.9995
_TEXTS = {"cran": 600, "npl": 2500}
"""Of each collection, drawn at random: about 100,000 tokens, which take the peer long enough."""
_TRIAL_TEXTS = 60
_OURS, _PEER, _LIMIT = "ragembed", "sentence-transformers", "matrix product"


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that fit into one window, the tokens of each, special ones included, and how many were cut to fit."""

    file: Path
    lengths: Sequence[int]
    cut: int


def measure(setting: Setting) -> Outcome:
    """Let both encode each collection, and the machine multiply, in turns."""
    LANGCHAIN.ensure()
    folder = find_model(DEFAULT_MODEL).folder
    names = ("cran",) if setting.quick else tuple(_TEXTS)
    scores, rows, sentences = [], [], []
    for name in names:
        say(f"encoding {name}")
        texts = cut_texts(setting, name, folder)
        found = take_turns(_contestants(setting, texts, folder), setting.turns, setting.runner)
        told = _Encoded(name, texts, found, operations(folder, texts.lengths))
        rows.append(told.row())
        scores += told.scores()
        sentences.append(told.sentence())
    header = ["", "ragembed, tokens/s", "sentence-transformers, tokens/s", "ratio", "lowest cosine to float32"]
    about = (
        f"Documents with the preset `{_PRESET}`, fitted before, tokenizing included; sentence-transformers with its "
        "defaults and the same files of the model. Tokens are those of the model's tokenizer, special tokens counted; "
        "both are given the texts as far as they fit one window."
    )
    floor = (
        "Floor: the model's multiplications and additions for the tokens that there are, no padding (a layer takes "
        "24 d² a token and 4 d n² a text of n tokens), at the rate of large squares in PyTorch; bytes do not count, as "
        "the weights are read once for thousands of tokens."
    )
    return Outcome(scores, [about, table(header, rows), floor, "\n".join(sentences)])


@dataclass(frozen=True, slots=True)
class _Encoded:
    """What came of one collection; ``operations`` are the model's for its tokens."""

    name: str
    texts: Texts
    found: dict[str, Turns]
    operations: float

    def row(self) -> list[str]:
        tokens = sum(self.texts.lengths)
        speeds = [[tokens / seconds for seconds in self.found[side].seconds] for side in (_OURS, _PEER)]
        return [self.name, *map(spread, speeds), times(self.ratio), f"{self.cosine:.5f}"]

    def scores(self) -> list[Score]:
        return [
            Score(f"encode {self.name}: tokens/s beside sentence-transformers", self.ratio, _GOAL, floor=self.floor),
            Score(f"encode {self.name}: share of the matrix-product limit", self.floor, _LEAST_SHARE, unit="share"),
            Score(f"encode {self.name}: lowest cosine to float32", self.cosine, _LEAST_COSINE, unit="cosine"),
        ]

    def sentence(self) -> str:
        lengths = self.texts.lengths
        return (
            f"- {self.name}: {len(lengths):,} texts, {sum(lengths):,} tokens, {self.texts.cut:,} texts cut; "
            f"{significant(self.operations / 1e12, 3)} Tflop at {significant(self.limit / 1e9, 3)} Gflop/s in "
            f"{self.found[_LIMIT].ready['dtype']} are {significant(self.operations / self.limit, 3)} s, "
            f"{share(self.floor)} of what ragembed takes."
        )

    @property
    def ratio(self) -> float:
        return of_medians(self.found[_PEER].seconds, self.found[_OURS].seconds)

    @property
    def cosine(self) -> float:
        return float(self.found[_OURS].ready["lowest_cosine"])

    @property
    def limit(self) -> float:
        """Operations in a second."""
        return rate(self.found[_LIMIT])

    @property
    def floor(self) -> float:
        return self.operations / self.limit / statistics.median(self.found[_OURS].seconds)


def cut_texts(setting: Setting, name: str, folder: Path) -> Texts:
    """Write documents of a collection, each cut to what one window takes."""
    texts = list(read_beir(setting.data / "retrieval" / name).documents.values())
    random.Random(setting.seed).shuffle(texts)
    del texts[setting.choose(_TEXTS[name], _TRIAL_TEXTS) :]
    tokenizer = TextTokenizer(folder)
    room = tokenizer.max_tokens - tokenizer.special_tokens
    kept, cut = [], 0
    for text, spans in zip(texts, tokenizer.offsets(texts), strict=True):
        cut += len(spans) > room
        kept.append(text[: spans[room - 1][1]] if len(spans) > room else text)
    file = setting.folder / f"texts-{name}.json"
    file.write_text(json.dumps(kept), encoding="utf-8")
    return Texts(file, [int(n) + tokenizer.special_tokens for n in tokenizer.ids(kept).lengths], cut)


def _contestants(setting: Setting, texts: Texts, folder: Path) -> list[Contestant]:
    request = {"texts": str(texts.file), "model": str(folder), "preset": _PRESET}
    return [
        Contestant(_OURS, sys.executable, PROGRAMS / "encode_ragembed.py", request),
        Contestant(_PEER, LANGCHAIN.python, PROGRAMS / "encode_sentence_transformers.py", request),
        multiplier(setting),
    ]
