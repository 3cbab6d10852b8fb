"""The output folder of a training: an ordinary model folder, with additional files for the reverse dictionary.

::

    config.json, model.safetensors, tokenizer.json …    the model; the pooler is among its weights
    entries.json, entries.safetensors                   the entries and their vectors (and the head of DefSent)
    held-out.jsonl                                      the held-out definitions
    pictures/step-1.png …                               plots of the entry vectors, if requested
    training.json                                       settings and measurements; written last
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ragembed.errors import ConfigError, TrainingError
from ragembed.files import replace_file, sync
from ragembed.papers.training.checkpoints import PLAN, read_tensors, replace_tensors
from ragembed.papers.training.dictionary import Dictionary, HeldOut
from ragembed.papers.training.entries import EntrySpace

FORMAT = 1
FILE = "training.json"

CHECKPOINTS = "checkpoints"
PICTURES = "pictures"
_ENTRIES, _VECTORS, _HELD_OUT = "entries.json", "entries.safetensors", "held-out.jsonl"


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the mean and the sample standard deviation of values, which is 0 for a single one."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "deviation": deviation}


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the :func:`spread` over ``runs`` of each of their numbers, under the same keys."""
    numbers: dict[str, Any] = {}
    for name, value in runs[0].items():
        if name in ("run", "seed"):
            continue
        values = [run[name] for run in runs]
        if isinstance(value, (int, float)):
            numbers[name] = spread(values)
        elif isinstance(value, Mapping):
            numbers[name] = summary(values)
    return numbers


def require_folder(out: Path) -> None:
    """Raise :class:`ConfigError` unless ``out`` is new, empty or contains an unfinished training."""
    if (out / FILE).exists():
        raise ConfigError(f"{out} already contains a trained model: choose another folder")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file: expected a folder")
    others = {entry.name for entry in out.iterdir()} - {CHECKPOINTS} if out.is_dir() else set()
    if others and not (out / CHECKPOINTS / PLAN).is_file():
        raise ConfigError(f"the folder {out} is not empty: choose an empty or new folder")


def write_entries(
    out: Path, dictionary: Dictionary, space: EntrySpace, head: Mapping[str, torch.Tensor], held_out: Iterable[HeldOut]
) -> None:
    """Write the entries, their vectors, the head of DefSent, if any, and the held-out definitions."""
    tensors = {f"head.{name}": each for name, each in head.items()}
    replace_tensors(out / _VECTORS, {**space.tensors(), **tensors}, {})
    replace_file(out / _ENTRIES, json.dumps(dictionary.entries, ensure_ascii=False).encode())
    lines = [
        json.dumps({"entry": dictionary.entries[entry], "definition": each.definition}, ensure_ascii=False)
        for each in held_out
        for entry in each.entries
    ]
    replace_file(out / _HELD_OUT, "".join(f"{line}\n" for line in lines).encode())


def read_entries(folder: Path) -> tuple[Sequence[str], EntrySpace, dict[str, torch.Tensor]]:
    """Read the entries, vectors and head that :func:`write_entries` wrote. Raises :class:`TrainingError`."""
    tensors, _ = read_tensors(folder / _VECTORS)
    try:
        entries: list[str] = json.loads((folder / _ENTRIES).read_text(encoding="utf-8"))
        space = EntrySpace.of(tensors)
    except (OSError, ValueError, KeyError) as error:
        raise TrainingError(f"the entries of {folder} cannot be read: {error}") from error
    head = {name.removeprefix("head."): each for name, each in tensors.items() if name.startswith("head.")}
    return entries, space, head


def write_report(out: Path, report: Mapping[str, Any]) -> None:
    """Write ``training.json``, which marks the folder as a trained model."""
    replace_file(out / FILE, json.dumps({"format": FORMAT, **report}, indent=2, ensure_ascii=False).encode())


def read_report(folder: Path) -> dict[str, Any]:
    """Return the content of ``training.json``. Raises :class:`TrainingError` if it is missing or damaged."""
    file = folder / FILE
    if not file.is_file():
        raise TrainingError(f"{folder} has no {FILE}: expected a folder written by 'ragembed papers train'")
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        version = report["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{file} is damaged: {error}") from error
    if version != FORMAT:
        raise TrainingError(f"{file} has the format {version}: this version of ragembed reads only format {FORMAT}")
    return report


def place_model(model: Path, out: Path) -> None:
    """Copy the files of the folder ``model`` to ``out``, and wait until they are on disk."""
    for file in model.iterdir():
        shutil.copyfile(file, out / file.name)
        sync(out / file.name)
