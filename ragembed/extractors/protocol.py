"""What every extractor offers: texts to raw vectors, fitted on a corpus, for the document and the query side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ModelError
from ragembed.extractors.parts import TokenParts
from ragembed.models.token_ids import TokenIds
from ragembed.types import Floats

if TYPE_CHECKING:
    from ragembed.extractors.token_weights import TokenWeights

Side = Literal["documents", "queries", "pseudo-queries", "few-documents"]
"""Pseudo-queries stand in for queries when the query side is fitted: framed as queries, computed as documents are.

Few documents are framed as documents, and computed as queries are.
"""
Progress = Callable[[int], None]
"""Called now and then with the number of texts done since the last call."""
State = dict[str, NDArray[Any]]


class Tokenizer(Protocol):
    """Texts to token ids, and to the character spans of their tokens."""

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        ...

    @property
    def max_tokens(self) -> int:
        """Tokens of the longest window that makes sense, special tokens included."""
        ...

    @property
    def special_tokens(self) -> int:
        """How many special tokens frame each window."""
        ...

    @property
    def prefix(self) -> list[int]:
        """Special token ids before a text."""
        ...

    @property
    def suffix(self) -> list[int]:
        """Special token ids after a text."""
        ...

    def ids(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of each text, without special tokens and without any limit."""
        ...

    def offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return for each text the ``(start, end)`` character spans of its tokens, without special tokens."""
        ...

    def located(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the token ids of ``text``, as :meth:`ids` does, and the ``(start, end)`` character span of each."""
        ...

    def names(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens that have ``ids``."""
        ...

    def vocabulary(self) -> list[str]:
        """Return the tokens by id."""
        ...


class Extractor(Protocol):
    """Makes raw vectors: what comes before post-processing."""

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """What decides a raw vector beside what is fitted, as JSON values: settings resolved, files as hashes."""
        ...

    @property
    def weights(self) -> TokenWeights:
        """The token weights."""
        ...

    def fit(self, texts: Iterable[str]) -> None:
        """Fit on the texts of a corpus, read once as a stream; raises :class:`ConfigError` where there is none."""
        ...

    def encode(self, texts: Sequence[str], side: Side, progress: Progress | None = None) -> Floats:
        """Return raw vectors, float32, shape ``(n, d)``; the order and company of texts do not matter.

        Raises :class:`ragembed.errors.NotFittedError` before :meth:`fit`.
        """
        ...

    def token_parts(self, text: str, side: Side) -> TokenParts:
        """Return the parts of which the raw vector of ``text`` is the sum, computed in float32.

        Raises :class:`ragembed.errors.NotFittedError` before :meth:`fit`.
        """
        ...

    def decisive(self) -> State:
        """Return the fitted arrays that decide a raw vector, for its fingerprint."""
        ...

    def state(self) -> State:
        """Return what was fitted, as named arrays."""
        ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what :meth:`state` gave."""
        ...


def saved_array(
    state: Mapping[str, NDArray[Any]], name: str, dtype: type[np.generic], shape: tuple[int, ...]
) -> NDArray[Any]:
    """Return the array ``name`` of a saved state.

    Raises :class:`ModelError` where it is missing or not of the type and shape expected.
    """
    array = state.get(name)
    if array is None:
        raise ModelError(f"the saved embedder has no array {name!r}: its files were changed, fit and save it again")
    if array.dtype != dtype or array.shape != shape:
        raise ModelError(
            f"the array {name!r} of the saved embedder is {array.dtype}, shape {array.shape}: expected "
            f"{np.dtype(dtype)}, shape {shape}"
        )
    return array
