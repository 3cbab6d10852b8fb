"""Vectors that ragembed does not compute: those of a model behind a server, or of any other source of vectors.

A source has no files to hash. What identifies it is the vector of a fixed text, the probe, which is saved with the fit.
The first texts of each process are sent together with the probe: if its vector changed, so did the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import Template
from ragembed.errors import ConfigError, ModelError
from ragembed.extractors.protocol import Extractor, Progress, Side, TokenParts, saved_array
from ragembed.extractors.weighting import TokenWeights
from ragembed.postprocess import unit_rows
from ragembed.types import Floats, State

PROBE = "The quick brown fox jumps over the lazy dog."
SAME = 0.999
"""Least cosine of two vectors of the probe from the same model. Servers differ by rounding between two requests."""


@dataclass(frozen=True, slots=True)
class Role:
    """The role of texts: their side, and the template around each of them."""

    side: Side
    template: Template


class VectorSource(Protocol):
    """Makes vectors of texts: a client of a server, or an object of another library."""

    @property
    def name(self) -> str:
        """The name of the model, for messages."""
        ...

    def encode(self, texts: Sequence[str], role: Role, progress: Progress | None = None) -> Floats:
        """Return vectors of unit length, float32, shape ``(n, d)``, of the texts inside the template of their role."""
        ...


class ExternalExtractor(Extractor):
    """Raw vectors from a source outside ragembed, cut to ``truncate_dim`` dimensions and scaled to unit length again.

    ``name`` is that of the model. Without a ``source``, post-processors can be fitted again, but no text can be
    encoded. ``window`` is a number of tokens. The token weights are uniform and have no effect.
    """

    def __init__(
        self,
        name: str,
        source: VectorSource | None,
        documents: Template,
        queries: Template,
        window: int,
        truncate_dim: int | None,
        weights: TokenWeights,
    ) -> None:
        self.name = name
        self.source = source
        self.weights = weights
        self._prompts: dict[Side, Template] = {"documents": documents, "queries": queries}
        self._window = window
        self._truncate_dim = truncate_dim
        self._probes: dict[Side, Floats] = {}
        self._checked: set[Side] = set()

    @property
    def dim(self) -> int:
        """Dimension of the vectors; the source is asked if it is not known yet."""
        return len(self._probe("documents"))

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that determine a raw vector; see :class:`~ragembed.extractors.protocol.Extractor`.

        The name and the address of the model are not among them: a model can move, and the probe identifies it.
        """
        prompts = {side: [prompt.before, prompt.after] for side, prompt in self._prompts.items()}
        return {"external": prompts, "max_tokens": self._window}

    def encode(self, texts: Sequence[str], side: Side, progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; each depends only on its own text.

        Raises :class:`ModelError` if the source is not the one that was fitted, or has the zero vector for a query.
        """
        self.weights.require_fitted()
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        vectors = self._encode(texts, side, progress)
        if vectors.shape[1] != self.dim:
            raise self._changed(f"vectors of {vectors.shape[1]} dimensions, not {self.dim}")
        if side == "queries" and not (directed := vectors.any(axis=1)).all():
            raise self._undirected(texts[int(directed.argmin())])
        return vectors

    def token_parts(self, text: str, side: Side) -> TokenParts:
        """Raise :class:`ConfigError`: the vectors of the tokens are not known."""
        raise ConfigError(
            f"the tokens of {self.name} are not known: the vector of {text[:40]!r}, one of the {side}, cannot be split "
            "into words"
        )

    def fingerprint_arrays(self) -> State:
        """Return the vectors of the probe."""
        return {f"probe.{side}": self._probe(side) for side in self._prompts}

    def state(self) -> State:
        """Return the number of texts and the vectors of the probe."""
        return {**super().state(), **self.fingerprint_arrays()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that :meth:`state` returned."""
        super().restore(state)
        self._checked = set()
        for side in self._prompts:
            name = f"probe.{side}"
            dim = state[name].size if name in state else 0
            self._probes[side] = saved_array(state, name, np.float32, (dim,))

    def _probe(self, side: Side) -> Floats:
        """Return the vector of the probe, shape ``(d,)``."""
        if side not in self._probes:
            self._keep(side, self._vectors([PROBE], Role(side, self._prompts[side]))[0])
        return self._probes[side]

    def _encode(self, texts: Sequence[str], side: Side, progress: Progress | None) -> Floats:
        """Return the vectors of ``texts``; the first texts of a side are sent together with the probe."""
        own: Side = "documents" if side in ("documents", "few-documents") else "queries"
        role = Role(side, self._prompts[own])
        if own in self._checked:
            return self._vectors(texts, role, progress)
        extra = iter([1])
        counted = None if progress is None else lambda number: progress(number - next(extra, 0))
        vectors = self._vectors([PROBE, *texts], role, counted)
        self._keep(own, vectors[0])
        return vectors[1:]

    def _vectors(self, texts: Sequence[str], role: Role, progress: Progress | None = None) -> Floats:
        """Return the vectors of the source, truncated."""
        if self.source is None:
            raise ModelError(
                f"the vectors were made by {self.name}, which is not saved: give it as base=…, set RAGEMBED_MODEL to a "
                "server of the same model, such as 'openai:NAME', or search by words with --mode lexical"
            )
        vectors = self.source.encode(texts, role, progress)
        if self._truncate_dim is None:
            return vectors
        if self._truncate_dim > vectors.shape[1]:
            raise ConfigError(
                f"truncate_dim is {self._truncate_dim}: the vectors have {vectors.shape[1]} dimensions, expected at "
                f"most {vectors.shape[1]}"
            )
        return unit_rows(vectors[:, : self._truncate_dim])

    def _keep(self, side: Side, probe: Floats) -> None:
        """Keep the vector of the probe, or compare it with the one that was kept before."""
        if not probe.any():
            raise self._undirected(PROBE)
        former = self._probes.setdefault(side, probe)
        if former.shape != probe.shape:
            raise self._changed(f"vectors of {len(probe)} dimensions, not {len(former)}")
        if not (cosine := float(former @ probe)) >= SAME:
            raise self._changed(f"another vector for a fixed sentence, with the cosine {cosine:.3f}")
        self._checked.add(side)

    def _undirected(self, text: str) -> ModelError:
        return ModelError(
            f"{self.name} returned the zero vector, or none, for {text[:60]!r}: expected a vector with a direction; "
            "check the model, change the text, or search by words with --mode lexical"
        )

    def _changed(self, what: str) -> ModelError:
        return ModelError(
            f"{self.name} is not the model that this embedder was fitted with: it returns {what}; use the "
            "former model, or index into a new store"
        )
