"""More texts than the test data has: each is made of pieces of two of them, so that words are as frequent as there."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from indexing.texts import read_questions, read_texts

from ragembed.indexes.schema import FORMAT_VERSION
from speed_paths.setting import Setting, say

_TRIES = 20
_LEAST_WORDS = 8

Pair = tuple[int, int]


def made_texts(sources: Sequence[str], count: int, words: int, seed: int) -> Iterator[tuple[str, Pair]]:
    """Yield ``count`` different texts of at most ``words`` words, each with the positions of its sources.

    Raises ValueError where the sources are too few for so many.
    """
    drawn = random.Random(seed)
    split = [text.split() for text in sources]
    seen: set[int] = set()
    for _ in range(count):
        for _ in range(_TRIES):
            pair = drawn.randrange(len(split)), drawn.randrange(len(split))
            text = " ".join(word for part in pair for word in _piece(split[part], words // 2, drawn))
            if hash(text) not in seen:
                break
        else:
            raise ValueError(f"{len(sources):,} sources give no {count:,} different texts of {words} words")
        seen.add(hash(text))
        yield text, pair


def made_folder(setting: Setting, name: str, count: int) -> Path:
    """Return the folder below the cache for what is made of ``count`` texts, by the current format of stores."""
    folder = setting.cache / f"{name}-{count}-{setting.seed}-format{FORMAT_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_texts(setting: Setting, folder: Path, count: int, words: int, most_sources: int | None = None) -> None:
    """Write ``texts.txt``, ``sources.json`` and ``pairs.npy`` below ``folder``, if they are not there yet."""
    if (folder / "pairs.npy").is_file():
        say(f"{count:,} texts are in {folder}")
        return
    say(f"making {count:,} texts")
    sources = _sources(setting, most_sources)
    pairs = []
    with (folder / "texts.txt").open("w", encoding="utf-8") as lines:
        for text, pair in made_texts(sources, count, words, setting.seed):
            print(text, file=lines)
            pairs.append(pair)
    (folder / "sources.json").write_text(json.dumps(sources), encoding="utf-8")
    np.save(folder / "pairs.npy", np.array(pairs, dtype=np.int32))


def questions_by_turn(setting: Setting) -> list[list[str]]:
    """Return different questions of people for each turn, the unmeasured one included."""
    every = read_questions(setting.data)
    random.Random(setting.seed).shuffle(every)
    count = min(len(every) // (setting.turns + 1), setting.choose(len(every), 10))
    return [every[turn * count : (turn + 1) * count] for turn in range(setting.turns + 1)]


def _sources(setting: Setting, most: int | None) -> list[str]:
    """Return texts of the test data in a random order, of which a piece can be taken."""
    every = [text for text in read_texts(setting.data) if len(text.split()) >= _LEAST_WORDS]
    random.Random(setting.seed).shuffle(every)
    return every[:most]


def _piece(words: Sequence[str], count: int, drawn: random.Random) -> Sequence[str]:
    start = drawn.randrange(max(1, len(words) - count + 1))
    return words[start : start + count]
