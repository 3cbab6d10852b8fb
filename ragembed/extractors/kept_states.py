"""Hidden states that are kept for a while, so that texts which are encoded repeatedly go through the model once.

Grids over layers, poolings, token weights and post-processors use the same hidden states. Inside of
:func:`kept_states`, the forward passes of documents write their states to temporary files, and later passes over the
same texts read them. The states are kept exactly: those of models in bfloat16 take two bytes, others four.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragembed.types import Floats

if TYPE_CHECKING:
    from ragembed.extractors.forward import Batch, Replicas, Take

LIMIT = 4 << 30
"""Default limit of the temporary files, in bytes."""


@contextmanager
def kept_states(limit: int = LIMIT) -> Iterator[None]:
    """Keep hidden states in temporary files of at most ``limit`` bytes until the end of the block.

    Inside of another such block, this one has no effect.
    """
    if CURRENT.get() is not None:
        yield
        return
    kept = KeptStates(limit)
    token = CURRENT.set(kept)
    try:
        yield
    finally:
        CURRENT.reset(token)
        kept.close()


@contextmanager
def without_kept_states() -> Iterator[None]:
    """Compute all states inside of the block, to measure the time that they take."""
    token = CURRENT.set(None)
    try:
        yield
    finally:
        CURRENT.reset(token)


class KeptStates:
    """Hidden states in temporary files; the pass that was used longest ago is removed first.

    The files have no name on POSIX systems, so that a killed process leaves none behind.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._passes: OrderedDict[str, _Pass] = OrderedDict()

    def close(self) -> None:
        """Remove all files."""
        for one in self._passes.values():
            one.remove()
        self._passes.clear()

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
        key = _digest(name, texts)
        former = self._passes.pop(key, None) or _Pass()
        missing = tuple(layer for layer in layers if layer not in former.layers)
        added = [_Layer() for _ in missing]

        def take_all(batch: Batch, number: int, computed: Sequence[Floats]) -> None:
            new = dict(zip(missing, computed, strict=True))
            take(batch, [new[layer] if layer in new else former.layers[layer].read(number, batch) for layer in layers])

        fits = True
        if missing:
            seen: list[Batch] = []

            def take_new(batch: Batch, computed: list[Floats]) -> None:
                nonlocal fits
                seen.append(batch)
                fits = fits and self._write(batch, computed, former, added)
                take_all(batch, len(seen) - 1, computed)

            replicas.run(former.batches or batches(), missing, take_new)
            former = _Pass(seen, {**former.layers, **dict(zip(missing, added, strict=True))})
        else:
            for number, batch in enumerate(former.batches):
                take_all(batch, number, ())
        if fits:
            self._passes[key] = former
        else:
            former.remove()
        while sum(one.bytes for one in self._passes.values()) > self._limit:
            _, oldest = self._passes.popitem(last=False)
            oldest.remove()
        return sum(batch.completed for batch in former.batches)

    def _write(self, batch: Batch, computed: Sequence[Floats], former: _Pass, added: Sequence[_Layer]) -> bool:
        """Write the states of a batch; return whether the pass fits into the limit and on the disk."""
        try:
            for layer, states in zip(added, computed, strict=True):
                layer.write(batch, states)
        except OSError:  # The disk is full. The states can be computed again.
            return False
        return former.bytes + sum(layer.bytes for layer in added) <= self._limit


@dataclass
class _Layer:
    """The states of a layer: a file with those of all batches, and the offset and the dtype of each batch."""

    file: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    bytes: int = 0
    places: list[tuple[int, str]] = field(default_factory=list)

    def write(self, batch: Batch, states: Floats) -> None:
        """Append the states of a batch."""
        rows = np.ascontiguousarray(states[_present(batch)])
        bits = rows.view(np.uint32)
        # The low half of a float32 that comes from bfloat16 is 0.
        short = not (bits & 0xFFFF).any()
        stored = (bits >> 16).astype(np.uint16) if short else bits
        self.file.seek(self.bytes)
        self.file.write(stored.tobytes())
        self.places.append((self.bytes, stored.dtype.str))
        self.bytes += stored.nbytes

    def read(self, number: int, batch: Batch) -> Floats:
        """Return the states of a batch, float32, shape ``(batch, tokens, d)``; padding is 0."""
        offset, dtype = self.places[number]
        end = self.places[number + 1][0] if number + 1 < len(self.places) else self.bytes
        self.file.seek(offset)
        stored = np.frombuffer(self.file.read(end - offset), dtype)
        bits: NDArray[np.uint32] = stored.astype(np.uint32)
        if stored.dtype == np.uint16:
            bits <<= 16
        present = _present(batch)
        rows = bits.view(np.float32).reshape(np.count_nonzero(present), -1)
        states = np.zeros((*present.shape, rows.shape[1]), dtype=np.float32)
        states[present] = rows
        return states


@dataclass
class _Pass:
    """The batches of some texts, and their states by layer."""

    batches: list[Batch] = field(default_factory=list)
    layers: Mapping[int, _Layer] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of the files."""
        return sum(layer.bytes for layer in self.layers.values())

    def remove(self) -> None:
        """Remove the files."""
        for layer in self.layers.values():
            layer.file.close()


def _present(batch: Batch) -> NDArray[np.bool_]:
    return np.arange(batch.ids.shape[1]) < batch.lengths[:, None]


def _digest(name: str, texts: Sequence[str]) -> str:
    digest = hashlib.sha256(name.encode())
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


CURRENT: ContextVar[KeptStates | None] = ContextVar("kept_states", default=None)
"""The hidden states of the innermost :func:`kept_states` block, or None outside of any."""
