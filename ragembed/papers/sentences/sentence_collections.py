"""Readers of sentence pairs and labelled texts: tables with a header, and the files that SentEval and authors publish.

Source of the formats: SentEval (Conneau & Kiela 2018). Texts and labels are taken as they stand in the files. Every
reader raises :class:`ragembed.errors.ConfigError` with the file and the line if a file is not as expected.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from ragembed.errors import ConfigError
from ragembed.evaluation.inputs import filled_lines, json_object, lines, table_rows

SPLITS = ("train", "dev", "test")
_PROBING = {"tr": "train", "va": "dev", "te": "test"}
_TABLES = (("label", "text"), ("label", "sentence1", "sentence2"), ("score", "sentence1", "sentence2"))
_SICK_HEADER = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
_SICK_FILE_HEADER = (
    *("pair_ID", "sentence_A", "sentence_B", "entailment_label", "relatedness_score", "entailment_AB", "entailment_BA"),
    *("sentence_A_original", "sentence_B_original", "sentence_A_dataset", "sentence_B_dataset", "SemEval_set"),
)
_SEMEVAL = {"TRAIN": "train", "TRIAL": "dev", "TEST": "test"}
_MRPC_HEADER = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")


@dataclass(frozen=True, slots=True)
class SentencePairs:
    """Sentence pairs with judged similarity on any scale; ``splits`` is empty if the collection has none."""

    sentences1: tuple[str, ...]
    sentences2: tuple[str, ...]
    scores: tuple[float, ...]
    splits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts or pairs of texts with labels.

    ``second_texts`` is empty for single texts, ``splits`` if the collection has none.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    second_texts: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()


def first_field(path: Path) -> str:
    """Return the first field of the first line of a TSV file."""
    return next(lines(path), (1, ""))[1].partition("\t")[0]


def read_sentence_pairs(path: Path) -> SentencePairs:
    """Read sentence pairs from a TSV file with ``score``, ``sentence1`` and ``sentence2``, after ``split`` if given."""
    columns = _TABLES[-1]
    return _scored(_table(path, ("split", *columns) if first_field(path) == "split" else columns))


def read_labelled_texts(path: Path) -> LabelledTexts:
    """Read labelled texts from a TSV file with ``label`` and ``text``; numbers as labels need no header."""
    return _labelled(_numbered(path) if first_field(path).isdecimal() else _table(path, ("label", "text")))


class _Example(NamedTuple):
    """One text or pair; ``label`` is a score in collections with scores, ``split`` is empty without given splits."""

    place: str
    label: str
    text: str
    second: str = ""
    split: str = ""


def read_examples(path: Path, relatedness: bool = False) -> tuple[str, LabelledTexts | SentencePairs]:
    """Read a labelled collection and return it with its name; ``relatedness`` selects the scores of SICK.

    The path is a TSV file with a header, a file of a probing task, or a folder with the files of a collection in
    :data:`FOLDERS`.
    """
    name, data = _read_folder(path, relatedness) if path.is_dir() else (path.stem, _read_file(path))
    if relatedness and not isinstance(data, SentencePairs):
        raise ConfigError(f"{path} has labels, not scores: relatedness applies to SICK, STS-B and tables with scores")
    return name, data


def read_scored_pairs(path: Path, splits: Sequence[str] = ()) -> tuple[str, SentencePairs]:
    """Read the sentence pairs of some splits of a table or a folder, with the name of the collection.

    Without ``splits``, they are those of the test split if there is one, else all.
    """
    name, found = read_examples(path, relatedness=True) if path.is_dir() else (path.stem, read_sentence_pairs(path))
    data = cast("SentencePairs", found)
    wanted = splits or (("test",) if data.splits else ())
    lacking = [split for split in wanted if split not in data.splits]
    if lacking:
        raise ConfigError(
            f"{path} has no pair in the split {lacking[0]!r}: expected {', '.join(wanted)}; give the folder of the "
            "collection as published, or a table whose first column is split"
        )
    if not wanted:
        return name, data
    every = zip(data.sentences1, data.sentences2, data.scores, data.splits, strict=True)
    first, second, scores, _ = zip(*(pair for pair in every if pair[3] in wanted), strict=True)
    return name, SentencePairs(first, second, scores)


def _read_file(path: Path) -> LabelledTexts | SentencePairs:
    """Read a table with a header, a file of a probing task, or one of the collections for clustering."""
    _, first = next(lines(path), (1, ""))
    header = tuple(first.split("\t"))
    if header[0] in _PROBING:
        return _labelled(_probing(path))
    if header[0].isdecimal():
        return _labelled(_numbered(path))
    split = header[:1] == ("split",)
    columns = next((each for each in _TABLES if header[split:] == each), _TABLES[0])
    rows = _table(path, (*header[:split], *columns))
    return _scored(rows) if columns[0] == "score" else _labelled(rows)


def _table(path: Path, columns: Sequence[str]) -> Iterator[_Example]:
    """Yield the rows of a table; the first of ``columns`` can be ``split``."""
    split = columns[0] == "split"
    for number, fields in table_rows(path, columns):
        example = _Example(f"{path}, line {number}", *fields[split:])
        yield example._replace(split=fields[0]) if split else example


def _read_folder(path: Path, relatedness: bool) -> tuple[str, LabelledTexts | SentencePairs]:
    """Read the collection whose files are in the folder."""
    missing = {
        name: [file for file in files if not (path / file).exists()]
        for name, (files, _) in FOLDERS.items()
        if not (relatedness and name.startswith("SICK-E"))
    }
    # Years of STS have parts of the same name, so the collection is the one with the most files.
    name = max(missing, key=lambda each: len(FOLDERS[each][0]) - len(missing[each]))
    files, read = FOLDERS[name]
    if len(missing[name]) == len(files):
        known = ", ".join(f"{each} ({', '.join(names)})" for each, (names, _) in FOLDERS.items())
        raise ConfigError(f"{path} has the files of no known collection: expected one of {known}")
    if missing[name]:
        raise ConfigError(f"{path} has no {missing[name][0]}: expected all files of {name}: {', '.join(files)}")
    rows = (row._replace(split=split or row.split) for file, split in files.items() for row in read(path / file))
    name = name.partition(",")[0]
    if name in _SCORED:
        return name, _scored(rows)
    found = _labelled(rows)
    return (f"SST{len(set(found.labels))}" if name == "SST" else name), found


def _probing(path: Path) -> Iterator[_Example]:
    """Yield the rows of a probing task: tr, va or te, tab, label, tab, text."""
    for number, line in filled_lines(path):
        place = f"{path}, line {number}"
        split, *fields = line.rstrip().split("\t")
        if split not in _PROBING or len(fields) < 2:
            raise ConfigError(f"{place}: got {line[:80]!r}: expected tr, va or te, a label and a text, with tabs")
        yield _Example(place, fields[0], fields[-1], split=_PROBING[split])


def _numbered(path: Path) -> Iterator[_Example]:
    """Yield the texts of a collection for clustering: number of the class, tab, text, which can have more tabs."""
    for number, line in filled_lines(path):
        label, tab, text = line.partition("\t")
        if not (label.isdecimal() and tab):
            raise ConfigError(f"{path}, line {number}: got {line[:80]!r}: expected a number, a tab and a text")
        yield _Example(f"{path}, line {number}", label, text)


def _columns(path: Path, label: int, first: int, header: tuple[str, ...] = ()) -> Iterator[_Example]:
    """Yield pairs from tab-separated columns; the second text follows the first."""
    for number, line in filled_lines(path):
        place, fields = f"{path}, line {number}", line.split("\t")
        if header and number == 1:
            if tuple(fields[: len(header)]) != header:
                raise ConfigError(f"{place}: the header is {line[:200]!r}: expected {' '.join(header)}, with tabs")
        elif len(fields) <= max(label, first + 1):
            raise ConfigError(
                f"{place}: {len(fields)} fields: expected at least {max(label, first + 1) + 1}, separated by tabs"
            )
        else:
            yield _Example(place, fields[label].strip(), fields[first], fields[first + 1])


def _sick_file(path: Path, label: str) -> Iterator[_Example]:
    """Yield the pairs of SICK in one file, whose last column names the split."""
    for number, fields in table_rows(path, _SICK_FILE_HEADER):
        place, row = f"{path}, line {number}", dict(zip(_SICK_FILE_HEADER, fields, strict=True))
        split = _SEMEVAL.get(row["SemEval_set"])
        if split is None:
            raise ConfigError(f"{place}: SemEval_set is {row['SemEval_set']!r}: expected {', '.join(_SEMEVAL)}")
        yield _Example(place, row[label], row["sentence_A"], row["sentence_B"], split)


def _sst(path: Path) -> Iterator[_Example]:
    """Yield texts of SST: text, tab, 0 or 1 (two classes), or 0 to 4, space, text (five classes)."""
    for number, line in filled_lines(path):
        text, tab, label = line.strip().partition("\t")
        if not tab:
            label, _, text = line.strip().partition(" ")
        if not (label.isdecimal() and text):
            raise ConfigError(f"{path}, line {number}: got {line[:80]!r}: expected a text and the number of its class")
        yield _Example(f"{path}, line {number}", label, text)


def _trec(path: Path) -> Iterator[_Example]:
    """Yield texts of TREC: coarse label, colon, fine label, space, text; the label is the coarse one."""
    for number, line in filled_lines(path, "latin-1"):
        labels, _, text = line.strip().partition(" ")
        label, colon, _ = labels.partition(":")
        if not (colon and text):
            raise ConfigError(f"{path}, line {number}: got {line[:80]!r}: expected COARSE:fine and a text")
        yield _Example(f"{path}, line {number}", label, text)


def _sts(path: Path) -> Iterator[_Example]:
    """Yield the judged pairs of a part of a year of STS: sentences with a tab between them, and a file with scores."""
    file = path.with_name(path.name.replace(".input.", ".gs."))
    pairs, scores = list(lines(path)), list(lines(file))
    if len(pairs) != len(scores):
        raise ConfigError(f"{file} has {len(scores)} lines, {path.name} has {len(pairs)}: expected one score per pair")
    for (number, line), (_, score) in zip(pairs, scores, strict=True):
        first, tab, rest = line.partition("\t")
        if not tab:
            raise ConfigError(f"{path}, line {number}: got {line[:80]!r}: expected two sentences, separated by a tab")
        if score.strip():  # most pairs of 2015 and 2016 have no judgement
            yield _Example(f"{file}, line {number}", score, first, rest.partition("\t")[0])


def _str(path: Path) -> Iterator[_Example]:
    """Yield the pairs of STR: CSV with the columns Text, which has a sentence per line, and Score."""
    rows = csv.DictReader(f"{line}\n" for _, line in lines(path))
    try:
        for number, row in enumerate(rows, 1):
            sentences, score = (row.get("Text") or "").split("\n"), row.get("Score")
            if len(sentences) != 2 or score is None:
                raise ConfigError(f"{path}, pair {number}: expected the columns Text, with two lines, and Score")
            yield _Example(f"{path}, pair {number}", score, *sentences)
    except csv.Error as error:
        raise ConfigError(f"{path}: not valid CSV: {error}") from error


def _json_lines(path: Path) -> Iterator[_Example]:
    """Yield texts of SciCite: JSON objects with "label" and "string" (as published) or "text" (as in SciBERT)."""
    for number, line in filled_lines(path):
        row, place = json_object(path, number, line), f"{path}, line {number}"
        text, label = row.get("string", row.get("text")), row.get("label")
        if not (isinstance(text, str) and isinstance(label, str)):
            raise ConfigError(f"{place}: got {', '.join(row)}: expected the strings 'label' and 'string' or 'text'")
        yield _Example(place, label, text)


def _one_label(path: Path) -> Iterator[_Example]:
    """Yield the texts of a file, one per line; the label is the extension of the file."""
    for number, line in filled_lines(path, "latin-1"):
        yield _Example(f"{path}, line {number}", path.suffix[1:], line)


def _splits(*files: str) -> dict[str, str]:
    """Return the split of each file: train and test, or train, dev and test."""
    return dict(zip(files, SPLITS if len(files) == 3 else ("train", "test"), strict=True))


_SICK = _splits("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")
_OF_2016 = ("answer-answer", "headlines", "plagiarism", "postediting", "question-question")
_YEARS = {
    "STS12": ("STS", "MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("STS", "FNWN", "headlines", "OnWN"),
    "STS14": ("STS", "deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("STS", "answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("STS", *_OF_2016),  # as SentEval names the files
    "STS2016": ("STS2016", *_OF_2016),  # as the organisers name them
}
"""The start of the names of the files of each year of STS, and the parts of the year."""
_SCORED = ("SICK-R", "STS-B", "STR", *_YEARS)

FOLDERS: dict[str, tuple[dict[str, str], Callable[[Path], Iterable[_Example]]]] = {
    "SST": (_splits("sentiment-train", "sentiment-dev", "sentiment-test"), _sst),
    "TREC": (_splits("train_5500.label", "TREC_10.label"), _trec),
    "MRPC": (
        _splits("msr_paraphrase_train.txt", "msr_paraphrase_test.txt"),
        partial(_columns, label=0, first=3, header=_MRPC_HEADER),
    ),
    "SICK-E": (_SICK, partial(_columns, label=4, first=1, header=_SICK_HEADER)),
    "SICK-R": (_SICK, partial(_columns, label=3, first=1, header=_SICK_HEADER)),
    "SICK-E, one file": ({"SICK.txt": ""}, partial(_sick_file, label="entailment_label")),
    "SICK-R, one file": ({"SICK.txt": ""}, partial(_sick_file, label="relatedness_score")),
    "STS-B": (_splits("sts-train.csv", "sts-dev.csv", "sts-test.csv"), partial(_columns, label=4, first=5)),
    "STR": ({"sem_text_rel_ranked.csv": ""}, _str),
    **{year: ({f"{start}.input.{part}.txt": "" for part in parts}, _sts) for year, (start, *parts) in _YEARS.items()},
    "SCICITE": (_splits("train.jsonl", "dev.jsonl", "test.jsonl"), _json_lines),
    "sci-cite": (_splits("train.txt", "dev.txt", "test.txt"), _json_lines),
    "MR": (dict.fromkeys(("rt-polarity.pos", "rt-polarity.neg"), ""), _one_label),
    "CR": (dict.fromkeys(("custrev.pos", "custrev.neg"), ""), _one_label),
    "MPQA": (dict.fromkeys(("mpqa.pos", "mpqa.neg"), ""), _one_label),
    "SUBJ": (dict.fromkeys(("subj.subjective", "subj.objective"), ""), _one_label),
}
"""The files of each collection with their splits ("" if it has none), and the reader of a file."""


def _labelled(rows: Iterable[_Example]) -> LabelledTexts:
    found = list(rows)
    for row in found:
        if not row.label:
            raise ConfigError(f"{row.place}: the label is empty")
    second = tuple(row.second for row in found)
    return LabelledTexts(
        tuple(row.text for row in found),
        tuple(row.label for row in found),
        second if any(second) else (),
        _checked_splits(found),
    )


def _scored(rows: Iterable[_Example]) -> SentencePairs:
    found = list(rows)
    return SentencePairs(
        tuple(row.text for row in found),
        tuple(row.second for row in found),
        tuple(_score(row) for row in found),
        _checked_splits(found),
    )


def _score(row: _Example) -> float:
    try:
        score = float(row.label)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ConfigError(f"{row.place}: the score is {row.label!r}: expected a number")
    return score


def _checked_splits(rows: list[_Example]) -> tuple[str, ...]:
    """Return the split of each row, or nothing if no row has one."""
    if not any(row.split for row in rows):
        return ()
    for row in rows:
        if row.split not in SPLITS:
            raise ConfigError(f"{row.place}: the split is {row.split!r}: expected one of {', '.join(SPLITS)}")
    return tuple(row.split for row in rows)
