"""One question as a whole process, beside LangChain: with MiniLM, and with static vectors."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from contestants import PEERS, RAGEMBED
from environments import LANGCHAIN
from measure import Cost
from report import table

from ragembed.config import DEFAULT_MODEL
from ragembed.evaluation import read_beir
from ragembed.models import find_model
from speed_paths.folders import collection_folder
from speed_paths.limits import STARTING
from speed_paths.scores import Outcome, Score
from speed_paths.setting import Setting, say
from speed_paths.shown import of_medians, spread, times
from speed_paths.whole import Command, check_memory, in_turns

_GOALS = {"minilm": 12.0, "avg": 15.0}
_MEMORY_GOAL = 1 / 5
_TRIAL_FILES = 40
_PEER, _STARTING = "LangChain", "starting Python and NumPy"


def measure(setting: Setting) -> Outcome:
    """Ask each store different questions, in turns."""
    LANGCHAIN.ensure()
    limit = _TRIAL_FILES if setting.trial else None
    files = collection_folder(setting, "cran", limit)
    model = find_model(DEFAULT_MODEL).folder
    for preset in _GOALS:
        say(f"indexing Cranfield with the preset {preset}")
        setting.runner.run([RAGEMBED, "index", files, "--store", _store(setting, preset), "--preset", preset])
    theirs = _langchain_store(setting, files, model)
    every = list(dict.fromkeys(read_beir(setting.data / "retrieval" / "cran").questions.values()))
    turns = setting.turns
    questions = every[:: len(every) // (turns + 1)]

    def asking(turn: int) -> dict[str, Command]:
        question = questions[turn]
        peer = [LANGCHAIN.python, PEERS / "langchain_query.py", theirs, model, question]
        own = {
            _name(preset): [RAGEMBED, "query", "--json", "--store", _store(setting, preset), "--", question]
            for preset in _GOALS
        }
        return {**own, _PEER: peer, _STARTING: STARTING}

    in_turns({name: _of(name, lambda _: asking(turns)) for name in asking(0)}, 1, setting.runner)  # warm the disk cache
    costs = in_turns({name: _of(name, asking) for name in asking(0)}, turns, setting.runner)
    check_memory({name: own for name, own in costs.items() if name != _STARTING})
    rows = [_row(name, costs) for name in costs]
    about = (
        f"{turns} different questions to a store of {'all' if limit is None else limit} of Cranfield's documents, each "
        "as a process of its own, from start to exit, in the default mode, hybrid: `ragembed query` with MiniLM, and "
        "with static vectors (`--preset avg`), beside `peers/langchain_query.py`. Each program ran once before."
    )
    floor = (
        "Floor: the start of Python with NumPy; the model's weights, 43 MB without the word embeddings, are read once, "
        "and a question of 20 tokens takes 0.4 Gflop: some 10 ms."
    )
    header = ["", "s", "faster than LangChain", "peak memory, MiB", "memory ÷ LangChain's"]
    return Outcome(_scores(costs), [about, table(header, rows), floor])


def _of(name: str, asking: Callable[[int], dict[str, Command]]) -> Callable[[int], Command]:
    return lambda turn: asking(turn)[name]


def _name(preset: str) -> str:
    return f"ragembed, {preset}"


def _store(setting: Setting, preset: str) -> Path:
    return setting.folder / f"store-{preset}"


def _langchain_store(setting: Setting, files: Path, model: Path) -> Path:
    """Return the peer's store, made now unless the cache has the one of these files and packages."""
    recipe = (LANGCHAIN.folder / "recipe.sha256").read_text(encoding="ascii")[:12]
    store = setting.cache / f"langchain-cran-{len(list(files.iterdir()))}-{recipe}"
    if not store.is_dir():
        say("indexing Cranfield with LangChain")
        setting.runner.run([LANGCHAIN.python, PEERS / "langchain_index.py", files, store, model])
    return store


def _row(name: str, costs: dict[str, list[Cost]]) -> list[str]:
    cells = [name, spread([cost.wall for cost in costs[name]]), "", spread([cost.memory for cost in costs[name]]), ""]
    if name not in (_PEER, _STARTING):
        cells[2], cells[4] = times(_faster(name, costs)), times(_memory(name, costs))
    return cells


def _scores(costs: dict[str, list[Cost]]) -> list[Score]:
    start = statistics.median(cost.wall for cost in costs[_STARTING])
    scores = []
    for preset, goal in _GOALS.items():
        name = _name(preset)
        floor = start / statistics.median(cost.wall for cost in costs[name])
        scores.append(Score(f"cold query, {preset}: time beside LangChain", _faster(name, costs), goal, floor=floor))
        memory = Score(
            f"cold query, {preset}: memory beside LangChain",
            _memory(name, costs),
            _MEMORY_GOAL if preset == "minilm" else None,
            more_is_better=False,
        )
        scores.append(memory)
    return scores


def _faster(name: str, costs: dict[str, list[Cost]]) -> float:
    return of_medians([cost.wall for cost in costs[_PEER]], [cost.wall for cost in costs[name]])


def _memory(name: str, costs: dict[str, list[Cost]]) -> float:
    return of_medians([cost.memory for cost in costs[name]], [cost.memory for cost in costs[_PEER]])
