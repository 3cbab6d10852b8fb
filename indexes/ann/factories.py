"""Trying out a factory string of FAISS before anything is built with it."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np

from ragembed.errors import ConfigError, StoreDamagedError
from ragembed.indexes.ann.building import build_index, reason
from ragembed.indexes.ann.index import SegmentIndex
from ragembed.indexes.ann.specs import IndexSpec
from ragembed.indexes.ann.vectors import ArrayVectors, Floats, Rows
from ragembed.postprocess import unit_rows

_ROWS, _QUERIES, _K = 1_024, 8, 10


def check(spec: IndexSpec, dim: int) -> None:
    """Raise :class:`ConfigError` unless an index of this kind can be built, stored, searched under a filter and read.

    A small one is, of random vectors and with few lists; kinds that have a name need no trial.
    """
    if spec.named:
        return
    small = IndexSpec(re.sub(r"\bIVF\d+", "IVF4", spec.name))
    draw = np.random.default_rng(0)
    vectors = unit_rows(draw.normal(size=(_ROWS, dim)).astype(np.float32))
    rows = np.arange(1, 2 * _ROWS, 2, dtype=np.int64)
    allowed = np.zeros(2 * _ROWS, dtype=bool)
    allowed[rows[::4]] = True
    try:
        with tempfile.TemporaryDirectory(prefix="ragembed-") as folder:
            file = Path(folder) / "index.faiss"
            _build(small, spec, vectors, rows, file)
            index = SegmentIndex(file, small, _ROWS, dim)
            _, found = index.search(vectors[:_QUERIES], _K, allowed, 0.25, index.most_effort or None)
            if not allowed[found].all() or (found < 0).any():
                raise ConfigError(
                    f"an index of kind {spec.name} cannot be searched under a filter: choose another kind"
                )
            if sum(len(part) for part, _ in index.contents()) != _ROWS:
                raise ConfigError(f"an index of kind {spec.name} does not give back what it holds: choose another kind")
            index.kept_of(vectors[:1])
    except (RuntimeError, StoreDamagedError) as error:
        raise _unusable(spec, error) from error


def _build(small: IndexSpec, spec: IndexSpec, vectors: Floats, rows: Rows, file: Path) -> None:
    try:
        build_index(small, ArrayVectors(vectors), rows, file)
    except ConfigError as error:
        raise _unusable(spec, error.__cause__ or error) from error


def _unusable(spec: IndexSpec, error: BaseException) -> ConfigError:
    said = reason(error) if isinstance(error, RuntimeError) else str(error)
    return ConfigError(f"an index of kind {spec.name} cannot be used: {said}; choose another kind")
