"""The interface of post-processors: ``fit``, ``fit_queries``, ``transform``, and a state of named arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError, ModelError, NotFittedError
from ragembed.types import Doubles, Floats, State

if TYPE_CHECKING:
    from typing_extensions import Self

ROUNDING = 1e-6
"""A spread below this share of the size of the values is float32 rounding, not variation."""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A vector as a sum of float64 parts that a post-processor maps separately.

    The last row holds what belongs to none of the others.
    """

    rows: Doubles  # (n, d)
    shares: Doubles  # (n,), sum 1, of the parts in a constant that a post-processor adds to every vector

    @property
    def whole(self) -> Doubles:
        """The sum of the parts, float64, shape ``(d,)``."""
        total: Doubles = self.rows.sum(axis=0)
        return total


@dataclass(frozen=True, slots=True)
class Saved:
    """A fitted array: its name, its type, and one letter per axis; equal letters mean equal sizes.

    ``d`` is the input dimension and ``o`` the output dimension if it differs.
    """

    name: str
    dtype: type[np.float32] | type[np.float64]
    axes: str


class PostProcessor(ABC):
    """A map of vectors to vectors that is fitted on vectors; subclasses implement :meth:`_learn` and :meth:`_map`.

    :attr:`saved` declares the fitted arrays; the array ``mean`` is the attribute ``mean_``.
    """

    saved: ClassVar[tuple[Saved, ...]] = ()
    additive: ClassVar[bool] = True
    """Whether :meth:`transform_parts` adds nothing to the last row."""

    def fit(self, vectors: Floats) -> Self:
        """Fit on ``vectors``, float32 or float64, shape ``(n, d)``, ``n >= 1``, and replace an earlier fit.

        Raises :class:`ConfigError` if there is no row, or a value is not finite.
        """
        check_fittable(vectors)
        self._learn(vectors)
        return self

    def fit_queries(self, vectors: Floats, documents: Self) -> Self:
        """Fit on query vectors, given the fitted post-processor for documents; by default the same as :meth:`fit`.

        A post-processor that rotates the space overrides this method, because it must rotate documents and queries
        alike.
        """
        del documents
        return self.fit(vectors)

    def transform(self, vectors: Floats) -> Floats:
        """Map ``vectors``, shape ``(n, d)``, to shape ``(n, d')``, float32, C-order; ``n`` may be 0."""
        dims = self._fitted_dims() if self.saved else None
        if dims is not None and vectors.shape[1] != dims[0]:
            raise ConfigError(
                f"the vectors have {vectors.shape[1]} dimensions: {type(self).__name__} was fitted on {dims[0]}; "
                "give vectors of the same extractor"
            )
        return np.ascontiguousarray(self._map(vectors), dtype=np.float32)

    def transform_parts(self, parts: Parts) -> Parts:
        """Map the parts of one vector to parts of its transformed vector, in float64.

        This implementation holds for affine maps ``x A + c``: a part becomes ``part A`` plus its share of ``c``. Other
        maps override it.
        """
        self._fitted_dims()
        constant = self._map(np.zeros((1, parts.rows.shape[1])))
        return Parts(self._map(parts.rows) - constant + parts.shares[:, None] * constant, parts.shares)

    def state(self) -> State:
        """Return the fitted arrays by name; raise :class:`NotFittedError` before a fit."""
        self._fitted_dims()
        return {array.name: getattr(self, f"{array.name}_") for array in self.saved}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Self:
        """Load arrays that :meth:`state` returned.

        Raises :class:`NotFittedError` if an array is missing, and :class:`ModelError` if one is unknown or has another
        type or shape than the saved one.
        """
        owner = type(self).__name__
        for name in state:
            if name not in {kind.name for kind in self.saved}:
                raise ModelError(f"the saved state of {owner} has an unknown array {name!r}: fit and save again")
        sizes: dict[str, int] = {}
        for kind in self.saved:
            if kind.name not in state:
                raise NotFittedError(f"the saved state of {owner} has no array {kind.name!r}: fit and save again")
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
                        f"which does not match the other arrays: expected {sizes[letter]} instead of {size}"
                    )
            setattr(self, f"{kind.name}_", np.ascontiguousarray(array))
        return self

    @property
    def dims(self) -> tuple[int, int] | None:
        """Dimensions of input and output; None before a fit, or if any dimension is accepted."""
        if not self.saved or not hasattr(self, f"{self.saved[-1].name}_"):
            return None
        sizes: dict[str, int] = {}
        for kind in self.saved:
            sizes.update(zip(kind.axes, getattr(self, f"{kind.name}_").shape, strict=True))
        return sizes["d"], sizes.get("o", sizes["d"])

    def _fitted_dims(self) -> tuple[int, int] | None:
        """Return :attr:`dims`; raise :class:`NotFittedError` before a fit."""
        if self.saved and self.dims is None:
            raise NotFittedError(f"{type(self).__name__} is not fitted: call fit or restore first")
        return self.dims

    @abstractmethod
    def _learn(self, vectors: Floats) -> None:
        """Set every array of :attr:`saved` from ``vectors``, finite, shape ``(n, d)``, ``n >= 1``."""

    @abstractmethod
    def _map(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Map ``vectors``, float32 or float64, shape ``(n, d)``, with ``d`` as in the fit."""


def check_fittable(vectors: NDArray[Any]) -> None:
    """Raise :class:`ConfigError` unless ``vectors`` is a finite array of shape ``(n, d)`` with ``n, d >= 1``."""
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise ConfigError(
            f"cannot fit a post-processor on an array of shape {vectors.shape}: expected (n, d), at least one vector"
        )
    if not np.isfinite(vectors).all():
        raise ConfigError("cannot fit a post-processor on vectors with NaN or infinity: leave those vectors out")
