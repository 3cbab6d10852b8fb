"""What every post-processor offers: ``fit``, ``fit_queries``, ``transform``, and a state of named arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from ragembed.errors import ConfigError, ModelError, NotFittedError
from ragembed.postprocess.parts import Parts
from ragembed.types import Floats

State: TypeAlias = dict[str, NDArray[Any]]

ROUNDING = 1e-6
"""A spread below this share of the values' size is float32's rounding, not variation."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A fitted array: its name, type and axes, one letter an axis, equal letters standing for equal sizes.

    ``d`` is the dimension of the vectors that go in, ``o`` of those that come out where the two differ.
    """

    name: str
    dtype: type[np.float32] | type[np.float64]
    axes: str


class PostProcessor(ABC):
    """A map of vectors to vectors, fitted on vectors.

    What is fitted are the arrays that :attr:`saved` declares; the array ``mean`` is the attribute ``mean_``.
    Subclasses give :meth:`_learn` and :meth:`_map`; checks and state are the same for all.
    """

    saved: ClassVar[tuple[Saved, ...]] = ()
    additive: ClassVar[bool] = True
    """Whether :meth:`transform_parts` leaves nothing to the last row that was not there before."""

    def fit(self, vectors: Floats) -> Self:
        """Fit on ``vectors``, float32 or float64, shape ``(n, d)``, ``n >= 1``; a former fit is forgotten.

        Raises :class:`ConfigError` where there is no row, or a value that is not finite.
        """
        check_fittable(vectors)
        self._learn(vectors)
        return self

    def fit_queries(self, vectors: Floats, documents: Self) -> Self:
        """Fit the query side on query vectors, given the fitted document side; by default, a fit of its own.

        A post-processor that turns the space has to turn both sides alike, and overrides this.
        """
        del documents
        return self.fit(vectors)

    def transform(self, vectors: Floats) -> Floats:
        """Map ``vectors``, shape ``(n, d)``, to shape ``(n, d')``, float32, C-order; ``n`` may be 0."""
        dims = self._fitted_dims()
        if dims is not None and vectors.shape[1] != dims[0]:
            raise ConfigError(
                f"the vectors have {vectors.shape[1]} dimensions: {type(self).__name__} was fitted on {dims[0]}"
            )
        return np.ascontiguousarray(self._map(vectors), dtype=np.float32)

    def transform_parts(self, parts: Parts) -> Parts:
        """Map the parts of one vector to parts of what :meth:`transform` makes of it, in float64.

        This holds of affine maps ``x A + c``: a part becomes ``part A`` and its share of ``c``. Others override it.
        """
        self._fitted_dims()
        constant = self._map(np.zeros((1, parts.rows.shape[1])))
        return Parts(self._map(parts.rows) - constant + parts.shares[:, None] * constant, parts.shares)

    def state(self) -> State:
        """Return what was fitted, by name; raises :class:`NotFittedError` before a fit."""
        self._fitted_dims()
        return {array.name: getattr(self, f"{array.name}_") for array in self.saved}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Self:
        """Take back what :meth:`state` gave.

        Raises :class:`NotFittedError` when an array is missing, and :class:`ModelError` when one is unknown or is not
        of the type and shape that was saved.
        """
        owner = type(self).__name__
        for name in state:
            if name not in {kind.name for kind in self.saved}:
                raise ModelError(f"the saved state of {owner} has an unknown array {name!r}")
        sizes: dict[str, int] = {}
        for kind in self.saved:
            if kind.name not in state:
                raise NotFittedError(
                    f"the saved state of {owner} has no array {kind.name!r}: it was not saved by a fitted one"
                )
            array = state[kind.name]
            if array.dtype != kind.dtype or array.ndim != len(kind.axes) or 0 in array.shape:
                raise ModelError(
                    f"the saved array {kind.name!r} of {owner} is {array.dtype}, shape {array.shape}: "
                    f"expected {np.dtype(kind.dtype)} with {len(kind.axes)} axes, none of them empty"
                )
            for letter, size in zip(kind.axes, array.shape, strict=True):
                if sizes.setdefault(letter, size) != size:
                    raise ModelError(
                        f"the saved array {kind.name!r} of {owner} has shape {array.shape}, "
                        f"which does not fit the other arrays: expected {sizes[letter]} in place of {size}"
                    )
            setattr(self, f"{kind.name}_", np.ascontiguousarray(array))
        return self

    @property
    def dims(self) -> tuple[int, int] | None:
        """Dimension of the vectors that go in and of those that come out; None where any will do, or before a fit."""
        if not self.saved or not hasattr(self, f"{self.saved[-1].name}_"):
            return None
        sizes: dict[str, int] = {}
        for kind in self.saved:
            sizes.update(zip(kind.axes, getattr(self, f"{kind.name}_").shape, strict=True))
        return sizes["d"], sizes.get("o", sizes["d"])

    def _fitted_dims(self) -> tuple[int, int] | None:
        if self.saved and self.dims is None:
            raise NotFittedError(f"{type(self).__name__} is not fitted: call fit or restore first")
        return self.dims

    @abstractmethod
    def _learn(self, vectors: Floats) -> None:
        """Set every array of :attr:`saved` from ``vectors``, shape ``(n, d)``, finite, ``n >= 1``."""

    @abstractmethod
    def _map(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Map ``vectors``, float32 or float64, shape ``(n, d)``, with ``d`` as fitted."""


def check_fittable(vectors: NDArray[Any]) -> None:
    """Raise :class:`ConfigError` unless ``vectors`` is a finite array of shape ``(n, d)``, ``n, d >= 1``."""
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise ConfigError(
            f"cannot fit a post-processor on an array of shape {vectors.shape}: expected (n, d), at least one vector"
        )
    if not np.isfinite(vectors).all():
        raise ConfigError("cannot fit a post-processor on vectors that hold NaN or infinity: leave those vectors out")
