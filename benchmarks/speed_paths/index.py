"""Indexing a folder as a whole process, beside what users of LangChain and of txtai write."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contestants import PEERS, RAGEMBED
from environments import LANGCHAIN, SPEED, packages
from measure import Cost
from report import table

from ragembed.config import DEFAULT_MODEL
from ragembed.models import find_model
from speed_paths.folders import collection_folder, python_docs_folder, texts_of
from speed_paths.limits import matrix_rate, operations, windows
from speed_paths.scores import Outcome, Score
from speed_paths.setting import Setting, say
from speed_paths.shown import of_medians, share, spread, times
from speed_paths.whole import Command, check_memory, in_turns

_GOAL, _MEMORY_GOAL = 8.0, 0.7
_TRIAL_FILES = 20
_TURNS = {"cran": 2}
"""Of one's own; the others have one, as it takes minutes."""
_CHARACTERS = 1000
"""Of the parts that the peers split long files into."""
_OURS, _LANGCHAIN, _TXTAI = "ragembed", "LangChain", "txtai"
_PEERS = (_LANGCHAIN, _TXTAI)


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder of files, and whether they are so long that the peers split them."""

    name: str
    path: Path
    long: bool = False


def measure(setting: Setting) -> Outcome:
    """Index each folder with all of them, in turns."""
    LANGCHAIN.ensure()
    SPEED.ensure()
    model = find_model(DEFAULT_MODEL).folder
    limit = matrix_rate(setting)
    folders = _folders(setting)
    say("warming up")
    in_turns(_commands(setting, _Folder("few", _few(setting, folders[0].path)), model), 1, setting.runner)
    rows: list[list[str]] = []
    scores: list[Score] = []
    sentences: list[str] = []
    for folder in folders:
        say(f"indexing {folder.name}")
        texts = texts_of(folder.path)
        least = operations(model, windows(model, texts)) / limit
        turns = 1 if setting.trial else _TURNS.get(folder.name, 1)
        costs = in_turns(_commands(setting, folder, model), turns, setting.runner)
        check_memory(costs)
        floor = least / statistics.median(cost.wall for cost in costs[_OURS])
        rows += _rows(folder.name, costs)
        scores += _scores(folder.name, costs, floor)
        characters = sum(map(len, texts))
        sentences.append(
            f"- {folder.name}: {len(texts):,} files, {characters:,} characters; the floor is {share(floor)} of what "
            "ragembed takes."
        )
    return Outcome(scores, [_about(setting), table(_HEADER, rows), _FLOOR, "\n".join(sentences)])


_HEADER = ["", "s", "ragembed is faster", "peak memory, MiB", "ragembed's memory ÷"]
_FLOOR = (
    "Floor: the model's operations for all tokens of the files, at the rate of large squares in PyTorch; as bytes, the "
    "files are read and texts and vectors written once. The peers read the first 256 tokens of a document."
)


def _about(setting: Setting) -> str:
    versions = {**packages(LANGCHAIN.python), **packages(SPEED.python)}
    named = ", ".join(f"{name} {versions[name]}" for name in ("langchain-community", "sentence-transformers", "txtai"))
    docs = (
        "Files of Python's documentation, drawn at random up to 1.2 million characters; the peers split them into "
        f"parts of at most {_CHARACTERS:,} characters with LangChain's RecursiveCharacterTextSplitter, ragembed as "
        "it does by default."
        if setting.python_docs is not None
        else "Python's documentation was not measured: it is given with --python-docs."
    )
    return (
        "`ragembed index` on a folder of text files, with all defaults, beside `peers/langchain_index.py` (FAISS and "
        "HuggingFaceEmbeddings) and `peers/txtai_index.py` (texts kept), as whole processes from start to exit, with "
        f"the same files of the model. {docs} {named}."
    )


def _folders(setting: Setting) -> list[_Folder]:
    limit = _TRIAL_FILES if setting.trial else None
    names = ("cran",) if setting.quick else ("cran", "npl")
    folders = [_Folder(name, collection_folder(setting, name, limit)) for name in names]
    if setting.python_docs is not None and not setting.quick:
        files = 3 if setting.trial else None
        folders.append(_Folder("python3-doc", python_docs_folder(setting, setting.python_docs, files), long=True))
    elif not setting.quick:
        say("python3-doc is left out: give its folder with --python-docs")
    return folders


def _few(setting: Setting, source: Path) -> Path:
    folder = setting.folder / "files-few"
    folder.mkdir()
    for path in sorted(source.iterdir())[:20]:
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def _commands(setting: Setting, folder: _Folder, model: Path) -> dict[str, _Making]:
    split = [str(_CHARACTERS)] if folder.long else []
    peers = {
        _LANGCHAIN: [LANGCHAIN.python, PEERS / "langchain_index.py"],
        _TXTAI: [SPEED.python, PEERS / "txtai_index.py"],
    }
    stores = setting.folder / "stores" / folder.name
    stores.mkdir(parents=True)
    commands: dict[str, _Making] = {_OURS: _Making([RAGEMBED, "index", folder.path, "--store"], stores / "ragembed")}
    for name, start in peers.items():
        commands[name] = _Making([*start, folder.path], stores / name.lower(), [model, *split])
    return commands


@dataclass(frozen=True, slots=True)
class _Making:
    """A command that makes a new store in each turn."""

    before: Command
    store: Path
    after: Command = ()

    def __call__(self, turn: int) -> Command:
        return [*self.before, f"{self.store}-{turn}", *self.after]


def _rows(folder: str, costs: dict[str, list[Cost]]) -> list[list[str]]:
    rows = []
    for name, own in costs.items():
        cells = [
            f"{folder}: {name}",
            spread([cost.wall for cost in own]),
            "",
            spread([cost.memory for cost in own]),
            "",
        ]
        if name != _OURS:
            cells[2], cells[4] = times(_faster(costs, name)), times(_memory(costs, name))
        rows.append(cells)
    return rows


def _scores(folder: str, costs: dict[str, list[Cost]], floor: float) -> Sequence[Score]:
    scores = []
    for peer in _PEERS:
        scores.append(Score(f"index {folder}: time beside {peer}", _faster(costs, peer), _GOAL, floor=floor))
        memory = _memory(costs, peer)
        scores.append(Score(f"index {folder}: memory beside {peer}", memory, _MEMORY_GOAL, more_is_better=False))
    return scores


def _faster(costs: dict[str, list[Cost]], peer: str) -> float:
    return of_medians([cost.wall for cost in costs[peer]], [cost.wall for cost in costs[_OURS]])


def _memory(costs: dict[str, list[Cost]], peer: str) -> float:
    return of_medians([cost.memory for cost in costs[_OURS]], [cost.memory for cost in costs[peer]])
