"""Hidden states that are kept for a while, so that texts which are encoded repeatedly go through the model once.

Grids over layers, poolings, token weights and post-processors use the same hidden states. Inside of
:func:`kept_states`, the forward passes of documents write their states to temporary files, and later passes over the
same texts read them. The states are kept exactly: those of models in bfloat16 take two bytes, others four.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import numpy as np

from ragembed.types import Bools, Floats

if TYPE_CHECKING:
    from ragembed.extractors.forward import Batch, Replicas, Take

LIMIT = 4 << 30
"""Default limit of the temporary files, in bytes."""


@contextmanager
def kept_states(limit: int | None = LIMIT) -> Iterator[None]:
    """Keep hidden states in temporary files of at most ``limit`` bytes until the end of the block.

    With None, all states are computed inside of the block, to measure the time that they take.
    """
    kept = None if limit is None else KeptStates(limit)
    token = _CURRENT.set(kept)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        if kept is not None:
            kept.shrink(0)


def current() -> KeptStates | None:
    """Return the hidden states of the innermost :func:`kept_states` block, or None outside of any."""
    return _CURRENT.get()


@dataclass
class _Pass:
    """The batches of some texts, a file with their states for each layer, and the size of the files."""

    batches: Sequence[Batch] = ()
    files: Mapping[int, IO[bytes]] = field(default_factory=dict)
    bytes: int = 0

    def close(self) -> None:
        """Remove the files, which have no name on POSIX systems, so that a killed process leaves none behind."""
        for file in self.files.values():
            file.close()


class KeptStates:
    """Hidden states in temporary files; the pass that was used longest ago is removed first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._passes: OrderedDict[str, _Pass] = OrderedDict()

    def shrink(self, limit: int) -> None:
        """Remove passes until the files have at most ``limit`` bytes."""
        while sum(one.bytes for one in self._passes.values()) > limit:
            self._passes.popitem(last=False)[1].close()

    def run(
        self,
        name: str,
        texts: Sequence[str],
        batches: Callable[[], Iterable[Batch]],
        replicas: Replicas,
        layers: tuple[int, ...],
        take: Take,
    ) -> int:
        """Call ``take`` with each batch of ``texts`` and its ``layers``; only unknown layers are computed.

        ``name`` stands for everything other than the texts that determines the states. Returns the number of texts in
        the batches; texts without tokens are in none.
        """
        key = hashlib.sha256(json.dumps([name, *texts]).encode()).hexdigest()
        former = self._passes.pop(key, _Pass())
        missing = tuple(layer for layer in layers if layer not in former.files)
        added = {layer: tempfile.TemporaryFile() for layer in missing}  # noqa: SIM115  a pass closes them
        for file in former.files.values():
            file.seek(0)
        seen: list[Batch] = []
        size, fits = former.bytes, True

        def take_all(batch: Batch, computed: Sequence[Floats]) -> None:
            nonlocal size, fits
            new = dict(zip(missing, computed, strict=True))
            seen.append(batch)
            if fits and new:
                try:
                    for layer, states in new.items():
                        _write(added[layer], batch, states)
                except OSError:  # The disk is full. The states can be computed again.
                    fits = False
                size = former.bytes + sum(file.tell() for file in added.values())
                fits = fits and size <= self._limit
            take(batch, [new[layer] if layer in new else _read(former.files[layer], batch) for layer in layers])

        if missing:
            replicas.run(former.batches or batches(), missing, take_all)
        else:
            for batch in former.batches:
                take_all(batch, ())
        whole = _Pass(seen, {**former.files, **added}, size)
        if fits:
            self._passes[key] = whole
        else:
            whole.close()
        self.shrink(self._limit)
        return sum(batch.completed for batch in seen)


def _write(file: IO[bytes], batch: Batch, states: Floats) -> None:
    """Append the states of a batch without padding."""
    bits = np.ascontiguousarray(states[_present(batch)]).view(np.uint32)
    # The low half of a float32 that comes from bfloat16 is 0.
    np.save(file, bits if (bits & 0xFFFF).any() else (bits >> 16).astype(np.uint16))


def _read(file: IO[bytes], batch: Batch) -> Floats:
    """Return the next states, those of ``batch``, float32, shape ``(batch, tokens, d)``; padding is 0."""
    stored = np.load(file)
    bits = stored.astype(np.uint32) << (16 if stored.dtype == np.uint16 else 0)
    states = np.zeros((*batch.ids.shape, bits.shape[1]), dtype=np.float32)
    states[_present(batch)] = bits.view(np.float32)
    return states


def _present(batch: Batch) -> Bools:
    return np.arange(batch.ids.shape[1]) < batch.lengths[:, None]


_CURRENT: ContextVar[KeptStates | None] = ContextVar("kept_states", default=None)
