"""Run a table or figure: find its collections, measure what is not measured yet, and write the results.

Every measurement is appended to ``measured.jsonl`` in the output folder as soon as it is known. A later run takes it
from there, so that an interrupted run continues, and tables that share configurations measure them once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ragembed.config.settings import EmbedderConfig
from ragembed.config.specs import Words
from ragembed.errors import ConfigError
from ragembed.evaluation.encoding import Encoded, encode_each, raw_part
from ragembed.evaluation.inputs import json_object
from ragembed.evaluation.tasks import Measured, Task, evaluate
from ragembed.files import file_sha256, make_folders, replace_file
from ragembed.models.files import find_model, model_shape
from ragembed.papers.reproduction.data import COLLECTIONS, PaperCollection, Printed, in_group, sentences
from ragembed.papers.sentences.sentence_collections import read_scored_pairs
from ragembed.papers.sentences.sentence_tasks import (
    POSITIVE_SCORE,
    isotropy_task,
    read_classification,
    read_clustering,
    read_isotropy,
    read_sts,
)
from ragembed.progress import SilentProgress, TrainingProgress
from ragembed.version import __version__

MEASURED = "measured.jsonl"
_MEMORY = 2 << 30
"""Bytes of raw vectors that are held at once; more configurations are measured in several parts."""
PAPER_RUNS = 10
"""Runs of k-means, and trainings of each DefSent+ model, in the papers."""
_CORPUS_TEXTS = 20_000
"""About the number of sentences of Wikitext-2 in the test data."""
_CORPORA = ("weighting_corpus", "avg_corpus", "postprocess_corpus")

READERS: Mapping[str, Callable[[Path, int], Task]] = {
    "sts": lambda path, _: read_sts(path),
    "clustering": read_clustering,
    "classification": lambda path, _: read_classification(path),
    "nested": lambda path, _: read_classification(path, nested=True),
    "perceptron": lambda path, _: read_classification(path, classifier="mlp", nested=True),
    "relatedness": lambda path, _: read_classification(path, relatedness=True),
    "isotropy": lambda path, _: _isotropy_task(path),
    "isotropy, train": lambda path, _: _isotropy_task(path, ("train",)),
    "iso-score": lambda path, _: read_isotropy(path, with_uniformity=False),
}
"""The reader of each task, from a path and the number of runs of k-means."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the user gives for a run.

    ``runs`` counts those of k-means and of DefSent+, whose head is from ``head_from``. Empty choices stand for all.
    Without ``measure``, only the numbers in ``out`` are shown.
    """

    data: Path
    out: Path
    model: str
    word_vectors: tuple[Path, ...] = ()
    runs: int = 10
    collections: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    device: str | None = None
    head_from: str | None = None
    measure: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement of a table: a configuration on a collection. ``score`` is a score other than the main one.

    The vectors of ``joined`` are appended to those of ``config``.
    """

    row: str
    column: str
    collection: str
    config: EmbedderConfig
    score: str = ""
    task: str = ""
    joined: tuple[EmbedderConfig, ...] = ()

    @property
    def configs(self) -> tuple[EmbedderConfig, ...]:
        """All configurations."""
        return (self.config, *self.joined)


@dataclass(frozen=True, slots=True)
class Value:
    """A measured number; ``value`` is None if the measure is not defined, and ``note`` says why."""

    row: str
    column: str
    collection: str
    value: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """A table or figure of a paper.

    ``published`` returns the paper's number for a row, a column and the measured collections; ``draw`` is the name of a
    drawing in :mod:`ragembed.papers.reproduction.figures`. ``splits`` names the split of a collection that
    differs from that of other items.
    """

    paper: str
    name: str
    title: str
    collections: tuple[str, ...]
    measure: Callable[[Reproduction], Iterable[Value]]
    published: Printed = lambda *_: None
    draw: str = "agreement"
    splits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers of an item, with the collections that are missing and notes for the reader."""

    item: Item
    model: str
    values: tuple[Value, ...]
    missing: tuple[PaperCollection, ...]
    notes: tuple[str, ...]


@dataclass
class Reproduction:
    """One run of an item; its methods are what the descriptions of the items use."""

    inputs: Inputs
    progress: TrainingProgress = field(default_factory=SilentProgress)
    missing: dict[str, PaperCollection] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    unmeasured: set[tuple[str, str]] = field(default_factory=set)
    """Rows and columns that lack a collection, because nothing is to be measured; they have no mean."""
    known_columns: dict[str, None] = field(default_factory=dict)
    known_collections: dict[str, None] = field(default_factory=dict)
    """The columns and collections that the user can choose from."""

    @cached_property
    def model_folder(self) -> Path:
        """The folder of the model."""
        return find_model(self.inputs.model).folder

    @cached_property
    def layers(self) -> int:
        """The number of blocks of the model."""
        return model_shape(self.model_folder)[1]

    @cached_property
    def has_mask(self) -> bool:
        """Whether the model has a mask token."""
        from ragembed.models.tokenizer import TextTokenizer

        return TextTokenizer(self.model_folder).has_mask

    @cached_property
    def config(self) -> EmbedderConfig:
        """The model with plain means of the last layer, and one fit for both sides."""
        return EmbedderConfig(
            model=self.inputs.model,
            pooling="mean",
            layers="last",
            weighting="uniform",
            postprocess=(),
            query_fit="shared",
        )

    def note(self, text: str) -> None:
        """Add a note for the reader of the result."""
        self.notes[text] = None

    def wants(self, column: str) -> bool:
        """Return whether the column is to be measured."""
        self.known_columns[column] = None
        return not self.inputs.columns or column in self.inputs.columns

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Return the collections to measure: those that the user named, else ``names``."""
        self.known_collections.update(dict.fromkeys(names))
        return [name for name in names if not self.inputs.collections or name in self.inputs.collections]

    def pairs(self, default: str) -> list[str]:
        """Return the collections of sentence pairs that the user named; ``default`` if no collection was named."""
        if not self.inputs.collections:
            return [default]
        named = self.chosen(in_group("STS"))
        for name in named:
            if name != default:
                self.note(f"measured on {name}; in the paper, on {default}")
        return named

    def find(self, name: str) -> Path | None:
        """Return the path of a collection, or None and remember that it is missing."""
        found = COLLECTIONS[name].find(self.inputs.data)
        if found is None:
            self.missing[name] = COLLECTIONS[name]
        return found

    def wikitext(self) -> str | None:
        """Return a file with the sentences of Wikitext-2, or None if it is missing."""
        folder = self.find("wikitext-2")
        return None if folder is None else str(sentences(folder, self.inputs.out))

    def avg_corpus(self) -> str | None:
        """Return a file with the sentences of Wikitext-103, or of Wikitext-2 if that is missing."""
        folder = COLLECTIONS["wikitext-103"].find(self.inputs.data)
        if folder is not None:
            return str(sentences(folder, self.inputs.out))
        self.note("static vectors of Avg. are means over Wikitext-2; in the paper, over Wikitext-103")
        return self.wikitext()

    def evaluate(self, cells: Iterable[Cell]) -> Iterator[Value]:
        """Measure cells; those on missing collections are left out."""
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in cells:
            groups.setdefault((cell.collection, cell.task or COLLECTIONS[cell.collection].task), []).append(cell)
        for (name, task), members in groups.items():
            path = self.find(name)
            if path is not None:
                yield from self._evaluate(COLLECTIONS[name], path, task, members)

    def _evaluate(self, collection: PaperCollection, path: Path, task: str, cells: Sequence[Cell]) -> Iterator[Value]:
        if collection.group == "corpus":
            path = sentences(path, self.inputs.out)
        read = READERS[task](path, self.inputs.runs)
        size = len(read.documents) // (2 if task == "sts" else 1)
        if collection.records is not None and task in ("sts", "clustering") and size != collection.records:
            self.note(f"{collection.name} has {size:,} records, in the paper {collection.records:,}")
        configs = list(dict.fromkeys(cell.configs for cell in cells))
        digest = path_sha256(path)
        runs = self.inputs.runs if task == "clustering" else 0
        if runs not in (0, PAPER_RUNS):
            self.note(f"k-means: mean of {runs} run{'s' if runs > 1 else ''}; in the paper, of {PAPER_RUNS}")
        keys = {config: self._key(digest, task, runs, config) for config in configs}
        unknown = [config for config in configs if keys[config] not in self._measured]
        if unknown and not self.inputs.measure:
            self.note(f"{collection.name}: {len(unknown)} of {len(configs)} configurations are not measured")
            unknown = []
            lacking = [cell for cell in cells if keys[cell.configs] not in self._measured]
            self.unmeasured.update((cell.row, cell.column) for cell in lacking)
            cells = [cell for cell in cells if keys[cell.configs] in self._measured]
        about = {"collection": collection.name, "task": task}
        for part in self._parts([config for config, *joined in unknown if not joined], len(read.documents)):
            for config, measured in evaluate(read, part, self.inputs.device, self.progress):
                self._keep(keys[config,], {**about, **measured.scores})
        for several in (each for each in unknown if len(each) > 1):
            self._keep(keys[several], {**about, **self._joined(read, several).scores})
        for cell in cells:
            scores = self._measured[keys[cell.configs]]
            value = scores.get(cell.score or read.headline)
            yield Value(cell.row, cell.column, collection.name, value, scores.get("undefined", ""))

    def _joined(self, task: Task, configs: Sequence[EmbedderConfig]) -> Measured:
        """Measure the vectors of several configurations, one after the other in one vector."""
        parts = encode_each(configs, task.documents, (), self.inputs.device, self.progress, task.name)
        vectors = np.hstack([part.documents for part in parts])
        try:
            return task.measure(Encoded(vectors, vectors[:0]), None)
        except ConfigError as error:
            return Measured.without_score(task.headline, str(error))

    def _parts(self, configs: Sequence[EmbedderConfig], texts: int) -> Iterator[list[EmbedderConfig]]:
        """Yield the configurations in parts whose raw vectors fit into memory.

        Configurations that differ only in post-processing share their raw vectors, so they are in the same part.
        """
        by_raw: dict[EmbedderConfig, list[EmbedderConfig]] = {}
        for config in configs:
            by_raw.setdefault(raw_part(config), []).append(config)
        groups = list(by_raw.values())
        # A mixture also holds the two kinds of vectors that it mixes, and a corpus for post-processors has vectors too.
        size = max(1, _MEMORY // max(1, 2 * (texts + _CORPUS_TEXTS) * 4 * max(model_shape(self.model_folder)[0], 768)))
        for start in range(0, len(groups), size):
            yield [config for group in groups[start : start + size] for config in group]

    @cached_property
    def _measured(self) -> dict[str, dict[str, Any]]:
        """The scores in the output folder, by their key; the unfinished last line of an interrupted run is removed."""
        file = self.inputs.out / MEASURED
        if not file.exists():
            return {}
        whole, _, unfinished = file.read_bytes().rpartition(b"\n")
        if unfinished:
            replace_file(file, whole + b"\n" if whole else b"")
        found: dict[str, dict[str, Any]] = {}
        for number, line in enumerate(whole.splitlines(), 1):
            row = json_object(file, number, line.decode(errors="replace"))
            if "key" not in row:
                raise ConfigError(f"{file}, line {number}: no 'key', so this is no measurement: remove the line")
            found[row.pop("key")] = row
        return found

    def _keep(self, key: str, scores: Mapping[str, Any]) -> None:
        with (self.inputs.out / MEASURED).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, **scores}) + "\n")
        self._measured[key] = dict(scores)

    def kept(
        self, name: str, settings: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Return the result of ``measure``, from an earlier run with the same name and settings if there was one.

        It is empty if there was none and nothing is to be measured.
        """
        key = digest_of({"name": name, "version": __version__, **settings})
        if key not in self._measured:
            if not self.inputs.measure:
                self.note(f"{name}: not measured")
                return {}
            self._keep(key, {"name": name, **measure()})
        return self._measured[key]

    def _key(self, digest: str, task: str, runs: int, configs: Sequence[EmbedderConfig]) -> str:
        found = []
        for config in configs:
            settings = config.to_dict()
            for name in _CORPORA:
                if settings[name] is not None:
                    settings[name] = file_sha256(Path(settings[name]))
            words = isinstance(config.extraction, Words)
            settings["model"] = file_sha256(Path(config.model)) if words else find_model(config.model).sha256
            found.append(settings)
        return digest_of({"data": digest, "task": task, "runs": runs, "version": __version__, "configs": found})


def reproduce(item: Item, inputs: Inputs, progress: TrainingProgress | None = None) -> Outcome:
    """Measure the numbers of a table or figure.

    Raises :class:`ConfigError` if a file is not as expected, or the item has none of the chosen columns or collections.
    """
    if not inputs.data.is_dir():
        raise ConfigError(f"no folder at {inputs.data}: give the folder of the collections with --data")
    if inputs.measure:
        make_folders(inputs.out)
        (inputs.out / MEASURED).open("ab").close()  # an error is raised before the first measurement
    run = Reproduction(inputs, progress or SilentProgress())
    values = tuple(item.measure(run))
    _check_chosen(item, inputs, run)
    values = tuple(value for value in values if (value.row, value.column) not in run.unmeasured)
    return Outcome(item, inputs.model, values, tuple(run.missing.values()), tuple(run.notes))


def _check_chosen(item: Item, inputs: Inputs, run: Reproduction) -> None:
    """Raise :class:`ConfigError` for columns that the item does not have, and if it has no chosen collection."""
    unknown = [column for column in inputs.columns if column not in run.known_columns]
    if run.known_columns and unknown:
        raise ConfigError(
            f"{item.name} has no column {', '.join(map(repr, unknown))}: expected one of {', '.join(run.known_columns)}"
        )
    if run.known_collections and inputs.collections and not run.known_collections.keys() & {*inputs.collections}:
        raise ConfigError(
            f"{item.name} does not use {', '.join(inputs.collections)}: expected one of "
            f"{', '.join(run.known_collections)}"
        )


def _isotropy_task(path: Path, splits: Sequence[str] = ()) -> Task:
    """Return the isotropy task of a file, or of sentence pairs in a folder or in some splits."""
    if not path.is_dir() and not splits:
        return read_isotropy(path)
    name, pairs = read_scored_pairs(path, splits)
    if max(pairs.scores) < POSITIVE_SCORE:
        raise ConfigError(f"{path} has no pair with the score {POSITIVE_SCORE:g} for alignment: name another one")
    return isotropy_task(name, (*pairs.sentences1, *pairs.sentences2), pairs)


def path_sha256(path: Path) -> str:
    """Return a hash of a file, or of all files in a folder."""
    if path.is_file():
        return file_sha256(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.is_symlink())
    return digest_of({str(file.relative_to(path)): file_sha256(file) for file in files})


def digest_of(value: Any) -> str:
    """Return a hash of a value that can be written as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:24]
