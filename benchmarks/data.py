"""The test data: texts, queries, generated texts, and collections as folders of files."""

from __future__ import annotations

import csv
import math
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
from processes import ROOT, Runner, say

from ragembed.evaluation import RetrievalCollection, read_beir
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.sentences.sentence_collections import read_labelled_texts, read_sentence_pairs

TEST_DATA = Path(os.environ.get("RAGEMBED_TEST_DATA", ROOT.parent / "shared" / "data"))
_DOCS_CHARACTERS = 1_200_000


@dataclass(frozen=True, slots=True)
class Setting:
    """The options of a benchmark.

    ``folder`` is removed at the end. ``cache`` is kept for the next run if the caller named a folder. ``trial`` selects
    sizes that take seconds. ``check`` selects the parts that are compared with recorded ratios. ``publish`` writes the
    paragraphs of a benchmark that is not finished; nothing in a trial. Without ``measure``, the benchmarks of the
    papers write only what earlier runs measured.
    """

    folder: Path
    cache: Path
    data: Path
    python_docs: Path | None
    turns: int
    seed: int
    trial: bool
    check: bool
    measure: bool
    publish: Callable[[Sequence[str]], None]

    @property
    def runner(self) -> Runner:
        """A runner of programs in ``folder``."""
        return Runner(self.folder)

    def choose(self, whole: int, trial: int) -> int:
        """Return the size for this run."""
        return trial if self.trial else whole

    def collections(self) -> Iterator[RetrievalCollection]:
        """Yield the judged collections; in a trial, only the first documents and the queries about them."""
        for folder in sorted((self.data / "retrieval").iterdir()):
            if folder.is_dir():
                yield read_beir(folder, 300 if self.trial else None)


def read_texts(data: Path) -> list[str]:
    """Return the distinct texts below ``data``: documents, labelled texts, sentence pairs, sentences of Wikitext-2."""
    return list(dict.fromkeys(text for text in _texts(data) if text.strip()))


def _texts(data: Path) -> Iterator[str]:
    for folder in sorted((data / "retrieval").iterdir()):
        yield from read_beir(folder).documents.values()
    for path in sorted((data / "clustering").glob("*.tsv")):
        yield from read_labelled_texts(path).texts
    for path in sorted((data / "sts").glob("*.tsv")):
        pairs = read_sentence_pairs(path)
        yield from (*pairs.sentences1, *pairs.sentences2)
    for path in sorted((data / "wikitext-2").glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            sentences = re.split(r"(?<= \.) ", line.strip())
            yield from (sentence.strip() for sentence in sentences if len(sentence.split()) >= 6)


def read_queries(data: Path) -> list[str]:
    """Return the distinct judged queries of the retrieval collections."""
    folders = sorted((data / "retrieval").iterdir())
    return list(dict.fromkeys(query for folder in folders for query in read_beir(folder).queries.values()))


def queries_by_turn(setting: Setting) -> list[list[str]]:
    """Return distinct queries for each turn, including the unmeasured first turn."""
    every = read_queries(setting.data)
    random.Random(setting.seed).shuffle(every)
    count = min(len(every) // (setting.turns + 1), setting.choose(len(every), 10))
    return [every[turn * count : (turn + 1) * count] for turn in range(setting.turns + 1)]


def write_generated_texts(setting: Setting, folder: Path, count: int, words: int, sources: int | None = None) -> None:
    """Write ``texts.txt`` into ``folder``: distinct texts, each joined from pieces of two texts of the test data.

    ``sources.txt`` contains the texts of the test data. ``pairs.npy``, shape ``(count, 2)``, has the numbers of the two
    sources of each text.
    """
    if (folder / "pairs.npy").is_file():
        say(f"using {count:,} texts in {folder}")
        return
    say(f"generating {count:,} texts")
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(setting.seed)
    every = [" ".join(text.split()) for text in read_texts(setting.data) if len(text.split()) >= 8]
    rng.shuffle(every)
    every = every[:sources]
    split, pairs, seen = [text.split() for text in every], [], set()
    with (folder / "texts.txt").open("w", encoding="utf-8") as lines:
        while len(pairs) < count:
            pair = rng.randrange(len(split)), rng.randrange(len(split))
            text = " ".join(word for number in pair for word in _piece(split[number], words // 2, rng))
            if hash(text) not in seen:
                seen.add(hash(text))
                pairs.append(pair)
                print(text, file=lines)
    (folder / "sources.txt").write_text("\n".join(every), encoding="utf-8")
    np.save(folder / "pairs.npy", np.array(pairs, dtype=np.int32))


def _piece(words: Sequence[str], count: int, rng: random.Random) -> Sequence[str]:
    start = rng.randrange(max(1, len(words) - count + 1))
    return words[start : start + count]


def write_files(collection: RetrievalCollection, folder: Path, limit: int | None = None) -> Path:
    """Write each document, or each of the first ``limit``, to a file in the new folder ``folder``."""
    folder.mkdir(parents=True)
    for key, text in islice(collection.documents.items(), limit):
        (folder / f"{quote(key, safe='')}.txt").write_text(text, encoding="utf-8", newline="")
    return folder


def document_id(file: str) -> str:
    """Return the id of the document in a file of :func:`write_files`."""
    return unquote(Path(file).name.removesuffix(".txt"))


def write_tables(setting: Setting, size: int, texts: Path, lines_each: int = 1) -> Path:
    """Write ``size`` rows, each with ``lines_each`` lines of ``texts``, to tables of 100 rows; return their folder."""
    folder = setting.folder / f"tables-{size}"
    folder.mkdir()
    with texts.open(encoding="utf-8") as lines:
        rows = (" ".join(line.rstrip("\n") for line in islice(lines, lines_each)) for _ in range(size))
        for number in range(math.ceil(size / 100)):
            with (folder / f"{number:05}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([["text"], *([text] for text in islice(rows, 100))])
    return folder


def write_python_docs(setting: Setting, docs: Path) -> Path:
    """Write randomly drawn sources (``.rst.txt``) of Python's documentation, up to 1.2 million characters."""
    found = sorted(docs.rglob("*.rst.txt"))
    if not found:
        raise ValueError(f"no .rst.txt file in {docs}: expected Python's documentation")
    folder, left = setting.folder / "files-python", setting.choose(_DOCS_CHARACTERS, 20_000)
    folder.mkdir()
    for position in np.random.default_rng(setting.seed).permutation(len(found)).tolist():
        text = found[position].read_text(encoding="utf-8")
        (folder / str(found[position].relative_to(docs)).replace("/", "__")).write_text(text, encoding="utf-8")
        if (left := left - len(text)) <= 0:
            break
    return folder


def cut_to_window(texts: Sequence[str], model: Path) -> tuple[list[str], list[int]]:
    """Cut the texts to one window of the model; return them with their token counts, including special tokens."""
    tokenizer = TextTokenizer(model)
    room = tokenizer.max_tokens - tokenizer.special_tokens
    spans = tokenizer.offsets(texts)
    kept = [text[: own[room - 1][1]] if len(own) > room else text for text, own in zip(texts, spans, strict=True)]
    return kept, [int(count) + tokenizer.special_tokens for count in tokenizer.ids(kept).lengths]
